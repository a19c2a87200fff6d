"""Files that are either whole or absent, their checksums, and what a disk refuses."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from armload.core.errors import DiskError, UsageError

READ_REMEDY = "Check its permissions and those of its parent folders."
CACHE_REMEDY = "Free disk space, or set ARMLOAD_CACHE to another folder, then repeat the command."

_NETWORK = {
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EADDRINUSE,
    errno.EADDRNOTAVAIL,
    errno.ENOTCONN,
    errno.EAFNOSUPPORT,
}
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


def is_refusal(error: OSError) -> bool:
    """Return whether the operating system could not, or would not, write."""
    return error.errno in _REFUSALS


def is_about_network(error: OSError) -> bool:
    """Return whether an error is of a connection, and not of a file."""
    import socket
    import ssl

    kinds = (ConnectionError, TimeoutError, socket.gaierror, socket.herror, ssl.SSLError)
    return error.filename is None and (isinstance(error, kinds) or error.errno in _NETWORK)


@contextmanager
def written_in(folder: Path) -> Iterator[None]:
    """Turn a full or unwritable disk into an error that says what to do.

    Args:
        folder: named where the operating system names no file.

    Raises:
        DiskError: the operating system refused to write.
    """
    try:
        yield
    except OSError as error:
        if not is_refusal(error):
            raise
        where = error.filename or folder
        raise DiskError(
            f"Cannot write {where} on this machine: {error.strerror}.", CACHE_REMEDY
        ) from error


def unreadable(path: Path, error: OSError) -> DiskError:
    """Return the error of a file of this machine that the operating system does not let be read."""
    return DiskError(f"Cannot read {path}: {error.strerror or error}.", READ_REMEDY)


def free_space(folder: Path) -> tuple[Path, int]:
    """Return how many bytes are free where a folder lies, or will lie.

    Returns:
        The folder itself or the nearest above it that exists, and the free bytes on its disk.
    """
    place = folder.absolute()
    there = next(each for each in (place, *place.parents) if each.is_dir())
    return there, shutil.disk_usage(there).free


def require_room(folder: Path, needed_bytes: int, need: str, remedy: str) -> None:
    """Check that so much fits where a folder lies, or will lie.

    Args:
        need: what needs how much, in words.
        remedy: what to do where it does not fit.

    Raises:
        DiskError: it does not.
    """
    from armload.core.values import format_bytes  # completion of names has no time for it

    there, free_bytes = free_space(folder)
    if needed_bytes > free_bytes:
        raise DiskError(f"{need}, but {there} has {format_bytes(free_bytes)} free.", remedy)


def is_there(path: Path) -> bool:
    """Return whether something lies at a path; at one that is no name of a file, nothing does."""
    try:
        return path.exists()
    except OSError:  # too long for a name, or in a folder of somebody else's
        return False


def require_utf_8(path: PurePath) -> None:
    """Check that a path can be recorded, and be the same on a board.

    Raises:
        UsageError: it is not valid UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(path)!a}: this path is not valid UTF-8.", "Rename it.") from error


def require_file(path: Path, what: str, remedy: str) -> None:
    """Check that a path that a person gave names a file.

    Args:
        what: it should be, such as ``model``.
        remedy: what to give instead.

    Raises:
        UsageError: there is nothing, a folder, or something else that is no regular file.
        DiskError: it cannot be looked at, such as in a folder of somebody else's.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError(f"There is no {what} '{path}'.", remedy) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"There is no {what} '{path}'.", remedy) from error
        raise unreadable(path, error) from error
    if not stat.S_ISREG(mode):
        kind = "is a folder, not a file" if stat.S_ISDIR(mode) else "is not a regular file"
        raise UsageError(f"The {what} {path} {kind}.", remedy)


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
