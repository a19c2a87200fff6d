"""A sweep: cells that are run in turn, again and again, and the journal of what is done.

A sweep lies in ``sweeps/<id>/``: ``sweep.json`` says what is to be run, and ``journal.jsonl`` has
one line for each run that is done. The runs themselves are runs like any other.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from armload import __version__
from armload.analysis.repeats import Precision, Stop, judged_together, stop
from armload.analysis.run import Run
from armload.core.errors import ArmloadError, DataError, DiskError, UsageError
from armload.core.files import write_whole
from armload.core.ids import fingerprint_of, new_id, time_of_id
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.results import Results, fitting, write_lines
from armload.core.values import Value
from armload.core.workspace import runs_folder, sweeps_folder
from armload.engines.completion import Completion
from armload.engines.job import Place
from armload.engines.plan import Plan
from armload.runs import store

OLDEST_TO_GROW = timedelta(days=1)
"""Older runs are not repeats of new ones."""

SWEEP_FILE, JOURNAL_FILE, LOCK_FILE = "sweep.json", "journal.jsonl", ".lock"

SWEEPS = Results(
    noun="sweep",
    word="sweep",
    file=SWEEP_FILE,
    newest_format=2,  # in format 1 ``fingerprint`` was called ``asked_for``
    root=sweeps_folder,
    make="armload bench --threads 1,2,4",
    repair="Use --new to start the sweep again; its runs are kept.",
)


def _renamed(former: dict[str, object]) -> dict[str, object]:
    return {"fingerprint" if key == "asked_for" else key: former[key] for key in former}


class SweepCell(Value):
    """One combination of the values listed.

    Attributes:
        model: the file's name.
        fingerprint: checksum over plan, program and model.
        plan: what is run.
    """

    model: str
    fingerprint: str
    plan: Plan


class Sweep(Value):
    """What is to be run on a board.

    Attributes:
        format: version of the file's format.
        id: the folder's name.
        fingerprint: a checksum over board, cells and counts; two sweeps of the same one are the
            same command.
        board: its name.
        cells: the combinations.
        repeats: runs of every cell that count.
        warmups: rounds before them that do not.
        precision: the one cell is repeated until its median time per token is known so exactly;
            none where ``repeats`` says how often.
    """

    format: Literal[2] = 2
    id: str
    fingerprint: str
    started_utc: str
    armload: str
    board: str
    cells: tuple[SweepCell, ...]
    repeats: int
    warmups: int
    precision: Precision | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_former_keys(cls, content: object) -> object:
        if not isinstance(content, dict) or content.get("format") != 1:
            return content
        cells = [_renamed(cell) for cell in content.get("cells", ())]
        return {**_renamed(content), "format": 2, "cells": cells}

    def places(self) -> Iterator[Place]:
        """Yield all runs in their order.

        Every round goes over all cells, so that what changes on the board meanwhile meets all of
        them, and each in another order, so that none always follows the same other one.
        """
        for number in range(self.warmups + self.repeats):
            order = list(range(len(self.cells)))
            random.Random(f"{self.fingerprint} {number}").shuffle(order)  # noqa: S311 - no secret
            for cell in order:
                yield Place(sweep=self.id, cell=cell, round=number, warm_up=number < self.warmups)


class Entry(Value):
    """A line of the journal.

    Attributes:
        cell, round: which run of the sweep this was.
        run: its id; empty where it could not even be started.
        error: why not.
        took_s: how long it took, the board's preparation included.
    """

    cell: int
    round: int
    run: str = ""
    error: str = ""
    took_s: float | None = None


def new_sweep(
    board: str,
    engines: Sequence[Completion],
    *,
    repeats: int,
    warmups: int,
    precision: Precision | None = None,
) -> Sweep:
    """Describe a sweep that starts now."""
    named = tuple(
        SweepCell(model=engine.model.name, fingerprint=engine.fingerprint, plan=engine.plan)
        for engine in engines
    )
    parts = (board, *(cell.fingerprint for cell in named), str(repeats), str(warmups))
    if precision is not None:
        parts = (*parts, f"within {precision.share}", f"in {precision.added_s}")
    now = datetime.now(UTC)
    kind = "sweep" if precision is None else "repeats"
    return Sweep(
        id=new_id(now, kind, board),
        fingerprint=fingerprint_of(parts),
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        board=board,
        cells=named,
        repeats=repeats,
        warmups=warmups,
        precision=precision,
    )


class Journal:
    """The record of a sweep's completed runs."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self.folder = folder
        self.sweep = sweep
        self.entries = SWEEPS.read_lines(folder / JOURNAL_FILE, Entry)

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the sweep's lock within the block; first reread what others have done."""
        words = f"{self.sweep.id} is running in another terminal. Waiting for it."
        with locked(self.folder / LOCK_FILE, progress, waiting=words):
            self.entries = SWEEPS.read_lines(self.folder / JOURNAL_FILE, Entry)
            yield

    def missing(self) -> list[Place]:
        """Return the runs that are still to be done, in their order."""
        done = {(entry.cell, entry.round) for entry in self.entries}
        return [place for place in self.sweep.places() if (place.cell, place.round) not in done]

    def results(self) -> tuple[dict[int, list[Run]], dict[int, str]]:
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
        return {cell: judged_together(its_runs) for cell, its_runs in runs.items()}, errors

    def stop(self, wanted: Precision, runs: Sequence[Run]) -> Stop | None:
        """Decide whether a cell needs another repeat; none means that it does.

        Args:
            wanted: how precisely its median is to be known.
        """
        took_s = [entry.took_s for entry in self.entries if entry.took_s is not None]
        # Building and copying were part of the first only.
        first_s = runs[0].summary.wall_s if runs else None
        return stop(
            runs,
            wanted,
            added_s=sum(took_s[1:]),
            a_run_s=max(took_s[1:], default=first_s),
        )

    def run_folders(self) -> list[Path]:
        """Return the folders of its runs that are here, without the warm-ups."""
        ids = (entry.run for entry in self.entries if entry.round >= self.sweep.warmups)
        folders = (runs_folder() / each for each in ids if each)
        return [folder for folder in folders if (folder / store.RUN_FILE).is_file()]

    def note(self, entry: Entry) -> None:
        """Add an entry durably, so that it survives a power failure right afterwards."""
        self.entries.append(entry)
        write_lines(self.folder / JOURNAL_FILE, self.entries)


