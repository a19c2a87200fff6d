"""What a command and a gateway tell each other: data alone, as JSON beside bytes."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from armload.core.errors import (
    ArmloadError,
    ErrorKind,
    PermanentConnectError,
    TransferError,
    error_of,
)
from armload.core.values import Value
from armload.deploy.board_runs import check_name

CHUNK_BYTES = 8 << 20
"""Dask keeps what it moves in memory, and warns of tasks that are larger than 10 MB."""

TOPIC = "armload-"
"""How the topics begin under which commands hear of their tasks."""

MOST_ARCHIVED_BYTES = 4 << 30
"""Of runs and loads, packed or not."""

_ERROR_CHARACTERS = 10_000

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _as_file_name(name: str) -> str:
    check_name(name)
    return name


FileName = Annotated[str, AfterValidator(_as_file_name)]

FolderName = Annotated[FileName, Field(pattern=r"^[^.]")]
"""Of a run or a load; hidden folders are armload's own."""


class GatewayError(Value):
    """Why a task failed.

    Attributes:
        is_permanent: of a connection, which is not worth another attempt.
    """

    kind: ErrorKind
    message: str = Field(max_length=_ERROR_CHARACTERS)
    remedy: str = Field(max_length=_ERROR_CHARACTERS)
    is_permanent: bool = False

    @classmethod
    def of(cls, error: ArmloadError) -> GatewayError:
        message, remedy = (text[:_ERROR_CHARACTERS] for text in (error.message, error.remedy))
        is_permanent = isinstance(error, PermanentConnectError)
        return cls(kind=error.kind, message=message, remedy=remedy, is_permanent=is_permanent)

    @property
    def error(self) -> ArmloadError:
        """The error as the command raises it."""
        if self.is_permanent:
            return PermanentConnectError(self.message, self.remedy)
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


Result = TypeVar("Result")
Sent = TypeVar("Sent", bound=Value)


class TaskOutcome(Value, Generic[Result]):
    """How a task ended.

    Attributes:
        result: of its operation; none where it failed, or was stopped because the command said so.
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

    @property
    def has_made(self) -> bool:
        """Whether the gateway has something that the command is to fetch, or to look at."""
        return bool(self.runs or self.loads)


class TaskAnswer(Value):
    """What a call of a gateway gave, beside bytes.

    Attributes:
        result: none where the bytes are the result.
        error: why it failed.
    """

    result: bool | int | str | None = None
    error: GatewayError | None = None


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
        what = f"{kind.__name__.partition('[')[0]}: {where}: {first['msg'][:200]}"
        raise malformed(what) from error


def malformed(what: str) -> TransferError:
    """Return the error of something that a gateway has sent."""
    return TransferError(
        f"A gateway sent a malformed {what}.",
        "Look at the worker's output, and check who can use the scheduler.",
    )


def reply_of(head: Value, rest: bytes = b"") -> bytes:
    return head.model_dump_json().encode() + b"\n" + rest
