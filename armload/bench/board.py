"""A board that runs combinations: each once, or one again until its median is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from armload.analysis.repeats import Precision, Stop, judged_together
from armload.analysis.run import Run
from armload.bench.combination import Combination, programs_of
from armload.bench.sweep import SweepEntry, SweepFolder, new_sweep, resume_or_begin
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.engines.completion import settings_of
from armload.engines.job import SweepPoint
from armload.engines.model_program import ModelProgram
from armload.engines.plan import Plan
from armload.runs.baseline import find_baseline
from armload.runs.interruption import starts_anew
from armload.runs.pipeline import Heard
from armload.runs.reach import CONNECTED, EngineBoard, Reach
from armload.runs.request import Request


class BenchBoard:
    """A board that is ready for runs of combinations.

    Attributes:
        name: what its runs are said to run on: the board, or its group.
        engines: what runs each combination.
    """

    def __init__(
        self, board: EngineBoard, cells: Sequence[Combination], reference: Run | None
    ) -> None:
        self.name = board.where.board.name
        self.engines: Sequence[ModelProgram[Plan]] = [
            cell.engine(board.where.binaries) for cell in cells
        ]
        self._board = board
        self._reference = reference
        self._new = starts_anew(new=board.where.request.new)

    def run(
        self,
        place: SweepPoint | None = None,
        *,
        baseline: Sequence[Run] = (),
        heard: Heard | None = None,
    ) -> Run:
        """Run one combination to its end and keep what comes back.

        Args:
            place: in a sweep, whose cells are the combinations; none for a run of the first one.
            baseline: runs of the same without speculation, where it speculates.
            heard: called with what the program has written, where that is known as it comes.

        Raises:
            ArmloadError, KeyboardInterrupt: as for ``execute``.
        """
        return self._board.run(
            self.engines[place.cell if place else 0],
            new=next(self._new),
            place=place,
            reference=self._reference,
            baseline=baseline,
            heard=heard,
        )


@contextmanager
def bench_board(
    reach: Reach,
    request: Request,
    cells: Sequence[Combination],
    progress: Progress,
    *,
    reference: Run | None,
) -> Iterator[BenchBoard]:
    """Reach a board for runs of combinations, and build what is missing.

    Args:
        reference: a run with the expected output.
    """
    if any(cell.plan.device is not None for cell in cells):
        request = request.model_copy(update={"vulkan": True})
    with reach.open(
        *(request, programs_of(cells), progress),
        settings=[settings_of(cell.plan) for cell in cells],
        takes_groups=True,
    ) as board:
        yield BenchBoard(board, cells, reference)


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
