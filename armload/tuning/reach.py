"""How boards are reached for a search: for runs, and for loads on servers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from armload.core.progress import Progress
from armload.engines.job import SweepPoint
from armload.models.model import Model
from armload.runs.reach import BoardReach, ConnectedBoard, EngineBoard
from armload.runs.session import Session

if TYPE_CHECKING:
    from armload.serving.loads import LoadFolder
    from armload.tuning.request import TrialLoad


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
        del place  # the load itself says when it began
        return load_there(self.where, model, one, self._progress)


def load_there(where: Session, model: Model, one: TrialLoad, progress: Progress) -> LoadFolder:
    """Serve a model on a board that is reached already, put it under load, and keep the load."""
    # What sends requests would slow down the start of every other command.
    from armload.serving.arrivals import Arrivals
    from armload.serving.dialects.registry import dialect_named
    from armload.serving.load_runner import LoadRunner
    from armload.serving.readiness import check_service
    from armload.serving.service import target_of_service
    from armload.serving.starting import served_there
    from armload.serving.target import LoadLevel, StopCondition
    from armload.serving.tokenizer import ServiceApi
    from armload.serving.workload import read_lengths, workload_of
    from armload.tuning.request import DIALECT

    wanted = one.requests
    with served_there(where, model, one.plan, progress, new=False) as service:
        target = target_of_service(service, dialect_named(DIALECT))
        work = workload_of(
            ServiceApi(target.url, target.api_key),
            wanted.data,
            prompt=read_lengths("prompt-tokens", wanted.prompt_tokens),
            answer=read_lengths("n-predict", wanted.n_predict) if wanted.n_predict else None,
            stops_at_end=False,
            seed=one.seed,
            most=one.count,
            progress=progress,
        )
        stop = StopCondition(requests=one.count, timeout_s=wanted.timeout_s)
        check_service(target, work.request(0), stop.timeout_s)
        loading = LoadRunner(
            *(target, work, Arrivals(kind="seed"), one.seed, progress), wanted.objectives
        )
        level = LoadLevel(concurrency=service.plan.slots)
        if wanted.rate is not None:
            level = LoadLevel(rate=wanted.rate)
        return loading.point(level, stop)
