"""A board that runs combinations, one run at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from armload.analysis.run import Run
from armload.bench.combination import Combination, programs_of
from armload.build.binary import Binary
from armload.core.progress import Progress
from armload.engines.completion import Completion, settings_of
from armload.engines.job import SweepPoint
from armload.runs.pipeline import Heard, execute
from armload.runs.predicting import foresight
from armload.runs.request import Request
from armload.runs.session import Session, session


class BenchBoard(Protocol):
    """A board that is ready for runs.

    Attributes:
        name: the board's.
        engines: what runs each combination.
    """

    name: str
    engines: Sequence[Completion]

    def run(
        self,
        place: SweepPoint | None = None,
        *,
        plain: Sequence[Run] = (),
        heard: Heard | None = None,
    ) -> Run:
        """Run one combination to its end and keep what comes back.

        Args:
            place: in a sweep, whose cells are the combinations; none for a run of the first one.
            plain: runs of the same without speculation, where it speculates.
            heard: called with what the program has written, where that is known as it comes.

        Raises:
            ArmloadError, KeyboardInterrupt: as for ``execute``.
        """


class BenchBoards(Protocol):
    """How boards are reached."""

    def open(
        self,
        request: Request,
        cells: Sequence[Combination],
        progress: Progress,
        *,
        reference: Run | None,
    ) -> AbstractContextManager[BenchBoard]:
        """Reach a board, and build what is missing.

        Args:
            reference: a run with the expected output.

        Raises:
            ArmloadError: as for ``session``.
        """

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        """Return the points of a sweep that boards have begun for an earlier command.

        Only those are known that no board has to be asked for.

        Raises:
            ArmloadError: nobody answers who would know.
        """


class ConnectedBoard:
    """A board that this machine is connected to."""

    def __init__(
        self,
        where: Session,
        cells: Sequence[Combination],
        progress: Progress,
        reference: Run | None,
    ) -> None:
        self.name = where.board.name
        self.engines: Sequence[Completion] = [cell.engine(where.binaries) for cell in cells]
        self._where = where
        self._progress = progress
        self._reference = reference
        # Only the first can be one that an interrupted command has left on the board.
        self._new = where.request.new

    def run(
        self,
        place: SweepPoint | None = None,
        *,
        plain: Sequence[Run] = (),
        heard: Heard | None = None,
    ) -> Run:
        engine, new = self.engines[place.cell if place else 0], self._new
        self._new = True
        run, _ = execute(
            *(self._where, engine, self._progress),
            new=new,
            place=place,
            reference=self._reference,
            plain=plain,
            foresee=foresight(self._where, engine, self._progress),
            heard=heard,
        )
        return run


class ConnectedBoards:
    """Boards that this machine connects to."""

    def open(
        self,
        request: Request,
        cells: Sequence[Combination],
        progress: Progress,
        *,
        reference: Run | None,
    ) -> AbstractContextManager[BenchBoard]:
        return connected_board(request, cells, progress, reference=reference)

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        del sweep, boards
        return {}


CONNECTED = ConnectedBoards()
"""Has no state."""


@contextmanager
def connected_board(
    request: Request,
    cells: Sequence[Combination],
    progress: Progress,
    *,
    reference: Run | None,
    binaries: Mapping[str, Binary] | None = None,
) -> Iterator[BenchBoard]:
    """Reach a board.

    Args:
        binaries: that were built elsewhere; none to build them.
    """
    settings = [settings_of(cell.plan) for cell in cells]
    with session(
        *(request, programs_of(cells), progress),
        settings=settings,
        takes_groups=True,
        binaries=binaries,
    ) as where:
        yield ConnectedBoard(where, cells, progress, reference)
