"""Boards behind gateways: what runs there is built here, and the runs come back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from uuid import uuid4

from armload.analysis.run import Run
from armload.boards.board import load_board
from armload.core.errors import ConnectError
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.engines.completion import PROGRAM, Completion
from armload.engines.engine import Settings
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.server import SERVER
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet import gateway
from armload.fleet.gateways import FIRST_OFFER_S, Gateways, GoneError
from armload.fleet.orders import Begun, BoardOrder, GatewayTask
from armload.fleet.remote_tasks import RemoteTasks
from armload.fleet.sent_engines import sent_engine, sent_forecast, sent_load
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs import store
from armload.runs.fetch import Pulled, judge_fetched
from armload.runs.hits import measured_hits
from armload.runs.pipeline import Heard
from armload.runs.placing import Deployed
from armload.runs.reach import BoardEngine
from armload.runs.request import EngineSource, Request
from armload.runs.selection import RunSelection
from armload.runs.session import ReachedBoard, built
from armload.runs.swept import SweptRuns
from armload.serving.loads import LoadFolder
from armload.tuning.serving_load import TrialLoad

Work = Literal["open", "run", "deploy", "pull"]


class ThroughGateways:
    """Through the gateways of a scheduler."""

    def __init__(self, gateways: Gateways, progress: Progress) -> None:
        self._gateways = gateways
        self._progress = progress
        self._tasks = RemoteTasks(gateways)

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        found: dict[SweepPoint, str] = {}
        for board in boards:
            with suppress(GoneError, ConnectError):  # the board's own task waits for it
                where = self._gateways.of(board, self._progress, within_s=FIRST_OFFER_S)
                reply = self._gateways.call(where.address, gateway.begun_points, board, sweep)
                found |= dict.fromkeys(Begun.model_validate_json(reply).points, board)
        return found

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
    ) -> Iterator[RemoteBoard]:
        del takes_groups  # a worker offers single boards
        order = _order(request).model_copy(
            update={"settings": tuple(settings), "answers_within_s": answers_within_s}
        )
        task = self._task(request.board, "open").model_copy(update={"order": order})
        found = self._tasks.do(task, {}, progress).found
        assert found is not None  # noqa: S101 - it did not fail
        where = ReachedBoard(
            request=request,
            main_board=load_board(request.board),
            found=found,
            binaries=built(request, programs, progress) if programs else {},
        )
        yield RemoteBoard(self._tasks, where, order, progress)

    def pull(self, board: str, progress: Progress) -> Pulled:
        kept = store.run_folders(RunSelection(boards=[board]))
        known = frozenset(folder.name for folder in kept)
        task = self._task(board, "pull").model_copy(update={"known": known})
        outcome = self._tasks.do(task, {}, progress)
        return Pulled(
            runs=tuple(store.load(runs_folder() / run) for run in outcome.runs),
            lost={run: each.error for run, each in outcome.lost.items()},
        )

    def deploy(
        self, request: Request, model: Model, progress: Progress, *, verify: bool
    ) -> Deployed:
        binary = built(request, (PROGRAM,), progress)[PROGRAM]
        engine, files = sent_engine(Completion(Plan(prompt="x"), binary, model))
        task = self._task(request.board, "deploy").model_copy(
            update={"order": _order(request), "engine": engine, "verify": verify}
        )
        deployed = self._tasks.do(task, files, progress).deployed
        assert deployed is not None  # noqa: S101 - it did not fail
        return deployed

    def _task(self, board: str, work: Work) -> GatewayTask:
        return _task(self._tasks, board, work, f"{work}-{uuid4().hex}")


class RemoteBoard:
    """A board behind a gateway, which has been made ready."""

    def __init__(
        self, tasks: RemoteTasks, where: ReachedBoard, order: BoardOrder, progress: Progress
    ) -> None:
        self.where = where
        self._tasks = tasks
        self._order = order
        self._progress = progress
        self._here = SweptRuns(where.main_board.name)

    def run(
        self,
        engine: BoardEngine,
        *,
        new: bool,
        place: SweepPoint | None = None,
        reference: Run | None = None,
        plain: Sequence[Run] = (),
        heard: Heard | None = None,
        warns: bool = True,
    ) -> Run:
        del heard
        # An earlier command may have been killed before it noted the run in its journal.
        run = self._here.find(place, engine.fingerprint) if place else ""
        if not run:
            sent, files = sent_engine(engine)
            task = self._task("run", self._key(engine, place, new=new)).model_copy(
                update={
                    "engine": sent,
                    "fingerprint": engine.fingerprint,
                    "place": place,
                    "new": new,
                    "warns": warns,
                }
            )
            noted = engine.noted if isinstance(engine, TimedScoring) else None
            run = self._tasks.do(task, files, self._progress, noted=noted).run
        return judge_fetched(run, reference=reference, plain=plain)

    def predict(self, model: Model, header: WholeHeader, plan: Plan) -> Prediction:
        hits = measured_hits(self.where.board.name, model)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / model.path.name
            path.write_bytes(header.content)
            binary = self.where.binaries[PROGRAM]
            sent, files = sent_forecast(binary, model, header, path, plan, hits)
            task = self._task("run", f"predict-{uuid4().hex}")
            task = task.model_copy(update={"engine": sent})
            prediction = self._tasks.do(task, files, self._progress).prediction
        assert prediction is not None  # noqa: S101 - it did not fail
        return prediction

    def load(self, model: Model, one: TrialLoad, place: SweepPoint) -> LoadFolder:
        sent, files = sent_load(self.where.binaries[SERVER], model, one)
        key = f"{place.sweep}-{place.cell}-{place.round}-{one.model_dump_json()}"
        task = self._task("run", f"load-{fingerprint_of([key])}")
        load = self._tasks.do(task.model_copy(update={"engine": sent}), files, self._progress).load
        return LoadFolder.find(load)

    def _key(self, engine: BoardEngine, place: SweepPoint | None, *, new: bool) -> str:
        """Return what the same command, repeated, calls the same run."""
        if place is not None:
            return f"{place.sweep}-{place.cell}-{place.round}-{engine.fingerprint}"
        return f"single-{uuid4().hex if new else engine.fingerprint}"

    def _task(self, work: Work, key: str) -> GatewayTask:
        task = _task(self._tasks, self.where.main_board.name, work, key)
        return task.model_copy(update={"order": self._order})


def _order(request: Request) -> BoardOrder:
    # Whatever is to be compiled is compiled here.
    there = request.model_copy(update=dict(EngineSource()) | {"new": False})
    return BoardOrder(target=load_board(request.board).target, request=there)


def _task(tasks: RemoteTasks, board: str, work: Work, key: str) -> GatewayTask:
    return GatewayTask(
        board=board, key=key, topic=tasks.gateways.topic, store=store.store_id(), work=work
    )
