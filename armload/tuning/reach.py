"""How boards are reached for a search: for runs, and for loads on servers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from armload.core.progress import Progress
from armload.engines.job import SweepPoint
from armload.models.model import Model
from armload.runs.reach import ConnectedBoards, EngineBoard, Reach
from armload.runs.session import Session

if TYPE_CHECKING:
    from armload.serving.loads import LoadFolder
    from armload.tuning.serving_load import TrialLoad


class TuningReach(Reach, Protocol):
    """How boards are reached, for runs and loads."""

    def load(
        self,
        board: EngineBoard,
        model: Model,
        one: TrialLoad,
        place: SweepPoint,
        progress: Progress,
    ) -> LoadFolder:
        """Serve a model on a board, put it under load, and keep the load.

        Args:
            board: as it was opened, with the server.
            place: of the trial; no other of this command has the same one.

        Raises:
            ArmloadError: it cannot be served, or no request succeeded.
        """


class ConnectedForTuning(ConnectedBoards):
    """Boards that this machine connects to."""

    def load(
        self,
        board: EngineBoard,
        model: Model,
        one: TrialLoad,
        place: SweepPoint,
        progress: Progress,
    ) -> LoadFolder:
        # What sends requests would slow down the start of every other command.
        from armload.tuning.serving_load import load_there

        del place  # the load itself says when it began
        assert isinstance(board.where, Session)  # noqa: S101 - it is a board of this class
        return load_there(board.where, model, one, progress)
