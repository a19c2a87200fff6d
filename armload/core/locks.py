"""A lock that separate armload processes respect."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.core.progress import Progress

_POLL_S = 0.1


@contextmanager
def locked(path: Path, progress: Progress, *, waiting: str) -> Iterator[int]:
    """Hold the lock on a file, which is made when missing; yield its descriptor.

    The lock ends with the block, or with the last process that has the descriptor: a child
    that inherits it goes on holding the lock when its parent is killed.

    Args:
        path: the file; it stays.
        progress: is told ``waiting``, once, when another process holds the lock.
        waiting: what is waited for, one line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _taken(descriptor):
            progress.say(waiting)
            while not _taken(descriptor):
                time.sleep(_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
