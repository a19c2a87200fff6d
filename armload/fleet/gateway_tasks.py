"""What a command and a gateway tell each other: data alone, as JSON beside bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from armload import __version__
from armload.core.errors import ArmloadError, ErrorKind, TransferError, error_of
from armload.core.values import Value
from armload.engines.engine import Settings
from armload.engines.job import SweepPoint
from armload.fleet.sent_engines import (
    FileName,
    SentDeployment,
    SentEngine,
    SentForecast,
    SentLoad,
    Sha256,
)
from armload.runs.request import Request

CHUNK_BYTES = 8 << 20
"""Dask keeps what it moves in memory, and warns of tasks that are larger than 10 MB."""

TOPIC = "armload-"
"""How the topics begin under which commands hear of their tasks."""

MOST_ARCHIVED_BYTES = 4 << 30
"""Of runs and loads, packed or not."""

_ERROR_CHARACTERS = 10_000

FolderName = Annotated[FileName, Field(pattern=r"^[^.]")]
"""Of a run or a load; hidden folders are armload's own."""


class BoardRequirements(Value):
    """How a command wants a board to be ready.

    Attributes:
        armload: the command's version.
        target: the board's, for which the programs were built.
        members: of a group; of a single board, itself.
        settings: that runs will ask for.
        answers_within_s: as for ``Reach.open``.
    """

    armload: str = __version__
    target: str
    members: tuple[str, ...]
    request: Request
    settings: tuple[Settings, ...] = ()
    answers_within_s: float | None = None


class BoardWork(Value):
    """What is done on a board that meets the requirements."""

    requirements: BoardRequirements


class OpenWork(BoardWork):
    """The board is made ready for further work; the result is what it reported."""

    kind: Literal["open"] = "open"


class RunWork(BoardWork):
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


class EstimateWork(BoardWork):
    """A run is predicted as before it begins, on a group; the result is the prediction."""

    kind: Literal["estimate"] = "estimate"
    engine: SentEngine


class ForecastWork(BoardWork):
    """A run is predicted; the result is the prediction."""

    kind: Literal["forecast"] = "forecast"
    forecast: SentForecast


class LoadWork(BoardWork):
    """A server is started and put under load; the result is the id of the load."""

    kind: Literal["load"] = "load"
    load: SentLoad


class DeployWork(BoardWork):
    """Program and model are put on the board; the result says where they lie.

    Attributes:
        verify: files that are on the board are read again.
    """

    kind: Literal["deploy"] = "deploy"
    deployment: SentDeployment
    verify: bool


class PullWork(Value):
    """Finished runs are fetched from the board; the result is ``PulledRuns``.

    Attributes:
        known: runs that need not be fetched, since the command has them.
    """

    kind: Literal["pull"] = "pull"
    known: frozenset[str]


Work = Annotated[
    OpenWork | RunWork | EstimateWork | ForecastWork | LoadWork | DeployWork | PullWork,
    Field(discriminator="kind"),
]


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
    work: Work

    def told_again(self) -> GatewayTask:
        """Return it to be told once more: its run may have begun, and is found then."""
        if not isinstance(self.work, RunWork):
            return self
        work = self.work.model_copy(update={"new": False})
        return self.model_copy(update={"work": work})


class GatewayError(Value):
    """Why a task failed."""

    kind: ErrorKind
    message: str = Field(max_length=_ERROR_CHARACTERS)
    remedy: str = Field(max_length=_ERROR_CHARACTERS)

    @classmethod
    def of(cls, error: ArmloadError) -> GatewayError:
        message, remedy = (text[:_ERROR_CHARACTERS] for text in (error.message, error.remedy))
        return cls(kind=error.kind, message=message, remedy=remedy)

    @property
    def error(self) -> ArmloadError:
        """The error as the command raises it."""
        return error_of(self.kind, self.message, self.remedy)


class RunArchive(Value):
    """The folders of runs and loads as one archive, which is fetched in chunks.

    Attributes:
        name: of the archive on the gateway.
        runs, loads: ids of those in it.
    """

    name: FileName
    runs: tuple[FolderName, ...] = ()
    loads: tuple[FolderName, ...] = ()
    size_bytes: int = Field(ge=0, le=MOST_ARCHIVED_BYTES)
    sha256: Sha256


class PulledRuns(Value):
    """What a gateway has fetched from a board.

    Attributes:
        runs: their ids.
        lost: why runs stay on the board.
    """

    runs: tuple[FolderName, ...]
    lost: Mapping[str, GatewayError]


Result = TypeVar("Result")
Sent = TypeVar("Sent", bound=Value)


class TaskOutcome(Value, Generic[Result]):
    """How a task ended.

    Attributes:
        result: of its work; none where it failed, or was stopped because the command said so.
        runs, loads: ids of those that it has made, or found on the board.
        archive: of these; none where there are none, or the gateway keeps its runs where the
            command does.
        error: why it failed.
    """

    result: Result | None = None
    runs: tuple[FolderName, ...] = ()
    loads: tuple[FolderName, ...] = ()
    archive: RunArchive | None = None
    error: GatewayError | None = None


class TaskAnswer(Value):
    """What a call of a gateway gave, beside bytes.

    Attributes:
        result: none where the bytes are the result.
        error: why it failed.
    """

    result: bool | int | str | None = None
    error: GatewayError | None = None


class Begun(Value):
    """The points of a sweep that a board has begun, or done, and not delivered."""

    points: tuple[SweepPoint, ...]


class ProgressEvent(Value):
    """Something that a command hears of a task while it is done.

    Attributes:
        task: its key.
        say: a line that stays; empty where the event is of a step.
        lines: of output that the command reads as it comes; none where the event is of a step.
        step: number of the step.
        label: with which the step begins; empty once it has begun.
        is_end: the step ends.
    """

    task: str
    say: str = ""
    lines: tuple[str, ...] = ()
    step: int = 0
    label: str = ""
    completed: float = 0
    total: float | None = None
    unit: str = ""
    note: str = ""
    is_end: bool = False


def split_reply(reply: bytes) -> tuple[bytes, bytes]:
    """Return the JSON of a reply, and the bytes beside it."""
    head, _, rest = reply.partition(b"\n")
    return head, rest


def read_sent(kind: type[Sent], sent: bytes | str) -> Sent:
    """Read what a gateway has sent.

    Raises:
        TransferError: it is something else.
    """
    try:
        return kind.model_validate_json(sent)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "its JSON"
        raise TransferError(
            f"A gateway sent a malformed {kind.__name__.partition('[')[0]}: {where}: "
            f"{first['msg'][:200]}.",
            "Look at the worker's output, and check who can use the scheduler.",
        ) from error


def reply_of(head: Value, rest: bytes = b"") -> bytes:
    return head.model_dump_json().encode() + b"\n" + rest
