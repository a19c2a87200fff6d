"""Ctrl-C: an exception while a verb works, the end of the program before and after that."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from armload.core.errors import InterruptionError


def end_on_interrupt() -> None:
    """Let Ctrl-C end the program at once, while nothing is begun or after all is done.

    An exception there would end as a traceback, or be swallowed inside an import.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` within the block."""
    if signal.getsignal(signal.SIGINT) is not _end:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"error: Interrupted.\n")
    os._exit(InterruptionError.exit_status)
