"""Programs that were started and lead sessions of their own, so that an interruption can end them.

A terminal's Ctrl-C does not reach them, and a thread that waits for one hears of no interruption.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_living: set[int] = set()
_ended = threading.Event()
_lock = threading.Lock()


@contextmanager
def known(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Know of a program that leads a session while the block runs."""
    with _lock:
        _living.add(process.pid)
        if _ended.is_set():
            _end(process.pid)
    try:
        yield
    finally:
        with _lock:
            _living.discard(process.pid)


def end_all() -> None:
    """Ask every known program and its children to end: the threads that wait for them continue.

    What such a thread starts before the process ends is ended too.
    """
    with _lock:
        _ended.set()
        for pid in _living:
            _end(pid)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
