"""Files that commands have sent to this gateway, each checked and kept once."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from armload.core.cache import CacheKind, items_of
from armload.core.errors import TransferError
from armload.core.locks import locked
from armload.core.progress import Silent
from armload.core.workspace import cache_folder
from armload.fleet.sent_engines import SentFile
from armload.models.model import cached_sha256

_FOLDER = "received"


def received_path(file: SentFile) -> Path:
    """Return where a file lies, or is to lie."""
    return cache_folder() / _FOLDER / file.folder / file.name


def bytes_here(file: SentFile) -> int:
    """Return how many bytes of a file have come; it is whole if these are all, and checked then."""
    path = received_path(file)
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    with contextlib.suppress(FileNotFoundError):
        return min(_part(path).stat().st_size, file.size_bytes - 1)
    return 0


def receive(file: SentFile, offset: int, chunk: bytes, chunk_sha256: str) -> int:
    """Append a chunk to a file, and check the whole when it was the last.

    Returns:
        How many bytes have come: where the next chunk begins. A chunk that does not begin where
        the last one ended, since another command sends the same file, changes nothing.

    Raises:
        TransferError: the chunk or the whole is not what was sent.
    """
    if hashlib.sha256(chunk).hexdigest() != chunk_sha256:
        raise TransferError(f"{file.name}: a chunk did not arrive as it was sent.")
    path = received_path(file)
    lock = path.with_name(f".{file.name}.lock")
    with locked(lock, Silent(), waiting=f"{file.name} is being received."):
        if path.is_file():
            return file.size_bytes
        part = _part(path)
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


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def received_files() -> CacheKind:
    """Return what commands have sent."""
    return CacheKind(
        name=_FOLDER,
        what="models and programs that commands sent to this gateway",
        again="sending them",
        items=items_of(_FOLDER),
    )
