"""Resolving the references of a command line to the folders of runs."""

from __future__ import annotations

from pathlib import Path

from armload.bench.sweep import find_sweep
from armload.core.errors import UsageError
from armload.core.files import is_there
from armload.runs import store


def single_words(words: str) -> list[str]:
    """Split a comma-separated list; a path that contains a comma stays whole.

    Raises:
        UsageError: an entry is empty.
    """
    references = [words] if is_there(Path(words)) else words.split(",")
    if not all(reference.strip() for reference in references):
        raise UsageError(
            f"{words!r}: an entry of this list is empty.",
            "Separate several runs by single commas: A1,A2,A3.",
        )
    return [reference.strip() for reference in references]


def folders_of(words: str) -> list[Path]:
    """Return the folders of the referenced runs, in the same order.

    Args:
        words: a run, as ``store.find`` takes it, or its ``run.json``; a sweep, as
            ``find_sweep`` takes it, for all its runs but the warm-ups; or several of them with
            commas between.

    Raises:
        UsageError: there is no such run.
    """
    return [folder for reference in single_words(words) for folder in _folders_of(reference)]


def _folders_of(reference: str) -> list[Path]:
    path = Path(reference)
    if path.name == store.RUN_FILE and path.is_file():
        return [path.parent]
    sweep = find_sweep(reference)
    if sweep is None:
        return [store.find(reference)]
    folders = sweep.run_folders()
    if not folders:
        raise UsageError(
            f"{sweep.folder}: none of its runs is on this machine.",
            "Repeat the command that started it to resume it.",
        )
    return folders
