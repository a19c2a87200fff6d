"""Runs as folders on this machine: ``runs/<id>/run.json`` beside the raw files."""

from __future__ import annotations

import contextlib
import difflib
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from armload.analysis.run import FORMAT, Run
from armload.core.errors import (
    ArmloadError,
    DataError,
    NewerFormatError,
    NoSuchResultError,
    UsageError,
)
from armload.core.files import is_file, unreadable, write_whole
from armload.core.locks import locked
from armload.core.progress import Silent
from armload.core.validation_messages import explain_mistake
from armload.core.values import parse_json
from armload.core.workspace import RUN_FILE, imports_folder, runs_folder
from armload.deploy.exit_reason import INTERRUPTED
from armload.runs.folders import run_folders
from armload.runs.selection import RunSelection, model_in_id, names_in_id

_ID_FILE = ".store"

_START = "Start one: armload demo, or armload bench --board BOARD --model FILE.gguf"
_NAMES_SEARCHED = 500
_NAMED_AT_MOST = 4
_ALIKE = 0.5
_AGAIN = (
    "If the run is still on its board, 'armload pull' fetches it again. The folder was not changed."
)


def store_id() -> str:
    """Return what tells this folder of runs from those of other machines and workspaces."""
    path = runs_folder() / _ID_FILE
    with locked(path.with_suffix(".lock"), Silent(), waiting=str(path)):
        if not path.is_file():
            write_whole(path, secrets.token_hex(8).encode())
        return path.read_text(encoding="ascii")


def save(run: Run, folder: Path) -> Path:
    """Write ``run.json`` into the run's folder and return its path."""
    path = folder / RUN_FILE
    write_whole(path, (run.model_dump_json(indent=1) + "\n").encode())
    return path


