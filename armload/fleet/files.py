"""Files that a task needs on its gateway: named by the command, received and kept there once."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from pydantic import Field

from armload.build.binary import Binary
from armload.core.cache import CacheKind
from armload.core.errors import TransferError
from armload.core.locks import locked
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.core.values import Value
from armload.fleet.messages import FileName, Sha256
from armload.models.adapter import MOST_ADAPTERS, AdapterChoice
from armload.models.adapter_file import with_adapters
from armload.models.gguf import read_model
from armload.models.model import Model, cached_sha256

_FOLDER = "received"


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

    @property
    def path(self) -> Path:
        """Where it lies on the gateway, or is to lie."""
        return cache_folder() / _FOLDER / self.folder / self.name

    def received(self) -> Path:
        """Return where it lies on this gateway."""
        if not self.path.is_file() or cached_sha256(self.path, Silent()) != self.sha256:
            self.path.unlink(missing_ok=True)
            raise TransferError(
                f"{self.path} on the gateway is not what was sent.",
                "Repeat the command to send it again.",
            )
        return self.path


class SentAdapter(Value):
    """A LoRA adapter for a model, and its scale."""

    file: SentFile
    scale: float

    def received(self) -> AdapterChoice:
        """Return it on this gateway; TransferError as for a file."""
        return AdapterChoice(file=str(self.file.received()), scale=self.scale)


class SentModel(Value):
    """A model: one file, or all parts of one, of which the first counts; and its adapters."""

    files: tuple[SentFile, ...] = Field(min_length=1)
    adapters: tuple[SentAdapter, ...] = Field(default=(), max_length=MOST_ADAPTERS)

    def received(self) -> Model:
        """Return it on this gateway; TransferError as for a file."""
        first, *_ = [file.received() for file in self.files]
        adapters = [each.received() for each in self.adapters]
        return with_adapters(read_model(first), adapters, Silent())


class SentBinary(Value):
    """A program; the path within ``binary`` is of no meaning."""

    binary: Binary
    file: SentFile

    def received(self) -> Binary:
        """Return it on this gateway; TransferError as for a file."""
        return self.binary.model_copy(update={"path": self.file.received()})


class Files(dict[SentFile, Path]):
    """What a task needs, and where it lies on the command's machine.

    Each method adds something, and returns how a gateway is told of it.
    """

    def file(self, path: Path, sha256: str, *, folder: str = "") -> SentFile:
        size_bytes = path.stat().st_size
        file = SentFile(
            folder=folder or sha256, name=path.name, size_bytes=size_bytes, sha256=sha256
        )
        self[file] = path
        return file

    def binary(self, binary: Binary) -> SentBinary:
        return SentBinary(
            binary=binary.model_copy(update={"path": Path(binary.program)}),
            file=self.file(binary.path, binary.sha256),
        )

    def model(self, model: Model) -> SentModel:
        parts = [(part.path, part.sha256) for part in model.parts] or [(model.path, model.sha256)]
        return SentModel(
            files=tuple(self.file(path, sha256, folder=model.sha256) for path, sha256 in parts),
            adapters=tuple(
                SentAdapter(file=self.file(each.path, each.sha256), scale=each.scale)
                for each in model.adapters
            ),
        )


def bytes_here(file: SentFile) -> int:
    """Return how many bytes of a file have come; it is whole if these are all, and checked then."""
    with contextlib.suppress(FileNotFoundError):
        return file.path.stat().st_size
    with contextlib.suppress(FileNotFoundError):
        return min(_part(file).stat().st_size, file.size_bytes - 1)
    return 0


def receive(file: SentFile, offset: int, chunk: bytes, chunk_sha256: str) -> int:
    """Append a chunk to a file, and check the whole when it was the last.

    Returns:
        How many bytes have come: where the next chunk begins. A chunk that does not begin where
        the last one ended, since another command sends the same file, changes nothing.
    """
    if hashlib.sha256(chunk).hexdigest() != chunk_sha256:
        raise TransferError(f"{file.name}: a chunk did not arrive as it was sent.")
    path, part = file.path, _part(file)
    lock = path.with_name(f".{file.name}.lock")
    with locked(lock, Silent(), waiting=f"{file.name} is being received."):
        if path.is_file():
            return file.size_bytes
        size = part.stat().st_size if part.is_file() else 0
        if size == offset:
            with part.open("ab") as out:
                out.write(chunk)
            size += len(chunk)
        if size < file.size_bytes:
            return size
        part.replace(path)
        # The checksum of a model is needed again, and remembered.
        if cached_sha256(path, Silent()) != file.sha256:
            path.unlink()
            raise TransferError(
                f"{file.name}: the file did not arrive as it was sent.", "Repeat the command."
            )
        path.chmod(0o755)
        return file.size_bytes


def _part(file: SentFile) -> Path:
    return file.path.with_name(f"{file.name}.part")


def received_files() -> CacheKind:
    """Return what commands have sent."""
    return CacheKind(
        name=_FOLDER,
        what="models and programs that commands sent to this gateway",
        again="sending them",
    )
