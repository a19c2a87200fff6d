"""Boards behind gateways: what runs there is built here, and the runs come back."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from armload.analysis.run import Run
from armload.boards.board import Board, is_group, load_board
from armload.boards.group import load_group, members_of
from armload.core.errors import ConnectError
from armload.core.files import sha256_of
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress, Silent
from armload.core.workspace import runs_folder
from armload.engines.completion import PROGRAM
from armload.engines.engine import Settings
from armload.engines.job import SweepPoint
from armload.engines.perception import PERCEIVING_PROGRAM
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.rpc_server import RPC_SERVER
from armload.engines.server import SERVER
from armload.engines.watched.asked import AskedProgram
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet.events import Noted
from armload.fleet.files import Files, SentBinary, SentFile
from armload.fleet.gateway import Begun, Gateway
from armload.fleet.gateway_board import BoardRequirements
from armload.fleet.gateway_host import relayed
from armload.fleet.gateways import FIRST_OFFER_S, Gateways, GoneError
from armload.fleet.messages import Result, read_sent
from armload.fleet.operations import (
    BoardOperation,
    Deploy,
    OpenBoard,
    Predict,
    PredictRun,
    Pull,
    RunEngine,
    RunLoad,
)
from armload.fleet.remote_tasks import RemoteTasks
from armload.fleet.sent_engines import sent_engine
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs import store
from armload.runs.fetch import Pulled, judge_fetched
from armload.runs.folders import run_folders
from armload.runs.media import MediaQuestion, question_of
from armload.runs.pipeline import Heard
from armload.runs.placing import Deployed
from armload.runs.predicting import measured_hits, predict_and_warn
from armload.runs.reach import BoardEngine
from armload.runs.request import EngineSource, Request
from armload.runs.selection import RunSelection
from armload.runs.session import ReachedBoard, built, with_servers
from armload.runs.swept import SweptRuns
from armload.serving.loads import LoadFolder
from armload.tuning.request import TrialLoad


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
                reply = self._gateways.call(where.address, Gateway.begun, board, sweep)
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
        boards = members_of(request.board)
        requirements = BoardRequirements(
            target=boards[0].target,
            members=tuple(board.name for board in boards),
            # Whatever is to be compiled is compiled here.
            request=request.model_copy(update=dict(EngineSource()) | {"new": False}),
            settings=tuple(settings),
            answers_within_s=answers_within_s,
        )
        opening = OpenBoard(requirements=requirements)
        found = self._tasks.do(request.board, opening, progress)
        of_main = request.model_copy(update={"board": boards[0].name})
        needed = with_servers(programs, group)
        where = ReachedBoard(
            request=request,
            main_board=boards[0],
            found=found,
            binaries=built(of_main, needed, progress) if needed else {},
            group=group,
        )
        left = SweptRuns(request.board)
        yield RemoteBoard(where, self._tasks, requirements, progress, left)

    def pull(self, board: str, progress: Progress) -> Pulled:
        load_board(board)  # a group is refused
        kept = run_folders(RunSelection(boards=[board]))
        known = frozenset(folder.name for folder in kept)
        pulled = self._tasks.do(board, Pull(known=known), progress)
        return Pulled(
            runs=tuple(store.load(runs_folder() / run) for run in pulled.runs),
            lost={run: each.error for run, each in pulled.lost.items()},
        )

    def board(self, name: str, progress: Progress) -> Board:
        return relayed(load_board(name), self._tasks, progress)


@dataclass(frozen=True)
class RemoteBoard:
    """A board behind a gateway, which has been made ready."""

    where: ReachedBoard
    tasks: RemoteTasks
    requirements: BoardRequirements
    progress: Progress
    left: SweptRuns

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
        key = f"single-{uuid4().hex if new else engine.fingerprint}"
        run = ""
        if place is not None:
            key = f"{place.sweep}-{place.cell}-{place.round}-{engine.fingerprint}"
            # An earlier command may have been killed before it noted the run in its journal.
            run = self.left.find(place, engine.fingerprint)
        if not run:
            files = Files()
            sent = sent_engine(engine, files)
            running = RunEngine(
                requirements=self.requirements,
                binaries=self._programs_of(engine, files),
                engine=sent,
                fingerprint=engine.fingerprint,
                place=place,
                new=new,
                warns=warns,
            )
            noted = engine.noted if isinstance(engine, TimedScoring) else None
            run = self._done(running, files, key=key, noted=noted)
        return judge_fetched(run, reference=reference, baseline=baseline)

    def predict(
        self, model: Model, header: WholeHeader, plan: Plan, media: MediaQuestion | None = None
    ) -> Prediction:
        with tempfile.TemporaryDirectory() as scratch:
            files, folder = Files(), Path(scratch)
            predicting = Predict(
                requirements=self.requirements,
                binaries=self._programs(files, PROGRAM, PERCEIVING_PROGRAM),
                model=model.model_copy(update={"path": Path(model.path.name), "parts": ()}),
                header=_sent_header(header, folder / model.path.name, files),
                file_bytes=header.file_bytes,
                plan=plan,
                hits=measured_hits(self.where.board.name, model),
                media=media.need if media else None,
                projector=_sent_header(media.header, folder / media.need.projector, files)
                if media
                else None,
                projector_bytes=media.header.file_bytes if media else 0,
            )
            return self._done(predicting, files)

    def predict_before_run(self, engine: BoardEngine) -> Prediction | None:
        where = self.where
        wanted = engine.forecastable
        if wanted is None:
            return None
        if where.group is None:
            return predict_and_warn(
                *(where, wanted.model, wanted.plan, where.found, engine.memory, Silent()),
                media=question_of(wanted),
            )
        files = Files()
        sent = sent_engine(engine, files)
        predicting = PredictRun(
            requirements=self.requirements,
            binaries=self._programs_of(engine, files),
            engine=sent,
        )
        return self._done(predicting, files)

    def load(self, model: Model, one: TrialLoad, place: SweepPoint) -> LoadFolder:
        files, data = Files(), one.requests.data
        loading = RunLoad(
            requirements=self.requirements,
            binaries=self._programs(files, SERVER),
            model=files.model(model),
            load=one,
            data=files.file(data, sha256_of(data)) if data else None,
        )
        key = f"{place.sweep}-{place.cell}-{place.round}-{one.model_dump_json()}"
        return LoadFolder.find(self._done(loading, files, key=fingerprint_of([key])))

    def deploy(self, model: Model, *, verify: bool) -> Deployed:
        files = Files()
        deploying = Deploy(
            requirements=self.requirements,
            binaries=self._programs(files, PROGRAM),
            model=files.model(model),
            verify=verify,
        )
        return self._done(deploying, files)

    def _programs_of(self, engine: BoardEngine, files: Files) -> Mapping[str, SentBinary]:
        own = () if isinstance(engine, AskedProgram) else (engine.binary.program,)
        return self._programs(files, engine.name, *own, RPC_SERVER)

    def _programs(self, files: Files, *names: str) -> Mapping[str, SentBinary]:
        """Return those of the programs that were asked for; ``RPC_SERVER`` is there for groups."""
        built = self.where.binaries
        return {name: files.binary(built[name]) for name in names if name in built}

    def _done(
        self,
        operation: BoardOperation[Result],
        files: Files,
        *,
        key: str = "",
        noted: Noted | None = None,
    ) -> Result:
        board = self.where.board.name
        return self.tasks.do(board, operation, self.progress, files=files, key=key, noted=noted)


def _sent_header(header: WholeHeader, path: Path, files: Files) -> SentFile:
    path.write_bytes(header.content)
    return files.file(path, hashlib.sha256(header.content).hexdigest())
