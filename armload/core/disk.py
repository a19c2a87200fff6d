"""What this machine's disk refuses, to be read or written: one kind of error in every verb."""

from __future__ import annotations

import errno
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """Say whether the operating system could not, or would not, write."""
    return error.errno in _REFUSALS


def is_about_network(error: OSError) -> bool:
    """Say whether an error is of a connection, and not of a file."""
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


def is_there(path: Path) -> bool:
    """Say whether something lies at a path; at one that is no name of a file, nothing does."""
    try:
        return path.exists()
    except OSError:  # too long for a name, or in a folder of somebody else's
        return False


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
