"""What a command and a gateway tell each other: data alone, as JSON beside bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from armload import __version__
from armload.boards.probe import Probe
from armload.core.errors import ArmloadError, ErrorKind, error_of
from armload.core.values import Value
from armload.engines.engine import Settings
from armload.engines.job import SweepPoint
from armload.engines.prediction import Prediction
from armload.fleet.sent_engines import FileName, SentEngine, Sha256
from armload.runs.placing import Deployed
from armload.runs.request import Request

CHUNK_BYTES = 8 << 20
"""Dask keeps what it moves in memory, and warns of tasks that are larger than 10 MB."""


class BoardOrder(Value):
    """How a command wants a board to be ready.

    Attributes:
        armload: the command's version.
        target: the board's, for which the programs were built.
        settings: that runs will ask for.
        answers_within_s: as for ``Reach.open``.
    """

    armload: str = __version__
    target: str
    request: Request
    settings: tuple[Settings, ...] = ()
    answers_within_s: float | None = None


class GatewayTask(Value):
    """What a board is to do now.

    Attributes:
        key: of the task; a gateway does each once, however often it is told.
        topic: under which the command hears of its progress.
        store: in which the command keeps runs.
        work: ``open`` has the board made ready for ``run``, which a forecast and a load are, too;
            ``deploy`` has program and model put there; ``pull`` has finished runs fetched.
        order: of all but ``pull``.
        engine: of ``run`` and ``deploy``.
        fingerprint: of what ``run`` runs.
        place: of the run in a sweep; none for a single one.
        new: what an interrupted command has left on the board is no answer.
        warns: say beforehand where a run would be slow.
        verify: files that are on the board are read again.
        known: runs that need not be fetched, since the command has them.
    """

    board: str
    key: str
    topic: str
    store: str
    work: Literal["open", "run", "deploy", "pull"]
    order: BoardOrder | None = None
    engine: SentEngine | None = None
    fingerprint: str = ""
    place: SweepPoint | None = None
    new: bool = False
    warns: bool = True
    verify: bool = False
    known: frozenset[str] = frozenset()


class GatewayError(Value):
    """Why a task failed."""

    kind: ErrorKind
    message: str
    remedy: str

    @classmethod
    def of(cls, error: ArmloadError) -> GatewayError:
        return cls(kind=error.kind, message=error.message, remedy=error.remedy)

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
    runs: tuple[FileName, ...] = ()
    loads: tuple[FileName, ...] = ()
    size_bytes: int
    sha256: Sha256


class TaskOutcome(Value):
    """How a task ended.

    Attributes:
        run: id of the run; empty where there is none.
        runs: that one, and others that were found on the board.
        load: id of the load; empty where there is none.
        archive: of these; none where there are none, or the gateway keeps its runs where the
            command does.
        found: what the board reported when it was made ready.
        prediction: of a run.
        deployed: where the files lie that were to be put on the board.
        lost: why runs stay on the board that were to be fetched.
        error: why it failed.
        is_interrupted: it was stopped because the command said so.
    """

    run: str = ""
    runs: tuple[str, ...] = ()
    load: str = ""
    archive: RunArchive | None = None
    found: Probe | None = None
    prediction: Prediction | None = None
    deployed: Deployed | None = None
    lost: Mapping[str, GatewayError] = {}
    error: GatewayError | None = None
    is_interrupted: bool = False


class Received(Value):
    """What has come of a file.

    Attributes:
        size_bytes: of it: the next chunk begins there.
        error: why the last chunk was refused.
    """

    size_bytes: int = 0
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


def reply_of(head: Value, rest: bytes = b"") -> bytes:
    """Return JSON and bytes as one reply."""
    return head.model_dump_json().encode() + b"\n" + rest
