"""What a command and a gateway tell each other: data alone, as JSON beside bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from armload import __version__
from armload.bench.combination import Combination
from armload.build.binary import Binary
from armload.core.errors import ArmloadError, ErrorKind, error_of
from armload.core.values import Value
from armload.deploy.board_runs import check_name
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.models.model import Model
from armload.runs.placing import Deployed
from armload.runs.request import Request

CHUNK_BYTES = 8 << 20
"""Dask keeps what it moves in memory, and warns of tasks that are larger than 10 MB."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _as_file_name(name: str) -> str:
    check_name(name)
    return name


FileName = Annotated[str, AfterValidator(_as_file_name)]


class SentFile(Value):
    """A file that a gateway needs.

    Attributes:
        folder: of the files that lie beside it there: a checksum of all of them.
        name: in that folder, the same as on the command's machine.
        sha256: of its content.
    """

    folder: Sha256
    name: FileName
    size_bytes: int
    sha256: Sha256


class SentModel(Value):
    """A model: one file, or all parts of one, of which the first counts."""

    files: tuple[SentFile, ...] = Field(min_length=1)


class SentCell(Value):
    """A combination, whose plan is complete."""

    plan: Plan
    model: SentModel
    draft: SentModel | None = None


class SentBinary(Value):
    """A program; the path within ``binary`` is of no meaning."""

    binary: Binary
    file: SentFile


class BoardOrder(Value):
    """What a command wants a board to be ready for.

    Attributes:
        armload: the command's version.
        target: the board's, for which the programs were built.
    """

    armload: str = __version__
    target: str
    request: Request
    cells: tuple[SentCell, ...]
    binaries: tuple[SentBinary, ...]

    @property
    def id(self) -> str:
        """Equal for equal orders alone."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def files(self) -> tuple[SentFile, ...]:
        """All that the gateway needs, each once."""
        models = [each for cell in self.cells for each in (cell.model, cell.draft) if each]
        of_models = (file for model in models for file in model.files)
        return tuple(dict.fromkeys((*(each.file for each in self.binaries), *of_models)))


class GatewayTask(Value):
    """What a board is to do now.

    Attributes:
        key: of the task; a gateway does each once, however often it is told.
        topic: under which the command hears of its progress.
        store: in which the command keeps runs.
        work: ``open`` has the board made ready for ``run``; ``deploy`` has the files of the order's
            one cell put there; ``pull`` has finished runs fetched.
        order: of all but ``pull``.
        place: of the run in a sweep; none for a run of the first combination.
        new: what an interrupted command has left on the board is no answer.
        verify: files that are on the board are read again.
        known: runs that need not be fetched, since the command has them.
    """

    board: str
    key: str
    topic: str
    store: str
    work: Literal["open", "run", "deploy", "pull"]
    order: BoardOrder | None = None
    place: SweepPoint | None = None
    new: bool = False
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
    """The folders of runs as one archive, which is fetched in chunks.

    Attributes:
        name: of the archive on the gateway.
        runs: ids of the runs in it.
    """

    name: FileName
    runs: tuple[str, ...]
    size_bytes: int
    sha256: Sha256


class TaskOutcome(Value):
    """How a task ended.

    Attributes:
        run: id of the run; empty where there is none.
        runs: that one, and others that were found on the board.
        archive: of these; none where there are none, or the gateway keeps its runs where the
            command does.
        deployed: where the files lie that were to be put on the board.
        lost: why runs stay on the board that were to be fetched.
        error: why it failed.
        is_interrupted: it was stopped because the command said so.
    """

    run: str = ""
    runs: tuple[str, ...] = ()
    archive: RunArchive | None = None
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
        step: number of the step.
        label: with which the step begins; empty once it has begun.
        is_end: the step ends.
    """

    task: str
    say: str = ""
    step: int = 0
    label: str = ""
    completed: float = 0
    total: float | None = None
    unit: str = ""
    note: str = ""
    is_end: bool = False


def order_of(
    request: Request, target: str, cells: Sequence[Combination], binaries: Mapping[str, Binary]
) -> tuple[BoardOrder, Mapping[SentFile, Path]]:
    """Return what to tell a gateway, and where the files lie that it needs."""
    local: dict[SentFile, Path] = {}

    def sent(path: Path, folder: str, sha256: str) -> SentFile:
        size_bytes = path.stat().st_size
        file = SentFile(folder=folder, name=path.name, size_bytes=size_bytes, sha256=sha256)
        local[file] = path
        return file

    def model(of: Model) -> SentModel:
        parts = [(part.path, part.sha256) for part in of.parts] or [(of.path, of.sha256)]
        return SentModel(files=tuple(sent(path, of.sha256, sha256) for path, sha256 in parts))

    order = BoardOrder(
        target=target,
        request=request,
        cells=tuple(
            SentCell(
                plan=cell.plan,
                model=model(cell.model),
                draft=model(cell.draft) if cell.draft else None,
            )
            for cell in cells
        ),
        binaries=tuple(
            SentBinary(
                binary=each.model_copy(update={"path": Path(each.program)}),
                file=sent(each.path, each.sha256, each.sha256),
            )
            for each in binaries.values()
        ),
    )
    return order, local


def split_reply(reply: bytes) -> tuple[bytes, bytes]:
    """Return the JSON of a reply, and the bytes beside it."""
    head, _, rest = reply.partition(b"\n")
    return head, rest


def reply_of(head: Value, rest: bytes = b"") -> bytes:
    """Return JSON and bytes as one reply."""
    return head.model_dump_json().encode() + b"\n" + rest
