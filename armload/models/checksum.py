"""The checksum of a large file, computed once for as long as the file stays as it is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from armload.core.errors import DataError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import cache_folder

BLOCK_BYTES = 4 << 20
"""A file's blocks can be summed on several CPUs at once; its SHA-256 cannot."""

_RECORD = re.compile(r"([0-9a-f]{64})\n([0-9a-f]{64})\n")


class Checksums(Value):
    """Two checksums of the same reading of a file, so that one stands for the other.

    Attributes:
        sha256: of the whole, 64 hexadecimal digits.
        blocks_sha256: of the list of its blocks' SHA-256 sums, each as 64 hexadecimal digits and
            a newline; a block has ``BLOCK_BYTES``, the last one what is left.
    """

    sha256: str
    blocks_sha256: str


def cached_sha256(path: Path, progress: Progress) -> str:
    """Return the file's SHA-256; from where, and with which errors, as ``cached_checksums``."""
    return cached_checksums(path, progress).sha256


def cached_checksums(path: Path, progress: Progress) -> Checksums:
    """Return a file's checksums, from the cache when path, size, times and inode are the same.

    Raises:
        DataError: the file changed while it was read.
        OSError: the file cannot be read.
    """
    before = _identity(path)
    remembered = cache_folder() / "hashes" / hashlib.sha256(os.fsencode(before)).hexdigest()
    with contextlib.suppress(OSError):
        if known := _RECORD.fullmatch(remembered.read_text()):
            return Checksums(sha256=known[1], blocks_sha256=known[2])
    computed = _computed(path, progress)
    if _identity(path) != before:
        raise DataError(
            f"{path}: the file changed while it was read.",
            "Wait until it is written completely, then retry.",
        )
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(remembered, f"{computed.sha256}\n{computed.blocks_sha256}\n".encode())
    return computed


def _identity(path: Path) -> str:
    status = path.stat()
    # The change time catches a file that was rewritten and then given its former
    # modification time, as `cp -p` and `rsync -t` do.
    numbers = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return "\0".join((str(path.resolve()), *map(str, numbers)))


def _computed(path: Path, progress: Progress) -> Checksums:
    whole, blocks = hashlib.sha256(), hashlib.sha256()
    done = 0
    with (
        path.open("rb") as file,
        progress.step(f"Checksum of {path.name}", total=path.stat().st_size, unit="B") as step,
        ThreadPoolExecutor(1) as beside,
    ):
        while block := file.read(BLOCK_BYTES):
            of_block = beside.submit(hashlib.sha256, block)
            whole.update(block)
            blocks.update(f"{of_block.result().hexdigest()}\n".encode())
            done += len(block)
            step.update(done)
    return Checksums(sha256=whole.hexdigest(), blocks_sha256=blocks.hexdigest())
