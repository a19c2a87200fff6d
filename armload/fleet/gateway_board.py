"""Work on one board, as a gateway does it for commands elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from armload.bench.combination import Combination
from armload.boards.board import load_board
from armload.boards.group import members_of
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.errors import ArmloadError, TransferError, UsageError
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.deploy.follow import ProgressUpdate
from armload.engines.completion import PROGRAM
from armload.engines.prediction import Prediction
from armload.engines.rpc_server import RPC_SERVER
from armload.engines.scorer import Scoring
from armload.engines.server import SERVER, Serving
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet.gateway_tasks import (
    BoardRequirements,
    DeployWork,
    EstimateWork,
    ForecastWork,
    GatewayError,
    LoadWork,
    OpenWork,
    PulledRuns,
    PullWork,
    RunWork,
    TaskOutcome,
    Work,
)
from armload.fleet.received import received_path
from armload.fleet.relay import Relay
from armload.fleet.sent_engines import (
    SentBinary,
    SentCompletion,
    SentDeployment,
    SentEngine,
    SentFile,
    SentForecast,
    SentLoad,
    SentModel,
    SentScoring,
)
from armload.models.gguf import read_model
from armload.models.model import Model, cached_sha256
from armload.models.whole_header import WholeHeader
from armload.runs.assemble import read_job
from armload.runs.fetch import pull
from armload.runs.placing import Deployed, put_there
from armload.runs.predicting import predict_there
from armload.runs.reach import CONNECTED, BoardEngine, ConnectedBoard
from armload.runs.session import Session, session
from armload.runs.swept import SweptRuns
from armload.tuning.serving_load import TrialLoad, load_there


class GatewayBoard:
    """A board of this gateway, which stays open from one run of a command to the next.

    Args:
        board: its name, or that of a group.
        relay: tells the command how the work stands, and stops it.

    Attributes:
        left: the runs of sweeps that lie here.
    """

    def __init__(self, board: str, relay: Relay) -> None:
        self.left = SweptRuns(board)
        self._board = board
        self._relay = relay
        self._open = ExitStack()
        self._opened: tuple[BoardRequirements, Session] | None = None
        self._fingerprints: set[str] = set()

    def do(self, work: Work) -> TaskOutcome[Any]:
        """Do work whose files are here.

        Raises:
            ArmloadError: any of its kinds.
            KeyboardInterrupt: the command wants it stopped; what is there was kept.
        """
        match work:
            case OpenWork():
                self.close()  # the board may have changed since an earlier command
                return TaskOutcome[Probe](result=self._ready(work.requirements).found)
            case RunWork():
                return self._run(work)
            case EstimateWork():
                return self._estimate(work)
            case ForecastWork():
                return self._predict(work)
            case LoadWork():
                return self._load(work)
            case DeployWork():
                return self._deploy(work)
            case PullWork():
                return self._pull(work)

    def _run(self, work: RunWork) -> TaskOutcome[str]:
        if work.place is not None and (left := self.left.find(work.place, work.fingerprint)):
            return TaskOutcome[str](result=left, runs=(left,))
        engine, where = self._for_engine(work.requirements, work.engine)
        self._fingerprints.add(engine.fingerprint)
        board = ConnectedBoard(where, self._relay)
        run = board.run(engine, new=work.new, place=work.place, warns=work.warns).id
        return TaskOutcome[str](result=run, runs=(run,))

    def _estimate(self, work: EstimateWork) -> TaskOutcome[Prediction]:
        engine, where = self._for_engine(work.requirements, work.engine)
        found = ConnectedBoard(where, self._relay).predict_before_run(engine)
        return TaskOutcome[Prediction](result=found)

    def _for_engine(
        self, requirements: BoardRequirements, sent: SentEngine
    ) -> tuple[BoardEngine, Session]:
        engine = received_engine(sent, self._relay)
        binaries = {engine.name: engine.binary}
        if sent.server is not None:
            binaries[RPC_SERVER] = _binary(sent.server)
        return engine, self._with(requirements, binaries)

    def _predict(self, work: ForecastWork) -> TaskOutcome[Prediction]:
        sent = work.forecast
        model, header, binary = received_forecast(sent)
        where = self._with(work.requirements, {PROGRAM: binary})
        found = predict_there(where, model, header, sent.plan, self._relay, hits=sent.hits)
        return TaskOutcome[Prediction](result=found)

    def _load(self, work: LoadWork) -> TaskOutcome[str]:
        model, one, binary = received_load(work.load)
        where = self._with(work.requirements, {SERVER: binary})
        server = Serving(one.plan, binary, model, api_key="")
        self._fingerprints.add(server.fingerprint)
        load = load_there(where, model, one, self._relay).load
        return TaskOutcome[str](
            result=load.id, runs=(load.run,) if load.run else (), loads=(load.id,)
        )

    def _deploy(self, work: DeployWork) -> TaskOutcome[Deployed]:
        model, binary = received_deployment(work.deployment)
        self._check(work.requirements)
        with session(work.requirements.request, (), self._relay) as opened:
            where = replace(opened, binaries={PROGRAM: binary})
            deployed = put_there(where, model, self._relay, verify=work.verify)
        return TaskOutcome[Deployed](result=deployed)

    def _pull(self, work: PullWork) -> TaskOutcome[PulledRuns]:
        pulled = pull(load_board(self._board), self._relay, known=work.known)
        runs = tuple(run.id for run in pulled.runs)
        lost = {run: GatewayError.of(error) for run, error in pulled.lost.items()}
        return TaskOutcome[PulledRuns](result=PulledRuns(runs=runs, lost=lost), runs=runs)

    def has_run(self, run: str) -> bool:
        """Say whether it ran for a command; somebody on the gateway may use the board, too."""
        with contextlib.suppress(ArmloadError):
            return read_job(runs_folder() / run).fingerprint in self._fingerprints
        return False

    def _ready(self, requirements: BoardRequirements) -> Session:
        if self._opened is None or self._opened[0] != requirements:
            self.close()
            self._check(requirements)
            opened = CONNECTED.open(
                *(requirements.request, (), self._relay),
                settings=requirements.settings,
                takes_groups=True,
                answers_within_s=requirements.answers_within_s,
            )
            self._fingerprints = set()
            self._opened = (requirements, self._open.enter_context(opened).where)
        return self._opened[1]

    def _with(self, requirements: BoardRequirements, binaries: Mapping[str, Binary]) -> Session:
        where = self._ready(requirements)
        others = tuple(replace(each, binaries=binaries) for each in where.other_members)
        return replace(where, binaries=binaries, other_members=others)

    def _check(self, requirements: BoardRequirements) -> None:
        same = "Use the same board files on both."
        try:
            boards = members_of(self._board)
        except UsageError as error:
            raise UsageError(f"On the gateway: {error.message}", same) from error
        members = ", ".join(board.name for board in boards)
        for what, here, theirs in (
            ("members", members, ", ".join(requirements.members)),
            ("target", boards[0].target, requirements.target),
        ):
            if here != theirs:
                raise UsageError(
                    f"{self._board}: the gateway's file has {what} {here}, the command's has "
                    f"{theirs}.",
                    same,
                )

    def close(self) -> None:
        self._opened = None
        with contextlib.suppress(ArmloadError):
            self._open.close()


def received_engine(sent: SentEngine, relay: Relay) -> BoardEngine:
    """Return an engine whose files are here.

    Args:
        relay: tells the command of answers as they come.

    Raises:
        TransferError: a file is not what was sent.
        UsageError: the program does not suit model or plan.
    """
    binary, model = _binary(sent.binary), _model(sent.model)
    if isinstance(sent, SentCompletion):
        draft = _model(sent.draft) if sent.draft else None
        one = Combination(model=model, draft=draft, plan=sent.plan)
        return one.engine({one.program: binary})
    items = _whole(sent.items)
    if sent.evaluation:
        return _ReadElsewhere(sent, binary, model, items, relay)
    return Scoring(sent.plan, binary, model, items)


def received_forecast(sent: SentForecast) -> tuple[Model, WholeHeader, Binary]:
    """Return a model without its weights, its header, and the program that would run it.

    Raises:
        TransferError: a file is not what was sent.
    """
    path = _whole(sent.header)
    header = WholeHeader(content=path.read_bytes(), file_bytes=sent.file_bytes)
    return sent.model.model_copy(update={"path": path}), header, _binary(sent.binary)


def received_load(sent: SentLoad) -> tuple[Model, TrialLoad, Binary]:
    """Return a load with its model and server.

    Raises:
        TransferError: a file is not what was sent.
    """
    data = _whole(sent.data) if sent.data else None
    requests = sent.load.requests.model_copy(update={"data": data})
    one = sent.load.model_copy(update={"requests": requests})
    return _model(sent.model), one, _binary(sent.binary)


def received_deployment(sent: SentDeployment) -> tuple[Model, Binary]:
    """Return a model and a program.

    Raises:
        TransferError: a file is not what was sent.
    """
    return _model(sent.model), _binary(sent.binary)


class _ReadElsewhere(TimedScoring):
    """A run for an evaluation whose answers the command grades as they come."""

    def __init__(
        self, sent: SentScoring, binary: Binary, model: Model, items: Path, relay: Relay
    ) -> None:
        super().__init__(
            *(sent.plan, binary, model, items),
            evaluation=sent.evaluation,
            note=lambda _: "",
            max_time_s=sent.max_time_s,
            keeps_forecast=sent.keeps_forecast,
        )
        self._relay = relay

    def note(self, now: ProgressUpdate) -> str:
        """Tell the command of the answers; it knows what to say of them."""
        self._relay.lines(now.new_lines)
        return ""


def _binary(sent: SentBinary) -> Binary:
    return sent.binary.model_copy(update={"path": _whole(sent.file)})


def _model(sent: SentModel) -> Model:
    first, *_ = [_whole(file) for file in sent.files]
    return read_model(first)


def _whole(file: SentFile) -> Path:
    path = received_path(file)
    if not path.is_file() or cached_sha256(path, Silent()) != file.sha256:
        path.unlink(missing_ok=True)
        raise TransferError(
            f"{path} on the gateway is not what was sent.", "Repeat the command to send it again."
        )
    return path
