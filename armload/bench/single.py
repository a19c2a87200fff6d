"""One combination of what is listed: a single run, or one repeated until its median is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from armload.analysis.repeats import Precision, Stop, judged_together
from armload.analysis.run import Run
from armload.bench.board import BenchBoard, bench_board
from armload.bench.combination import Combination
from armload.bench.sweep import SweepEntry, SweepFolder, new_sweep, resume_or_begin
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.engines.job import SweepPoint
from armload.runs.baseline import find_baseline
from armload.runs.pipeline import Heard
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request

Report = Callable[[Sequence[Run]], None]
"""Called with the runs so far after each of them."""


def run_once(
    request: Request,
    one: Combination,
    progress: Progress,
    *,
    reference: Run | None = None,
    reach: Reach = CONNECTED,
) -> tuple[Run, Path]:
    """Run a combination on a board and keep what comes back; return it with its folder.

    Args:
        request: where, and with which source.
        reference: a run with the expected output.
        reach: how the board is reached.
    """
    with bench_board(reach, request, (one,), progress, reference=reference) as board:
        run = board.run(baseline=_baseline(board))
    return run, runs_folder() / run.id


def repeat_until_known(
    request: Request,
    one: Combination,
    wanted: Precision,
    progress: Progress,
    *,
    reference: Run | None = None,
    reach: Reach = CONNECTED,
    begun: Callable[[SweepFolder], None] = lambda _: None,
    report: Report,
    heard: Heard | None = None,
) -> tuple[SweepFolder, list[Run], Stop]:
    """Run a combination again and again until its median time per token is known exactly enough.

    The runs are a sweep of one cell that grows; what an interrupted command has done of it is not
    done again. Return it with its runs, judged together, and why it has ended.

    Args:
        wanted: how exactly, and in how long.
        reach: how the board is reached.
        begun: is shown the sweep before its first run.
        report: called with the runs after each of them.
        heard: called with the text of the first run, whenever it has grown.
    """
    with bench_board(reach, request, (one,), progress, reference=reference) as board:
        baseline = _baseline(board)
        sweep = new_sweep([board.name], board.engines, repeats=1, warmups=0, precision=wanted)
        journal = resume_or_begin(sweep, progress, new=request.new)
        with journal.locked(progress):
            begun(journal)
            runs = journal.results()[0].get(0, [])
            while (stop := journal.stop(wanted, runs)) is None:
                number = len(journal.entries)
                place = SweepPoint(
                    sweep=journal.sweep.id, cell=0, round=number, precision=wanted.share
                )
                began_s = time.monotonic()
                run = board.run(place, baseline=baseline, heard=None if runs else heard)
                took_s = time.monotonic() - began_s
                journal.append(SweepEntry(cell=0, round=number, run=run.id, took_s=took_s))
                runs.append(run)
                report(runs)
    return journal, judged_together(runs), stop


def _baseline(board: BenchBoard) -> list[Run]:
    (engine,) = board.engines
    return [] if engine.plan.speculate is None else find_baseline(engine.subject, board.name)
