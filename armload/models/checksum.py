"""The checksum of a large file, computed once for as long as the file stays as it is."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from armload.core.errors import DataError
from armload.core.files import CHUNK_BYTES, write_whole
from armload.core.progress import Progress
from armload.core.workspace import cache_folder

SHA256_DIGITS = 64


def cached_sha256(path: Path, progress: Progress) -> str:
    """Return the file's SHA-256, from the cache when path, size, times and inode are the same.

    Raises:
        DataError: the file changed while it was read.
        OSError: the file cannot be read.
    """
    before = _identity(path)
    remembered = cache_folder() / "hashes" / hashlib.sha256(before.encode()).hexdigest()
    with contextlib.suppress(OSError):
        known = remembered.read_text()
        if len(known) == SHA256_DIGITS:
            return known
    digest = _computed(path, progress)
    if _identity(path) != before:
        raise DataError(
            f"{path}: the file changed while it was read.", "Wait until it is written, then retry."
        )
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(remembered, digest.encode())
    return digest


def _identity(path: Path) -> str:
    status = path.stat()
    # The change time catches a file that was rewritten and then given its former
    # modification time, as `cp -p` and `rsync -t` do.
    numbers = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return "\0".join((os.fsdecode(path.resolve()), *map(str, numbers)))


def _computed(path: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    done = 0
    with (
        path.open("rb", buffering=0) as file,
        progress.step(f"Checksum of {path.name}", total=path.stat().st_size, unit="B") as step,
    ):
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            step.update(done)
    return digest.hexdigest()
