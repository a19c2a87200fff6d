"""Runs, repeats and sweeps: carried out, and laid before a person or a program."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Sequence
from pathlib import Path

from armload.analysis.repeats import Precision, middle
from armload.analysis.run import Run
from armload.bench.combination import Combination
from armload.bench.single import repeat_until_known, run_once
from armload.bench.sweep import SweepFolder
from armload.bench.sweeping import run_sweep
from armload.cli import terminal
from armload.cli.streams import show_document
from armload.core.errors import ArmloadError, RunError
from armload.core.journal import resuming
from armload.core.progress import Progress
from armload.core.values import counted
from armload.core.workspace import RUN_FILE, runs_folder
from armload.engines.job import SweepPoint
from armload.report.layout import whole
from armload.report.sweep import (
    CellResult,
    SweepLines,
    cell_results,
    comparison_of,
    sweep_view,
    swept_cells,
)
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request


def bench_and_present(
    request: Request,
    one: Combination,
    reach: Reach,
    *,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Run, write the page and the picture beside the run, and show the figures.

    With a reference the run's text is compared with that run's, and the verdict says so.

    Raises:
        RunError: the program did not end well; what it left is kept and shown all the same.
    """
    load_charting_meanwhile()
    progress = terminal.progress()
    run, folder = run_once(request, one, progress, reference=reference, reach=reach)
    present(run, folder, as_json=as_json)


def repeat_and_present(
    request: Request,
    one: Combination,
    wanted: Precision,
    reach: Reach = CONNECTED,
    *,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Repeat a run until its median is known, and show the middle one and what all say together.

    Raises:
        RunError: the last did not end well; what it left is kept and shown all the same.
    """
    from armload.report.repeats import RepeatedRun, progress_line, together, together_json

    progress = terminal.progress()
    load_charting_meanwhile()

    def report(runs: Sequence[Run]) -> None:
        progress.say(progress_line(runs))

    journal, runs, stop = repeat_until_known(
        *(request, one, wanted, progress),
        reference=reference,
        reach=reach,
        begun=lambda journal: say_resumed(journal, progress),
        report=report,
    )
    run = middle(runs)
    combined = together_json(journal.sweep, runs, wanted, stop)
    document = RepeatedRun(**dict(run), combined=combined)
    present(run, runs_folder() / run.id, as_json=as_json, document=document)
    if not as_json:
        terminal.show(together(runs, stop))
        if len(runs) > 1:
            terminal.show(whole(f"all      {terminal.program()} report {journal.sweep.id}"))


def demonstrate(request: Request, one: Combination, wanted: Precision) -> None:
    """Repeat a run until its median is known, with the text of the first.

    On a terminal that can redraw a line it is shown as it comes.

    Raises:
        RunError: the last did not end well; what it left is kept and shown all the same.
    """
    from armload.report.demo import SpokenText, demo_view
    from armload.report.repeats import progress_line
    from armload.report.run_page import write_report

    progress = terminal.progress()
    load_charting_meanwhile()
    spoken, streams = SpokenText(progress.say, one.plan.prompt), terminal.redraws()

    def report(runs: Sequence[Run]) -> None:
        if not spoken.has_ended:  # between lines of progress it could not be read
            spoken.end(runs[-1].text)
            progress.say("")
        progress.say(progress_line(runs))

    _, runs, stop = repeat_until_known(
        *(request, one, wanted, progress),
        begun=lambda journal: say_resumed(journal, progress),
        report=report,
        heard=spoken if streams else None,
    )
    run = middle(runs)
    folder = runs_folder() / run.id
    page, _ = write_report(run, folder)
    terminal.show(demo_view(runs, run, page, stop, program=terminal.program()))
    fail_unless_done(run, folder)


def present(run: Run, folder: Path, *, as_json: bool, document: Run | None = None) -> None:
    """Write a run's page and, of its tokens, a picture beside it, and show its figures.

    Args:
        document: what to print then, if it says more than the run.

    Raises:
        RunError: the program did not end well; what it left is kept and shown all the same.
    """
    from armload.report.run_page import write_report
    from armload.report.table import run_table

    page, picture = write_report(run, folder)
    if as_json:
        show_document(document or run)
    else:
        terminal.show(run_table(run))
        for label, path in (("page", page), ("picture", picture), ("record", folder / RUN_FILE)):
            if path is None:
                continue
            terminal.show(whole(f"{label:8} {path}"))
    fail_unless_done(run, folder)


def fail_unless_done(run: Run, folder: Path) -> None:
    """Raise what a run's program ended with, if that was not well."""
    if run.exit.status != 0:
        remedy = f"{run.exit.remedy} What was fetched is in {folder}."
        raise RunError(f"{run.board.name}: {run.exit.meaning}", remedy.strip())


def load_charting_meanwhile() -> None:
    """Load the charting libraries beside other work.

    They take a second; while a board is busy, this machine is not.
    """
    threading.Thread(target=_load_charting, daemon=True).start()


def _load_charting() -> None:
    from armload.report.pages import libraries

    with contextlib.suppress(ImportError, OSError):  # writing the page will say it
        importlib.import_module("vl_convert")
        libraries()


def say_resumed(journal: SweepFolder, progress: Progress) -> None:
    """Say which runs of a sweep an earlier command has made."""
    if done := len(journal.entries):
        progress.say(resuming(journal.sweep.id, counted(done, "run")))


class SweepProgress:
    """Says a line for each run of a sweep."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lines: list[SweepLines] = []

    def begin(self, journal: SweepFolder) -> None:
        """Say what is there already."""
        say_resumed(journal, self._progress)
        self._lines.append(SweepLines(journal.sweep, len(journal.entries)))

    def report(
        self, place: SweepPoint, result: Run | ArmloadError, progress: Progress | None = None
    ) -> None:
        """Say how a run ended; before the first, what the columns are."""
        for line in self._lines[0].lines(place, result):
            (progress or self._progress).say(line)


def sweep_and_present(
    request: Request,
    cells: Sequence[Combination],
    reach: Reach,
    *,
    repeats: int,
    warmups: int,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Run a sweep, with a line for each run, and show its cells.

    Raises:
        RunError: no run of it came to its end.
    """
    progress = terminal.progress()
    lines = SweepProgress(progress)
    journal = run_sweep(
        *(request, cells, progress),
        repeats=repeats,
        warmups=warmups,
        reference=reference,
        reach=reach,
        begun=lines.begin,
        report=lines.report,
    )
    need_a_run(show_sweep(journal, as_json=as_json), request.board)


def need_a_run(results: Sequence[CellResult], where: str) -> None:
    """Fail where every run of a sweep failed.

    Args:
        where: the names of its boards.

    Raises:
        RunError: no run came to its end.
    """
    if not any(run.exit.status == 0 for each in results if each.cell for run in each.cell.runs):
        raise RunError(
            f"{where}: no run of the sweep completed.",
            "The table shows why; the runs are kept.",
        )


def show_sweep(journal: SweepFolder, *, as_json: bool) -> list[CellResult]:
    """Show what is done of a sweep, and return what became of its cells."""
    results = cell_results(journal.sweep, *journal.results())
    if as_json:
        show_document(swept_cells(journal.sweep, results))
        return results
    terminal.show(sweep_view(results))
    terminal.show(whole(f"sweep    {journal.folder}"))
    program = terminal.program()
    terminal.show(whole(f"charts   {program} report {journal.sweep.id}"))
    if command := comparison_of(journal.sweep, results, program):
        terminal.show(whole(f"compare  {command}"))
    return results
