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
from armload.core.places import cache_folder, nearest_workspace, user_name
from armload.core.shell import quote

_READ_REMEDY = "Check its permissions and those of its parent folders."
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
_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSALS = {*_FULL, errno.EROFS, errno.EACCES}


def is_refusal(error: OSError) -> bool:
    """Return whether the operating system could not, or would not, write."""
    return error.errno in _REFUSALS


def refusal_remedy(error: OSError, place: Path, elsewhere: str = "") -> str:
    """Say what to do where the operating system refused a file or folder.

    Args:
        place: which one.
        elsewhere: how another place is chosen; where empty, that of the cache or the workspace.
    """
    place = place.absolute()
    folder = _nearest_folder(place)
    if error.errno in _FULL:
        act = f"Free space on the disk that holds {folder}"
    elif error.errno == errno.EROFS:
        act = f"Mount the file system of {folder} writable"
    else:
        act = ""
    cache = cache_folder()
    if not elsewhere and (place.is_relative_to(cache) or cache.is_relative_to(place)):
        elsewhere = "set ARMLOAD_CACHE to another folder"
    elif not elsewhere and place.is_relative_to(nearest_workspace(here := Path.cwd()) or here):
        elsewhere = "work in another folder"
    if not act:
        refused = place if is_there(place) else folder
        owner = _other_owner(refused)
        if owner:
            act = elsewhere or "choose a place that you may write to"
            return f"{refused} belongs to {owner}: {act}, then repeat the command."
        act = f"Correct the permissions of {refused}"
    return f"{act}{', or ' if elsewhere else ''}{elsewhere}, then repeat the command."


def _other_owner(path: Path) -> str:
    """Return who owns a file or folder, where that is another user, who alone may permit it."""
    try:
        owner = path.stat().st_uid
    except OSError:  # in a folder of somebody else's
        return "another user"
    return "" if owner == os.geteuid() else user_name(owner)


def _nearest_folder(path: Path) -> Path:
    # Path.is_dir raises in a folder of somebody else's.
    return next(each for each in (path, *path.parents) if os.path.isdir(each))  # noqa: PTH112


def require_writable(folder: Path) -> None:
    """Check that files can be made where a folder lies, or will lie."""
    there = _nearest_folder(folder.absolute())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise DiskError(
            f"Cannot write {folder} on this machine: {error.strerror}.",
            refusal_remedy(error, there),
        ) from error


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
    """
    try:
        yield
    except OSError as error:
        if not is_refusal(error):
            raise
        where = Path(error.filename or folder)
        raise DiskError(
            f"Cannot write {where} on this machine: {error.strerror}.", refusal_remedy(error, where)
        ) from error


def unreadable(path: Path, error: OSError) -> DiskError:
    """Return the error of a file of this machine that the operating system does not let be read."""
    return DiskError(f"Cannot read {path}: {error.strerror or error}.", _READ_REMEDY)


def free_space(folder: Path) -> tuple[Path, int]:
    """Return how many bytes are free where a folder lies, or will lie.

    Returns:
        The folder itself or the nearest above it that exists, and the free bytes on its disk.
    """
    there = _nearest_folder(folder.absolute())
    return there, shutil.disk_usage(there).free


_FULL_BELOW_BYTES = 64 << 10


def is_full(folder: Path) -> bool:
    """Return whether the disk where a folder lies, or will lie, has no room for a file."""
    try:
        return free_space(folder)[1] < _FULL_BELOW_BYTES
    except OSError:
        return False


def require_room(folder: Path, needed_bytes: int, need: str, remedy: str) -> None:
    """Check that so much fits where a folder lies, or will lie.

    Args:
        need: what needs how much, in words.
        remedy: what to do where it does not fit.
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


def is_file(path: Path) -> bool:
    """Return whether a file lies at a path; at one that is too long for a name, none does.

    Raises:
        OSError: nobody but the owner of a folder may know.
    """
    try:
        return path.is_file()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def require_utf_8(path: PurePath) -> None:
    """Check that a path can be recorded, and be the same on a board."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(path)!a}: this path is not valid UTF-8.", "Rename it.") from error


def require_private(path: Path, what: str, remedy: str) -> None:
    """Check that nobody but its owner can read a file.

    Args:
        what: it is, such as ``private key``.
        remedy: what to do if others have read it.
    """
    mode = path.stat().st_mode
    if mode & 0o077:
        raise UsageError(
            f"{path}: other users of this machine can read this {what} (mode {mode & 0o777:03o}).",
            f"Run: chmod 600 {path}. If they may have read it, {remedy}",
        )


def require_file(path: Path, what: str, remedy: str) -> None:
    """Check that a path that a person gave names a file.

    Args:
        what: it should be, such as ``model``.
        remedy: what to give instead.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        if found := _URL.fullmatch(str(path)):
            url = f"{found[1]}://{found[2]}"
            name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
            raise UsageError(
                f"{url} is an address, not a file.",
                f"Download it first, and give the file: curl -L {quote(url)} -o {quote(name)}",
            ) from None
        raise UsageError(f"There is no {what} '{path}'.", remedy) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"There is no {what} '{path}'.", remedy) from error
        raise unreadable(path, error) from error
    if not stat.S_ISREG(mode):
        article = "an" if what.startswith(tuple("aeiou")) else "a"
        a_folder = f"is a folder, not {article} {what}"
        kind = a_folder if stat.S_ISDIR(mode) else "is not a regular file"
        raise UsageError(f"{path} {kind}.", remedy)


CHUNK_BYTES = 1 << 20

_URL = re.compile(r"(https?|ftp):/+(.+)", re.IGNORECASE | re.DOTALL)  # a path has one slash of two


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
    new_folders = [each for each in path.parents if not is_there(each)]
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        beside = Path(name)
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
        if beside is not None:
            beside.unlink(missing_ok=True)
        if not is_there(path):
            for folder in new_folders:
                with contextlib.suppress(OSError):  # another program has put something there
                    folder.rmdir()


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


def beginning(found: bytes, expected: bytes, path: Path) -> str:
    """Say how a file begins that is not what it should be: ``begins with "# ar" instead of …``.

    An empty file on a full disk is one that could not be written.
    """
    if found:
        return f"begins with {_as_text(found)} instead of {_as_text(expected)}"
    return (
        f"is empty, and the disk that holds {path.parent} is full" if is_full(path) else "is empty"
    )


def _as_text(content: bytes) -> str:
    text = content.decode("ascii", "replace")
    is_plain = text.isprintable() and text.isascii()
    return f'"{text}"' if is_plain else f"the bytes {content.hex(' ')}"
