"""Boards behind gateways: what runs there is built here, and the runs come back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from armload.analysis.run import Run
from armload.boards.board import is_group, load_board
from armload.boards.group import load_group, members_of
from armload.boards.probe import Probe
from armload.core.errors import ConnectError
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress, Silent
from armload.core.workspace import runs_folder
from armload.engines.completion import PROGRAM
from armload.engines.engine import Settings
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.rpc_server import RPC_SERVER
from armload.engines.server import SERVER
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet import gateway
from armload.fleet.gateway_tasks import (
    Begun,
    BoardRequirements,
    DeployWork,
    EstimateWork,
    FolderName,
    ForecastWork,
    LoadWork,
    OpenWork,
    PulledRuns,
    PullWork,
    RunWork,
    TaskOutcome,
    read_sent,
)
from armload.fleet.gateways import FIRST_OFFER_S, Gateways, GoneError
from armload.fleet.remote_tasks import RemoteTasks
from armload.fleet.sent_engines import (
    Files,
    SentEngine,
    sent_deployment,
    sent_engine,
    sent_forecast,
    sent_load,
)
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs import store
from armload.runs.fetch import Pulled, judge_fetched
from armload.runs.pipeline import Heard
from armload.runs.placing import Deployed
from armload.runs.predicting import measured_hits, predict_and_warn
from armload.runs.reach import BoardEngine
from armload.runs.request import EngineSource, Request
from armload.runs.selection import RunSelection
from armload.runs.session import ReachedBoard, built, with_servers
from armload.runs.swept import SweptRuns
from armload.serving.loads import LoadFolder
from armload.tuning.serving_load import TrialLoad


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
                found |= dict.fromkeys(read_sent(Begun, reply).points, board)
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
        if not takes_groups:
            load_board(request.board)  # a group is refused
        group = load_group(request.board) if is_group(request.board) else None
        main_board, *_ = members_of(request.board)
        requirements = _requirements(request).model_copy(
            update={"settings": tuple(settings), "answers_within_s": answers_within_s}
        )
        found = self._tasks.do(
            *(request.board, OpenWork(requirements=requirements), {}, progress), TaskOutcome[Probe]
        )
        of_main = request.model_copy(update={"board": main_board.name})
        needed = with_servers(programs, group)
        where = ReachedBoard(
            request=request,
            main_board=main_board,
            found=found,
            binaries=built(of_main, needed, progress) if needed else {},
            group=group,
        )
        yield RemoteBoard(self._tasks, where, requirements, progress)

    def pull(self, board: str, progress: Progress) -> Pulled:
        load_board(board)  # a group is refused
        kept = store.run_folders(RunSelection(boards=[board]))
        known = frozenset(folder.name for folder in kept)
        pulled = self._tasks.do(
            *(board, PullWork(known=known), {}, progress), TaskOutcome[PulledRuns]
        )
        return Pulled(
            runs=tuple(store.load(runs_folder() / run) for run in pulled.runs),
            lost={run: each.error for run, each in pulled.lost.items()},
        )

    def deploy(
        self, request: Request, model: Model, progress: Progress, *, verify: bool
    ) -> Deployed:
        binary = built(request, (PROGRAM,), progress)[PROGRAM]
        sent, files = sent_deployment(binary, model)
        work = DeployWork(requirements=_requirements(request), deployment=sent, verify=verify)
        return self._tasks.do(request.board, work, files, progress, TaskOutcome[Deployed])


class RemoteBoard:
    """A board behind a gateway, which has been made ready."""

    def __init__(
        self,
        tasks: RemoteTasks,
        where: ReachedBoard,
        requirements: BoardRequirements,
        progress: Progress,
    ) -> None:
        self.where = where
        self._tasks = tasks
        self._requirements = requirements
        self._progress = progress
        self._name = where.board.name
        self._here = SweptRuns(self._name)

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
        del heard
        # An earlier command may have been killed before it noted the run in its journal.
        run = self._here.find(place, engine.fingerprint) if place else ""
        if not run:
            sent, files = self._sent(engine)
            work = RunWork(
                requirements=self._requirements,
                engine=sent,
                fingerprint=engine.fingerprint,
                place=place,
                new=new,
                warns=warns,
            )
            run = self._tasks.do(
                *(self._name, work, files, self._progress, TaskOutcome[FolderName]),
                key=_key(engine, place, new=new),
                noted=engine.noted if isinstance(engine, TimedScoring) else None,
            )
        return judge_fetched(run, reference=reference, baseline=baseline)

    def predict(self, model: Model, header: WholeHeader, plan: Plan) -> Prediction:
        hits = measured_hits(self.where.board.name, model)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / model.path.name
            path.write_bytes(header.content)
            binary = self.where.binaries[PROGRAM]
            sent, files = sent_forecast(binary, model, header, path, plan, hits)
            work = ForecastWork(requirements=self._requirements, forecast=sent)
            return self._tasks.do(self._name, work, files, self._progress, TaskOutcome[Prediction])

    def predict_before_run(self, engine: BoardEngine) -> Prediction | None:
        where = self.where
        if where.group is not None:
            sent, files = self._sent(engine)
            work = EstimateWork(requirements=self._requirements, engine=sent)
            return self._tasks.do(self._name, work, files, self._progress, TaskOutcome[Prediction])
        return predict_and_warn(
            *(where, engine.model, engine.continuation, where.found, engine.memory, Silent())
        )

    def _sent(self, engine: BoardEngine) -> tuple[SentEngine, Files]:
        return sent_engine(engine, self.where.binaries.get(RPC_SERVER))

    def load(self, model: Model, one: TrialLoad, place: SweepPoint) -> LoadFolder:
        sent, files = sent_load(self.where.binaries[SERVER], model, one)
        key = f"{place.sweep}-{place.cell}-{place.round}-{one.model_dump_json()}"
        load = self._tasks.do(
            *(
                self._name,
                LoadWork(requirements=self._requirements, load=sent),
                files,
                self._progress,
            ),
            TaskOutcome[FolderName],
            key=fingerprint_of([key]),
        )
        return LoadFolder.find(load)


def _requirements(request: Request) -> BoardRequirements:
    # Whatever is to be compiled is compiled here.
    there = request.model_copy(update=dict(EngineSource()) | {"new": False})
    boards = members_of(request.board)
    members = tuple(board.name for board in boards)
    return BoardRequirements(target=boards[0].target, members=members, request=there)


def _key(engine: BoardEngine, place: SweepPoint | None, *, new: bool) -> str:
    """Return what the same command, repeated, calls the same run."""
    if place is not None:
        return f"{place.sweep}-{place.cell}-{place.round}-{engine.fingerprint}"
    return f"single-{uuid4().hex if new else engine.fingerprint}"
