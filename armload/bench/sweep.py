"""A sweep: cells that are run in turn, again and again, and the journal of what is done.

A sweep lies in ``sweeps/<id>/``: ``sweep.json`` says what is to be run, and ``journal.jsonl`` has
one line for each run that is done. The runs themselves are runs like any other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from armload import __version__
from armload.bench import store
from armload.bench.job import asked_for
from armload.bench.plan import Plan
from armload.bench.record import Place
from armload.bench.run import Run
from armload.build.binary import Binary
from armload.core.errors import ArmloadError, DataError, UsageError
from armload.core.files import write_whole
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import runs_folder, sweeps_folder
from armload.models.model import Model

SWEEP_FILE, JOURNAL_FILE, LOCK_FILE = "sweep.json", "journal.jsonl", ".lock"


class Cell(Value):
    """One combination of what was listed.

    Attributes:
        model: the file's name.
        asked_for: checksum over plan, program and model.
        plan: what is run.
    """

    model: str
    asked_for: str
    plan: Plan


class Sweep(Value):
    """What is to be run on a board.

    Attributes:
        format: version of the file's format.
        id: the folder's name.
        asked_for: a checksum over board, cells and counts; two sweeps of the same one are the
            same command.
        board: its name.
        cells: the combinations.
        repeats: runs of every cell that count.
        warmups: rounds before them that do not.
    """

    format: Literal[1] = 1
    id: str
    asked_for: str
    started_utc: str
    armload: str
    board: str
    cells: tuple[Cell, ...]
    repeats: int
    warmups: int

    def places(self) -> Iterator[Place]:
        """Yield all runs in their order.

        Every round goes over all cells, so that what changes on the board meanwhile meets all of
        them, and each in another order, so that none always follows the same other one.
        """
        for number in range(self.warmups + self.repeats):
            order = list(range(len(self.cells)))
            random.Random(f"{self.asked_for} {number}").shuffle(order)  # noqa: S311 - no secret
            for cell in order:
                yield Place(sweep=self.id, cell=cell, round=number, warm_up=number < self.warmups)


class Entry(Value):
    """A line of the journal.

    Attributes:
        cell, round: which run of the sweep this was.
        run: its id; empty where it could not even be started.
        error: why not.
    """

    cell: int
    round: int
    run: str = ""
    error: str = ""


def new_sweep(
    board: str, cells: Sequence[tuple[Model, Plan]], binary: Binary, *, repeats: int, warmups: int
) -> Sweep:
    """Describe a sweep that starts now."""
    named = tuple(
        Cell(model=model.name, asked_for=asked_for(plan, binary, model), plan=plan)
        for model, plan in cells
    )
    parts = (board, *(cell.asked_for for cell in named), str(repeats), str(warmups))
    now = datetime.now(UTC)
    return Sweep(
        id=f"{now:%Y%m%dT%H%M%SZ}-sweep-{board}-{secrets.token_hex(2)}",
        asked_for=hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16],
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        board=board,
        cells=named,
        repeats=repeats,
        warmups=warmups,
    )


class Journal:
    """What is done of a sweep.

    Args:
        folder: the sweep's.
        sweep: what is to be run.
    """

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self.folder = folder
        self.sweep = sweep
        self.entries = list(_entries(folder / JOURNAL_FILE))

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Keep others of the same sweep away within the block, and read first what they did."""
        words = f"{self.sweep.id} goes on in another terminal; waiting for it."
        with locked(self.folder / LOCK_FILE, progress, waiting=words):
            self.entries = list(_entries(self.folder / JOURNAL_FILE))
            yield

    def missing(self) -> list[Place]:
        """Return the runs that are still to be done, in their order."""
        done = {(entry.cell, entry.round) for entry in self.entries}
        return [place for place in self.sweep.places() if (place.cell, place.round) not in done]

    def outcomes(self) -> tuple[dict[int, list[Run]], dict[int, str]]:
        """Return each cell's runs without the warm-ups, and why a cell could not be started.

        A run whose folder is gone, or cannot be read any more, is left out.
        """
        runs: dict[int, list[Run]] = {}
        errors: dict[int, str] = {}
        for entry in self.entries:
            if not entry.run:
                errors[entry.cell] = entry.error
            elif entry.round >= self.sweep.warmups:
                with contextlib.suppress(ArmloadError):
                    run = store.load(runs_folder() / entry.run)
                    runs.setdefault(entry.cell, []).append(run)
        return runs, errors

    def run_folders(self) -> list[Path]:
        """Return the folders of its runs that are here, without the warm-ups."""
        ids = (entry.run for entry in self.entries if entry.round >= self.sweep.warmups)
        folders = (runs_folder() / each for each in ids if each)
        return [folder for folder in folders if (folder / store.RUN_FILE).is_file()]

    def note(self, entry: Entry) -> None:
        """Add a line that lasts, also when this machine loses its power right after."""
        self.entries.append(entry)
        lines = (each.model_dump_json() + "\n" for each in self.entries)
        write_whole(self.folder / JOURNAL_FILE, "".join(lines).encode())


