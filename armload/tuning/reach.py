"""How boards are reached for a search: for runs, and for loads on servers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from armload.engines.job import SweepPoint
from armload.models.model import Model
from armload.runs.reach import BoardReach, ConnectedBoard, EngineBoard

if TYPE_CHECKING:
    from armload.serving.loads import LoadFolder
    from armload.tuning.serving_load import TrialLoad


class TuningBoard(EngineBoard, Protocol):
    """A board that is ready for runs and loads, one at a time."""

    def load(self, model: Model, one: TrialLoad, place: SweepPoint) -> LoadFolder:
        """Serve a model, put it under load, and keep the load.

        The server is among the programs that were asked for.

        Args:
            place: of the trial; no other of this command has the same one.

        Raises:
            ArmloadError: it cannot be served, or no request succeeded.
        """


TuningReach = BoardReach[TuningBoard]
"""How boards are reached, for runs and loads."""


class ConnectedTuningBoard(ConnectedBoard):
    """A board that this machine is connected to."""

    def load(self, model: Model, one: TrialLoad, place: SweepPoint) -> LoadFolder:
        # What sends requests would slow down the start of every other command.
        from armload.tuning.serving_load import load_there

        del place  # the load itself says when it began
        return load_there(self.where, model, one, self._progress)
