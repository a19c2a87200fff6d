"""A board that runs combinations, one run at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from armload.analysis.run import Run
from armload.bench.combination import Combination, programs_of
from armload.core.progress import Progress
from armload.engines.completion import settings_of
from armload.engines.job import SweepPoint
from armload.engines.model_program import ModelProgram
from armload.engines.plan import Plan
from armload.runs.interruption import starts_anew
from armload.runs.pipeline import Heard
from armload.runs.reach import EngineBoard, Reach
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
