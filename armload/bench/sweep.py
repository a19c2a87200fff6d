"""A sweep: cells that are run in turn, again and again, and the journal of what is done.

A sweep lies in ``sweeps/<id>/``: ``sweep.json`` says what is to be run, and ``journal.jsonl`` has
one line for each run that is done. The runs themselves are runs like any other.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from armload.analysis.repeats import Precision, Stop, judged_together, stop
from armload.analysis.run import Run
from armload.bench.suite import Suite
from armload.core.errors import ArmloadError, UsageError
from armload.core.ids import begins_now, fingerprint_of, time_of_id
from armload.core.journal import CommandHeader, CommandJournal, JournalKind
from armload.core.progress import Progress
from armload.core.values import Value, counted
from armload.core.workspace import RUN_FILE, runs_folder, sweeps_folder
from armload.engines.job import SweepPoint
from armload.engines.model_program import ModelProgram
from armload.engines.plan import Plan
from armload.runs import store

OLDEST_TO_GROW = timedelta(days=1)
"""Older runs are not repeats of new ones."""


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


class Sweep(CommandHeader):
    """What is to be run on a board, or divided between equal ones.

    Attributes:
        fingerprint: a checksum over boards, cells and counts.
        boards: their names.
        cells: the combinations.
        repeats: runs of every cell that count.
        warmups: rounds before them that do not.
        precision: the one cell is repeated until its median time per token is known so exactly;
            none where ``repeats`` says how often.
        suite: whose tests the cells are; none for another sweep.
    """

    format: Literal[3] = 3
    boards: tuple[str, ...]
    cells: tuple[SweepCell, ...]
    repeats: int
    warmups: int
    precision: Precision | None = None
    suite: Suite | None = None

    def test_of(self, cell: int) -> str:
        """Return the name of the suite's test that a cell is; empty without a suite."""
        test = self.suite and self.suite.test_of(self.cells[cell].plan)
        return test.name if test else ""

    def places(self) -> Iterator[SweepPoint]:
        """Yield all runs in their order.

        Every round goes over all cells, so that what changes on the board meanwhile meets all of
        them, and each in another order, so that none always follows the same other one.
        """
        for number in range(self.warmups + self.repeats):
            order = list(range(len(self.cells)))
            random.Random(f"{self.fingerprint} {number}").shuffle(order)  # noqa: S311 - no secret
            for cell in order:
                yield SweepPoint(
                    sweep=self.id,
                    cell=cell,
                    round=number,
                    warm_up=number < self.warmups,
                    test=self.test_of(cell),
                )


class SweepEntry(Value):
    """A run of a sweep that is done.

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
    boards: Sequence[str],
    engines: Sequence[ModelProgram[Plan]],
    *,
    repeats: int,
    warmups: int,
    precision: Precision | None = None,
    suite: Suite | None = None,
) -> Sweep:
    """Describe a sweep that starts now."""
    named = tuple(
        SweepCell(model=engine.model.name, fingerprint=engine.fingerprint, plan=engine.plan)
        for engine in engines
    )
    parts = (
        ",".join(sorted(boards)),
        *(cell.fingerprint for cell in named),
        str(repeats),
        str(warmups),
    )
    if precision is not None:
        # More time for the same repeats continues them.
        parts = (*parts, f"within {precision.share}")
    kind = "sweep" if precision is None else "repeats"
    return Sweep(
        **begins_now(kind, boards[0] if len(boards) == 1 else f"{len(boards)}-boards"),
        fingerprint=fingerprint_of(parts),
        boards=tuple(boards),
        cells=named,
        repeats=repeats,
        warmups=warmups,
        precision=precision,
        suite=suite,
    )


class SweepFolder(CommandJournal[Sweep, SweepEntry]):
    """A sweep with its completed runs."""

    kind = JournalKind(
        noun="sweep",
        words=("sweep", "repeats"),
        header=Sweep,
        entry=SweepEntry,
        root=sweeps_folder,
        make="armload bench --threads 1,2,4",
        repair="Use --new to start the sweep again; its runs are kept.",
    )

    @property
    def sweep(self) -> Sweep:
        return self.header

    @property
    def is_finished(self) -> bool:
        """Whether no run is missing; of adaptive repeats, whether they need no other one."""
        if self.header.precision is None:
            return not self.missing()
        runs, _ = self.results()
        return self.stop(self.header.precision, runs.get(0, ())) is not None

    def renew(self, header: Sweep) -> None:
        """Allow adaptive repeats the time that the repeated command allows them."""
        if header.precision is not None:
            self.header = self.header.model_copy(update={"precision": header.precision})

    def note(self, place: SweepPoint, ended: Run | ArmloadError) -> None:
        """Record how a run ended, or why it could not be started."""
        run, error = ("", ended.message) if isinstance(ended, ArmloadError) else (ended.id, "")
        self.append(SweepEntry(cell=place.cell, round=place.round, run=run, error=error))

    def missing(self) -> list[SweepPoint]:
        """Return the runs that are still to be done, in their order."""
        done = {(entry.cell, entry.round) for entry in self.entries}
        return [place for place in self.header.places() if (place.cell, place.round) not in done]

    def results(self) -> tuple[dict[int, list[Run]], dict[int, str]]:
        """Return each cell's runs without the warm-ups, and why a cell could not be started.

        A run whose folder is gone, or cannot be read any more, is left out.
        """
        runs: dict[int, list[Run]] = {}
        errors: dict[int, str] = {}
        for entry in self.entries:
            if not entry.run:
                errors[entry.cell] = entry.error
            elif entry.round >= self.header.warmups:
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

    def run_folders(self, cell: int | None = None) -> list[Path]:
        """Return the folders of its runs that are here, without the warm-ups.

        Args:
            cell: the number of one of its cells, from 0; none for all.
        """
        ids = (
            entry.run
            for entry in self.entries
            if entry.round >= self.header.warmups and cell in (None, entry.cell)
        )
        folders = (runs_folder() / each for each in ids if each)
        return [folder for folder in folders if (folder / RUN_FILE).is_file()]


def resume_or_begin(sweep: Sweep, progress: Progress, *, new: bool) -> SweepFolder:
    """Return the latest unfinished sweep of the same command, or else begin this one.

    Args:
        new: begin it in any case.
    """
    since = time_of_id(datetime.now(UTC) - OLDEST_TO_GROW) if sweep.precision else ""
    return SweepFolder.resume_or_begin(sweep, progress, new=new, since=since)


def find_cell(reference: str) -> tuple[SweepFolder, int | None] | None:
    """Return the referenced sweep, and the cell that ``SWEEP/NUMBER`` means, counted from 0 here.

    Returns:
        none if the reference may be to a run.
    """
    sweep = find_sweep(reference)
    if sweep is not None:
        return sweep, None
    before, slash, number = reference.rpartition("/")
    if not slash or not number.isdecimal() or (sweep := find_sweep(before)) is None:
        return None
    cells = len(sweep.sweep.cells)
    if not 1 <= int(number) <= cells:
        joined = " or " if cells == 2 else " to "
        named = joined.join(f"{before}/{each}" for each in dict.fromkeys((1, cells)))
        raise UsageError(
            f"{reference}: the sweep has {counted(cells, 'cell')}.", f"Name one of them: {named}."
        )
    return sweep, int(number) - 1


def find_sweep(reference: str) -> SweepFolder | None:
    """Return the referenced sweep; none if the reference may be to a run."""
    if not SweepFolder.kind.is_meant(reference):
        return None
    found = SweepFolder.find(reference)
    store.check_no_run(reference, found.folder)
    return found
