"""Boards that run engines, and how they are reached: over connections from here, or otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import Generic, Protocol, TypeVar

from armload.analysis.run import Run
from armload.boards.board import RealReach
from armload.boards.connect import connect
from armload.boards.group import members_of
from armload.core.progress import Progress, Silent
from armload.deploy.retry import Retry, with_retries
from armload.engines.completion import Completion
from armload.engines.engine import Settings
from armload.engines.job import SweepPoint
from armload.engines.model_program import ModelProgram
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.scorer import Scoring
from armload.engines.watched.asked import AskedProgram
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs.depth import drop_unsound, fill_context
from armload.runs.media import MediaQuestion
from armload.runs.pipeline import Heard, execute
from armload.runs.predicting import (
    measured_hits,
    predict_there,
    predictor_of,
)
from armload.runs.request import Request
from armload.runs.session import ReachedBoard, Session, leased_boards, session
from armload.runs.spreading import spread_over

BoardEngine = ModelProgram[Plan] | Scoring | AskedProgram
"""What runs to its end by itself, with a model."""


class EngineBoard(Protocol):
    """A board that is ready for runs, one at a time."""

    @property
    def where(self) -> ReachedBoard:
        """The board, with the programs that were asked for."""

    def run(
        self,
        engine: BoardEngine,
        *,
        new: bool,
        place: SweepPoint | None = None,
        reference: Run | None = None,
        baseline: Sequence[Run] = (),
        heard: Heard | None = None,
        warns: bool = True,
    ) -> Run:
        """Run an engine to its end and keep what comes back.

        Args:
            new: start another run, even if an interrupted command left the same one.
            place: of the run in a sweep. No other run of this command has the same one; where the
                gateway of the board has done it for an earlier command, that run is the answer.
            reference: a run with the expected output.
            baseline: runs of the same without speculation, where it speculates.
            heard: called with what the program has written, where that is known as it comes.
            warns: say beforehand where it would be slow.

        Raises:
            ArmloadError, KeyboardInterrupt: as for ``execute``.
        """

    def predict(
        self, model: Model, header: WholeHeader, plan: Plan, media: MediaQuestion | None = None
    ) -> Prediction:
        """Predict a run after timing what the model computes.

        The completion program is among those that were asked for.

        Args:
            media: as for ``predict_there``.
        """

    def predict_before_run(self, engine: BoardEngine) -> Prediction | None:
        """Predict one continuation as ``run`` does before it copies the model; nothing is said."""


OpenedBoard = TypeVar("OpenedBoard", bound=EngineBoard, covariant=True)


class BoardReach(Protocol[OpenedBoard]):
    """How boards are reached, and what they can do then."""

    def open(
        self,
        request: Request,
        programs: Sequence[str],
        progress: Progress,
        *,
        settings: Sequence[Settings] = (),
        takes_groups: bool = False,
        answers_within_s: float | None = None,
    ) -> AbstractContextManager[OpenedBoard]:
        """Reach a board, and build what is missing.

        Args:
            settings, takes_groups: as for ``session``.
            answers_within_s: give up on a real board that does not answer within that time; none
                for the usual limit.

        Raises:
            ArmloadError: as for ``session``.
        """

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        """Return the points of a sweep that boards have begun for an earlier command.

        Only those are known that no board has to be asked for.

        Raises:
            ArmloadError: nobody answers who would know.
        """


Reach = BoardReach[EngineBoard]
"""How boards are reached for runs."""


class ConnectedBoard:
    """A board that this machine is connected to."""

    def __init__(self, where: Session, progress: Progress) -> None:
        self.where = where
        self._progress = progress

    def run(
        self,
        engine: BoardEngine,
        *,
        new: bool,
        place: SweepPoint | None = None,
        reference: Run | None = None,
        baseline: Sequence[Run] = (),
        heard: Heard | None = None,
        warns: bool = True,
    ) -> Run:
        wanted = engine.forecastable
        said = self._progress if warns else Silent()
        predictor = predictor_of(self.where, wanted, said) if wanted else None
        if isinstance(engine, Completion):
            fill_context(self.where, engine, self._progress)
        run, _ = execute(
            *(self.where, engine, self._progress),
            new=new,
            place=place,
            reference=reference,
            baseline=baseline,
            predictor=predictor,
            heard=heard,
        )
        if isinstance(engine, Completion):
            drop_unsound(self.where, engine, run)
        return run

    def predict(
        self, model: Model, header: WholeHeader, plan: Plan, media: MediaQuestion | None = None
    ) -> Prediction:
        hits = measured_hits(self.where.board.name, model)
        return predict_there(
            *(self.where, model, header, plan, self._progress), hits=hits, media=media
        )

    def predict_before_run(self, engine: BoardEngine) -> Prediction | None:
        where, divided, wanted = self.where, None, engine.forecastable
        if wanted is None:
            return None
        if where.group is not None:
            with leased_boards(where, self._progress):  # what is measured is kept for the run
                divided = spread_over(where, engine, self._progress)
        predict = predictor_of(where, wanted.model_copy(update={"is_kept": True}), Silent())
        return predict(where.found, engine.memory, divided)


class ConnectedBoards(Generic[OpenedBoard]):
    """Boards that this machine connects to.

    Args:
        opened: makes one of its session.
    """

    def __init__(self, opened: Callable[[Session, Progress], OpenedBoard]) -> None:
        self._opened = opened

    @contextmanager
    def open(
        self,
        request: Request,
        programs: Sequence[str],
        progress: Progress,
        *,
        settings: Sequence[Settings] = (),
        takes_groups: bool = False,
        answers_within_s: float | None = None,
    ) -> Iterator[OpenedBoard]:
        if answers_within_s is not None:
            for board in members_of(request.board):
                if isinstance(board.reach, RealReach):
                    with closing(connect(board, progress)) as host:
                        with_retries(partial(host.run, ":"), Retry(unanswered_s=answers_within_s))
        with session(
            *(request, programs, progress), settings=settings, takes_groups=takes_groups
        ) as where:
            yield self._opened(where, progress)

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        del sweep, boards
        return {}


CONNECTED = ConnectedBoards(ConnectedBoard)
