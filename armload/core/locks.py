"""A lock that separate armload processes respect."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from armload.core.ids import pid_namespace
from armload.core.progress import Progress

_POLL_S = 0.1


@contextmanager
def locked(path: Path, progress: Progress, *, waiting: str) -> Iterator[int]:
    """Hold the lock on a file, which is made when missing; yield its descriptor.

    The lock ends with the block, or with the last process that has the descriptor: a child
    that inherits it keeps the lock when its parent is killed.

    Args:
        path: the file; it stays, unless who holds the lock deletes it.
        progress: shows ``waiting`` and who holds the lock, once, when another process does.
        waiting: what is waited for, one line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _try(path)
    if descriptor is None:
        progress.say(f"{waiting} {_holder(path)}")
        with progress.step("Waiting for the other process") as step:
            while descriptor is None:
                step.update(0)
                time.sleep(_POLL_S)
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = _try(path)
    try:
        with suppress(OSError):  # full disks: what it holds is for a message only
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {pid_namespace()}\n".encode())
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def locked_now(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody else does, and yield whether it is held.

    Whoever holds it may delete the file.
    """
    try:
        descriptor = _try(path)
    except FileNotFoundError:  # the folder has gone, and what lay in it
        yield True
        return
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file, which may be missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared, so that two who ask at once don't take each other for a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holder(path: Path) -> str:
    """Say which process holds a lock, and what can be done."""
    try:
        number, _, namespace = path.read_text(encoding="utf-8").strip().partition(" ")
        taker = int(number)
    except (OSError, ValueError):  # it has just been taken, or let go
        return "Press Ctrl-C to cancel."
    if namespace not in ("", pid_namespace()):
        return f"It is process {taker} in another container. Press Ctrl-C to cancel."
    try:
        os.kill(taker, 0)
    except ProcessLookupError:
        return "It was killed, but its child processes still run. Press Ctrl-C to cancel."
    except PermissionError:  # it is somebody else's
        pass
    return f"It is process {taker}. Press Ctrl-C to cancel."


def _try(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock on a file that was deleted meanwhile keeps nobody out.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None
