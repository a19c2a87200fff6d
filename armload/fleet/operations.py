"""What a command can have done on a board behind a gateway: each operation is declared here once.

An operation is a value: its fields are what the command sends, and ``do`` is how the gateway does
it, and what it returns, with the same functions as a command that reaches the board itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Generic, Literal, Self, get_type_hints

from pydantic import Field

from armload.analysis.board_resources import MeasuredHits
from armload.boards.board import load_board
from armload.boards.probe import Probe
from armload.core.values import Value
from armload.engines.job import SweepPoint
from armload.engines.media import MediaNeed
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.server import SERVER, Serving
from armload.fleet.files import SentBinary, SentFile, SentModel
from armload.fleet.gateway_board import BoardRequirements, GatewayBoard
from armload.fleet.messages import FolderName, GatewayError, Result, TaskOutcome
from armload.fleet.sent_engines import SentEngine
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs.fetch import pull
from armload.runs.media import MediaQuestion
from armload.runs.placing import Deployed, put_in_place
from armload.runs.predicting import predict_there
from armload.runs.reach import ConnectedBoard
from armload.tuning.reach import load_there
from armload.tuning.request import TrialLoad


class BoardOperation(Value, Generic[Result]):
    """Something that a board does."""

    kind: str

    @abstractmethod
    def do(self, board: GatewayBoard) -> TaskOutcome[Result]:
        """Do it on a gateway, where its files are.

        Raises:
            ArmloadError: any of its kinds.
            KeyboardInterrupt: the command wants it stopped; what is there was kept.
        """

    def told_again(self) -> Self:
        """Return it to be told once more: what it made may have begun, and is found then."""
        return self

    @classmethod
    def outcome(cls) -> type[TaskOutcome[Result]]:
        """Return what is accepted of a gateway that has done it: what ``do`` returns."""
        declared: type[TaskOutcome[Result]] = get_type_hints(cls.do)["return"]
        return declared


class OnOpenBoard(BoardOperation[Result], Generic[Result]):
    """An operation of a board that is ready for it.

    Attributes:
        binaries: the programs that it needs, by their names.
    """

    requirements: BoardRequirements
    binaries: Mapping[str, SentBinary] = {}

    def ready(self, board: GatewayBoard) -> ConnectedBoard:
        return board.ready(self.requirements, self.binaries)


class OpenBoard(OnOpenBoard[Probe]):
    """The board is made ready for further operations; the result is what it reported."""

    kind: Literal["open"] = "open"

    def do(self, board: GatewayBoard) -> TaskOutcome[Probe]:
        board.close()  # it may have changed since an earlier command
        return TaskOutcome(result=self.ready(board).where.found)


class RunEngine(OnOpenBoard[FolderName]):
    """An engine is run; the result is the id of the run.

    Attributes:
        fingerprint: of the engine.
        place: in a sweep; none for a single run.
        new: what an interrupted command has left on the board is no answer.
        warns: say beforehand where the run would be slow.
    """

    kind: Literal["run"] = "run"
    engine: SentEngine
    fingerprint: str
    place: SweepPoint | None = None
    new: bool = False
    warns: bool = True

    def told_again(self) -> Self:
        return self.model_copy(update={"new": False})

    def do(self, board: GatewayBoard) -> TaskOutcome[FolderName]:
        run = board.left.find(self.place, self.fingerprint) if self.place else ""
        if not run:
            opened = self.ready(board)
            engine = self.engine.received(opened.where.binaries, board.relay)
            board.fingerprints.add(self.fingerprint)
            run = opened.run(engine, new=self.new, place=self.place, warns=self.warns).id
        return TaskOutcome(result=run, runs=(run,))


class PredictRun(OnOpenBoard[Prediction]):
    """A run is predicted as before it begins, on a group; the result is the prediction."""

    kind: Literal["estimate"] = "estimate"
    engine: SentEngine

    def do(self, board: GatewayBoard) -> TaskOutcome[Prediction]:
        opened = self.ready(board)
        engine = self.engine.received(opened.where.binaries, board.relay)
        return TaskOutcome(result=opened.predict_before_run(engine))


class Predict(OnOpenBoard[Prediction]):
    """A run is predicted after timing what the model computes; no weights are sent.

    Attributes:
        model: its path is of no meaning.
        header: of the model, with ``file_bytes`` of the file with its weights.
        hits: of streamed experts, in an earlier run.
        media: an image or a sound before the prompt, with the header of its projector, and
            ``projector_bytes`` of that file.
    """

    kind: Literal["forecast"] = "forecast"
    model: Model
    header: SentFile
    file_bytes: int
    plan: Plan
    hits: MeasuredHits | None = None
    media: MediaNeed | None = None
    projector: SentFile | None = None
    projector_bytes: int = 0

    def do(self, board: GatewayBoard) -> TaskOutcome[Prediction]:
        where = self.ready(board).where
        path = self.header.received()
        header = WholeHeader(content=path.read_bytes(), file_bytes=self.file_bytes)
        model = self.model.model_copy(update={"path": path})
        media = None
        if self.media and self.projector:
            content = self.projector.received().read_bytes()
            projector = WholeHeader(content=content, file_bytes=self.projector_bytes)
            media = MediaQuestion(need=self.media, header=projector)
        found = predict_there(
            *(where, model, header, self.plan, board.relay), hits=self.hits, media=media
        )
        return TaskOutcome(result=found)


class RunLoad(OnOpenBoard[FolderName]):
    """A server is started and put under load; the result is the id of the load.

    Attributes:
        load: the path of its data is of no meaning.
        data: its requests; none for synthetic ones.
    """

    kind: Literal["load"] = "load"
    model: SentModel
    load: TrialLoad
    data: SentFile | None = None

    def do(self, board: GatewayBoard) -> TaskOutcome[FolderName]:
        where = self.ready(board).where
        model = self.model.received()
        data = self.data.received() if self.data else None
        requests = self.load.requests.model_copy(update={"data": data})
        one = self.load.model_copy(update={"requests": requests})
        server = Serving(one.plan, where.binaries[SERVER], model, api_key="")
        board.fingerprints.add(server.fingerprint)
        load = load_there(where, model, one, board.relay).load
        runs = (load.run,) if load.run else ()
        return TaskOutcome(result=load.id, runs=runs, loads=(load.id,))


class Deploy(OnOpenBoard[Deployed]):
    """Program and model are put on the board; the result says where they lie.

    Attributes:
        verify: files that are on the board are read again.
    """

    kind: Literal["deploy"] = "deploy"
    model: SentModel
    verify: bool

    def do(self, board: GatewayBoard) -> TaskOutcome[Deployed]:
        where = self.ready(board).where
        deployed = put_in_place(where, self.model.received(), board.relay, verify=self.verify)
        return TaskOutcome(result=deployed)


class PulledRuns(Value):
    """What a gateway has fetched from a board.

    Attributes:
        runs: their ids.
        lost: why runs stay on the board.
    """

    runs: tuple[FolderName, ...]
    lost: Mapping[str, GatewayError]


class Pull(BoardOperation[PulledRuns]):
    """Finished runs are fetched from the board, whether or not it can be made ready.

    Attributes:
        known: runs that need not be fetched, since the command has them.
    """

    kind: Literal["pull"] = "pull"
    known: frozenset[str]

    def do(self, board: GatewayBoard) -> TaskOutcome[PulledRuns]:
        pulled = pull(load_board(board.name), board.relay, known=self.known)
        runs = tuple(run.id for run in pulled.runs)
        lost = {run: GatewayError.of(error) for run, error in pulled.lost.items()}
        return TaskOutcome(result=PulledRuns(runs=runs, lost=lost), runs=runs)


class GatewayTask(Value):
    """What a board is to do now.

    Attributes:
        key: of the task; a gateway does each once, however often it is told.
        topic: under which the command hears of its progress.
        store: in which the command keeps runs.
    """

    board: str
    key: str
    topic: str
    store: str
    operation: Annotated[
        OpenBoard | RunEngine | PredictRun | Predict | RunLoad | Deploy | Pull,
        Field(discriminator="kind"),
    ]