def begin(sweep: Sweep) -> Journal:
    """Make the folder of a sweep."""
    folder = sweeps_folder() / sweep.id
    write_whole(folder / SWEEP_FILE, (sweep.model_dump_json(indent=1) + "\n").encode())
    return Journal(folder, sweep)


def unfinished(sweep: Sweep, progress: Progress) -> Journal | None:
    """Return the latest sweep of the same command that is incomplete."""
    journal = _latest(sweep, progress)
    return journal if journal and journal.missing() else None


def growing(sweep: Sweep, wanted: Precision, progress: Progress) -> Journal | None:
    """Return the latest interrupted sweep of the same command whose repeats are adaptive."""
    oldest = time_of_id(datetime.now(UTC) - OLDEST_TO_GROW)
    journal = _latest(sweep, progress, since=oldest)
    if journal is None:
        return None
    runs, _ = journal.results()
    return journal if journal.stop(wanted, runs.get(0, ())) is None else None


def _latest(sweep: Sweep, progress: Progress, since: str = "") -> Journal | None:
    for folder in reversed(SWEEPS.folders()):
        if folder.name < since:
            return None
        try:
            journal = load_journal(folder)
        except (DataError, DiskError) as error:
            progress.say(f"skipped: {error.message}")
            continue
        if journal.sweep.fingerprint == sweep.fingerprint:
            return journal
    return None


def find_sweep(reference: str) -> Path | None:
    """Return the folder of the referenced sweep; none if the reference may be a run.

    Args:
        reference: a sweep's folder or id, the beginning or the end of its id that holds the word
            ``sweep`` or ``repeats``, or ``latest-sweep``: the latest of several combinations or of
            a fixed number of runs.

    Raises:
        UsageError: several match.
    """
    if (Path(reference) / SWEEP_FILE).is_file():
        return Path(reference)
    if "sweep" not in reference and "repeats" not in reference:
        return None
    folders = SWEEPS.folders()
    if reference == "latest-sweep":
        sweeps = [folder for folder in folders if "-sweep-" in folder.name]
        if not sweeps:
            raise UsageError(
                f"There is no sweep in {sweeps_folder()} yet.",
                "A list makes one: armload bench --threads 1,2,4.",
            )
        return sweeps[-1]
    return fitting(folders, reference)


def load_journal(folder: Path) -> Journal:
    """Read a sweep's folder.

    Raises:
        DataError: a file in it was changed, or is of a newer format.
        DiskError: one cannot be read.
    """
    return Journal(folder, SWEEPS.read(folder / SWEEP_FILE, Sweep))
