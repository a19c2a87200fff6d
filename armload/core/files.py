"""Files that are either whole or absent, and their checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK_BYTES = 1 << 20


def _umask() -> int:
    # It can only be read by setting it, for all threads: once, before there are any.
    umask = os.umask(0)
    os.umask(umask)
    return umask


_UMASK = _umask()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content as 64 hexadecimal digits, in bounded memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content(path: Path) -> bytes:
    """Return a file's content; nothing where there is no such file."""
    return path.read_bytes() if path.is_file() else b""


def file_name_of(text: str) -> str:
    """Return a text as a part of a file's name that every file system and shell takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; rename it into place when the block succeeds.

    The content is synced to the disk first, so ``path`` is never half-written, and its name
    afterwards, so that a power cut does not bring the former file back. A block that raises leaves
    nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.chmod(0o666 & ~_UMASK)
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a folder's names durable, where its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that a reader sees all of it or the former file."""
    with written_whole(path) as beside:
        beside.write_bytes(content)


def beginning(found: bytes, expected: bytes) -> str:
    """Say how a file begins that is not what it should be: ``begins with "# ar" instead of …``."""
    return f"begins with {_as_text(found)} instead of {_as_text(expected)}" if found else "is empty"


def _as_text(content: bytes) -> str:
    text = content.decode("ascii", "replace")
    is_plain = text.isprintable() and text.isascii()
    return f'"{text}"' if is_plain else f"the bytes {content.hex(' ')}"
