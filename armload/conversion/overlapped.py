"""Writing a large file while its next part is made."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_SYNCED_BYTES = 32 << 20
"""Written before the disk is waited for; it would begin with much more, and late."""

_SYNC = getattr(os, "fdatasync", os.fsync)
"""macOS has only the latter."""


class OverlappedFile:
    """A file that two threads write and sum, and give to the disk; at most two parts wait for it.

    Whoever leaves the block knows that all of it is on the disk.

    Args:
        path: of the file, which is made new.

    Attributes:
        size_bytes: that were given to it so far.

    Raises:
        OSError: it cannot be written; from any method.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._digest = hashlib.sha256()
        self._writer, self._syncer = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._written: Future[None] | None = None
        self._synced: Future[None] | None = None
        self._unsynced_bytes = 0
        self.size_bytes = 0

    def __enter__(self) -> OverlappedFile:
        return self

    def write(self, part: bytes | memoryview) -> None:
        """Write a part after those before; it must not change any more."""
        before = self._written
        self._written = self._writer.submit(self._put, part)
        self.size_bytes += len(part)
        _ended(before)

    def sha256(self) -> str:
        """Return the checksum of what was written."""
        _ended(self._written)
        return self._digest.hexdigest()

    def _put(self, part: bytes | memoryview) -> None:
        left = memoryview(part)
        while left:
            left = left[self._file.write(left) :]
        self._unsynced_bytes += len(part)
        if self._unsynced_bytes >= _SYNCED_BYTES and (self._synced is None or self._synced.done()):
            _ended(self._synced)
            self._synced = self._syncer.submit(_SYNC, self._file.fileno())
            self._unsynced_bytes = 0
        self._digest.update(part)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.shutdown()
        self._syncer.shutdown()
        with self._file:
            if error is None:
                _ended(self._written)
                _ended(self._synced)
                os.fsync(self._file.fileno())


def _ended(future: Future[None] | None) -> None:
    if future is not None:
        future.result()
