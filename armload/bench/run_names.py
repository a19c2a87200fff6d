"""What a person means by runs, and by one side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.analysis.benchmark_file import read_benchmark_file
from armload.analysis.measurement import measurement_of
from armload.analysis.repeats import judged_together
from armload.bench.sweep import find_cell
from armload.boards.naming import boards_called, is_name
from armload.core.errors import UsageError
from armload.core.files import is_file, is_there
from armload.core.progress import Progress, Silent
from armload.core.workspace import RUN_FILE
from armload.engines.measurement import Measurement
from armload.runs import store
from armload.runs.selection import RunSelection


def single_words(words: str) -> list[str]:
    """Split a comma-separated list; a path that contains a comma stays whole."""
    references = [words] if is_there(Path(words)) else words.split(",")
    if not all(reference.strip() for reference in references):
        raise UsageError(
            f"{words!r}: an entry of this list is empty.",
            "Separate several runs by single commas: A1,A2,A3.",
        )
    return [reference.strip() for reference in references]


def folders_of(
    words: str, selection: RunSelection | None = None, progress: Progress | None = None
) -> list[Path]:
    """Return the folders of the referenced runs, in the same order.

    Args:
        words: a run, as ``store.find`` takes it, or its ``run.json``; a sweep, as
            ``find_cell`` takes it, for all its runs but the warm-ups, or those of a cell;
            ``@LABEL:MODEL`` or
            ``PATTERN:MODEL`` for the latest run of a model on each of several boards; or several
            of them with commas between.
        selection: leaves out others.
        progress: is told which of several boards are left out, because they have no run.
    """
    told = progress or Silent()
    every = [folder for reference in single_words(words) for folder in _folders_of(reference, told)]
    kept = [each for each in every if selection is None or selection.holds(each.name)]
    if not kept:
        raise UsageError(f"{words}: none of its runs match the filter.", "Widen the filter.")
    return kept


def _folders_of(reference: str, progress: Progress) -> list[Path]:
    path = Path(reference)
    if path.name == RUN_FILE and path.is_file():
        return [path.parent]
    found = find_cell(reference)
    if found is None:
        board, colon, model = reference.partition(":")
        if colon and not is_name(board):
            return _on_boards(boards_called([board]), model, progress)
        return [store.find(reference)]
    sweep, cell = found
    folders = sweep.run_folders(cell)
    if not folders:
        raise UsageError(
            f"{reference}: none of its runs is on this machine.",
            "Repeat the command that started it to resume it.",
        )
    return folders


def _on_boards(boards: Sequence[str], model: str, progress: Progress) -> list[Path]:
    found, missing = [], dict[str, UsageError]()
    for name in boards:
        try:
            found.append(store.find(f"{name}:{model}"))
        except UsageError as error:
            missing[name] = error
    if missing and not found:
        raise next(iter(missing.values()))
    if missing:
        progress.say(f"Left out, because they have no run of {model}: {', '.join(missing)}.")
    return found


def read_side(
    words: str, selection: RunSelection | None = None, progress: Progress | None = None
) -> list[Measurement]:
    """Return the measurements of one side.

    Args:
        words: a run, as ``store.find`` takes it; a file that another engine's benchmark wrote;
            or several of them with commas between, which are repeats.
        selection: leaves out other runs.
        progress: as for ``folders_of``.
    """
    return [
        figures
        for reference in single_words(words)
        for figures in _read_one(reference, selection, progress)
    ]


def _read_one(
    reference: str, selection: RunSelection | None, progress: Progress | None
) -> list[Measurement]:
    path = Path(reference)
    if is_file(path) and path.name != RUN_FILE:
        return read_benchmark_file(path)
    runs = [store.load(folder) for folder in folders_of(reference, selection, progress)]
    return [measurement_of(run) for run in judged_together(runs)]