def begin(sweep: Sweep) -> Journal:
    """Make the folder of a sweep."""
    folder = sweeps_folder() / sweep.id
    write_whole(folder / SWEEP_FILE, (sweep.model_dump_json(indent=1) + "\n").encode())
    return Journal(folder, sweep)


def unfinished(sweep: Sweep, progress: Progress) -> Journal | None:
    """Return the latest sweep of the same command that was not done to its end."""
    for folder in reversed(sweep_folders()):
        try:
            journal = load_journal(folder)
        except DataError as error:
            progress.say(f"left out: {error.message}")
            continue
        if journal.sweep.asked_for == sweep.asked_for:
            return journal if journal.missing() else None
    return None


def sweep_folders() -> list[Path]:
    """Return the folders of all sweeps, the oldest first."""
    return sorted(path.parent for path in sweeps_folder().glob(f"*/{SWEEP_FILE}"))


def find_sweep(reference: str) -> Path | None:
    """Return the folder of a sweep that a person means; none where a run may be meant.

    Args:
        reference: a sweep's folder or id, the beginning or the end of its id that holds the word
            ``sweep``, or ``latest-sweep``.

    Raises:
        UsageError: several fit.
    """
    if (Path(reference) / SWEEP_FILE).is_file():
        return Path(reference)
    if "sweep" not in reference:
        return None
    folders = sweep_folders()
    if reference == "latest-sweep":
        return folders[-1] if folders else None
    found = [
        folder
        for folder in folders
        if folder.name.startswith(reference) or folder.name.endswith(reference)
    ]
    if len(found) > 1:
        raise UsageError(
            f"{reference!r} may be {found[-1].name} or {found[-2].name}.", "Write more of the id."
        )
    return found[0] if found else None


def load_journal(folder: Path) -> Journal:
    """Read a sweep's folder.

    Raises:
        DataError: a file in it was changed, or is of a newer format.
    """
    path = folder / SWEEP_FILE
    try:
        sweep = _read(path, path.read_bytes(), Sweep)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from error
    return Journal(folder, sweep)


def _entries(path: Path) -> Iterator[Entry]:
    content = path.read_bytes() if path.exists() else b""
    # A line that was cut off is a run whose end was not noted.
    for line in content.split(b"\n")[:-1]:
        yield _read(path, line, Entry)


Read = TypeVar("Read", bound=BaseModel)


def _read(path: Path, content: bytes, kind: type[Read]) -> Read:
    try:
        fields = json.loads(content)
        version = fields.get("format", 1) if isinstance(fields, dict) else 1
        if isinstance(version, int) and version > 1:
            raise DataError(
                f"{path}: its format is {version}, and this armload reads up to 1.",
                "Upgrade armload: pip install --upgrade armload.",
            )
        return kind.model_validate(fields)
    except (ValueError, ValidationError) as error:
        raise DataError(
            f"{path}: this is no record of a sweep: {error}.",
            "It was changed. --new starts the sweep again; its runs stay.",
        ) from error