def load(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        UsageError: there is no ``run.json``.
        DataError: it is of a newer format, or was changed by hand and no longer fits.
        DiskError: it cannot be read.
    """
    path = folder / RUN_FILE
    try:
        content = parse_json(path.read_bytes(), most_values=sys.maxsize)
    except FileNotFoundError:
        raise UsageError(
            f"{folder} contains no {RUN_FILE}.",
            "Name the folder of a finished run; 'armload show' lists them.",
        ) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise DataError(f"{path}: not a JSON document: {error}.", _AGAIN) from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a run, but a JSON {type(content).__name__}.", _AGAIN)
    version = content.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormatError(path, version, FORMAT)
    try:
        return Run.model_validate(content)
    except ValidationError as error:
        raise DataError(
            f"{path}: {explain_mistake(error, Run)}.",
            f"The file was changed, or is from another program. {_AGAIN}",
        ) from error


def is_here(run_id: str) -> bool:
    """Say whether a run lies on this machine and can be read, by a newer armload if not by us."""
    try:
        load(runs_folder() / run_id)
    except NewerFormatError:
        return True
    except ArmloadError:
        return False
    return True


def latest_on(board: str, *, most: int) -> Iterator[Run]:
    """Yield the latest runs on a board, the newest first, without those that cannot be read.

    Args:
        most: how many are opened at most.
    """
    for folder in reversed(run_folders(RunSelection(boards=[board]))[-most:]):
        try:
            run = load(folder)
        except ArmloadError:
            continue
        if run.board.name == board:
            yield run


def boards_of_runs(beginning: str) -> set[str]:
    """Return the boards with runs whose names begin so; their files may have been deleted."""
    boards: set[str] = set()
    opened: set[str] = set()
    for folder in reversed(run_folders(RunSelection(boards=[beginning]), imported=True)):
        names = names_in_id(folder.name)
        if names not in opened:
            with contextlib.suppress(ArmloadError):
                boards.add(load(folder).board.name)
                opened.add(names)
    return boards


def find(reference: str) -> Path:
    """Return the folder that a person means.

    Args:
        reference: a folder, a run's id or the beginning of one, the end of one, ``latest``,
            ``latest:TEXT`` for the latest whose id holds that text, or ``BOARD:MODEL`` for the
            latest of that board and of a model of that name, or with that in its name. An imported
            or interrupted run is meant by its id alone.

    Raises:
        UsageError: no run, or more than one, fits; or all that fit were interrupted.
        DataError: a run that may be meant cannot be read.
    """
    if is_file(Path(reference) / RUN_FILE):
        return Path(reference)
    folders, every = run_folders(), run_folders(imported=True)
    if not every:
        raise NoSuchResultError(
            f"There is no run {reference!r}: no runs in {runs_folder()} yet.",
            _START,
            noun="run",
            reference=reference,
        )
    before, colon, wanted = reference.partition(":")
    if not folders and (before == "latest" or colon):
        raise UsageError(
            f"{reference}: means runs of your own; there are none in {runs_folder()} yet.",
            f"{_START}. {_recent(every, 'imported runs')} Use one by its id.",
        )
    if before == "latest":
        fitting = [folder for folder in reversed(folders) if wanted in folder.name]
        if found := _first_finished(reference, fitting):
            return found
    elif colon:
        return _latest_of(before, wanted, folders)
    else:
        fitting = [
            folder
            for folder in every
            if folder.name.startswith(reference) or folder.name.endswith(reference)
        ]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(
                f"{len(fitting)} runs fit {reference!r}: {_some_of(fitting)}.",
                "Give more of the id.",
            )
    raise NoSuchResultError(
        f"There is no run named {reference!r}.",
        _similar(reference, every),
        noun="run",
        reference=reference,
    )


def check_no_run(reference: str, other: Path) -> None:
    """Return unless the last part of another result's id is also that of a run's.

    Raises:
        UsageError: it is.
    """
    if runs := [each for each in run_folders() if each.name.endswith(f"-{reference}")]:
        raise UsageError(
            f"{reference!r} is ambiguous: {runs[-1].name} or {other.name}.", "Give more of the id."
        )


def _latest_of(board: str, model: str, folders: Sequence[Path]) -> Path:
    selection = RunSelection(boards=[board], model=model)
    exact = f"{board}-{model_in_id(model)}"
    fitting = [folder for folder in reversed(folders) if selection.holds(folder.name)]
    for is_exact in (True, False):
        named = [folder for folder in fitting if (names_in_id(folder.name) == exact) == is_exact]
        if found := _first_finished(f"{board}:{model}", named, board):
            return found
    raise NoSuchResultError(
        f"No run of model {model!r} on board {board!r} in {runs_folder()}.",
        _similar(exact, folders),
        noun="run",
        reference=f"{board}:{model}",
    )


def _first_finished(reference: str, folders: Sequence[Path], board: str = "") -> Path | None:
    """Return the first folder of a finished run; none where there is no run of that board."""
    interrupted = ""
    for folder in folders:
        run = load(folder)
        if board and run.board.name != board:
            continue
        if run.exit.kind not in INTERRUPTED:
            return folder
        interrupted = interrupted or f"{folder.name} ({run.exit.meaning})"
    if not interrupted:
        return None
    raise UsageError(
        f"{reference}: no run has finished; the last one is {interrupted}.",
        "To use an interrupted run, give its id.",
    )


def _some_of(folders: Sequence[Path]) -> str:
    shown = ", ".join(folder.name for folder in folders[-_NAMED_AT_MOST:])
    more = len(folders) - _NAMED_AT_MOST
    return f"{shown} and {more} more" if more > 0 else shown


def _similar(reference: str, folders: Sequence[Path]) -> str:
    names = [folder.name for folder in folders[-_NAMES_SEARCHED:]]
    if near := difflib.get_close_matches(reference, names, n=3, cutoff=_ALIKE):
        return f"Similar names: {', '.join(near)}."
    imported = imports_folder()
    own = [folder for folder in folders if folder.parent != imported]
    return _recent(own, "runs") if own else _recent(folders, "imported runs")


def _recent(folders: Sequence[Path], noun: str) -> str:
    return f"The latest {noun}: {', '.join(folder.name for folder in folders[:-4:-1])}."
