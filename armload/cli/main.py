"""The command ``armload``. It imports the program only once an interruption is no fault."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from armload.cli.streams import make_streams_usable
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
        os.write(2, b"Interrupted.\n")
    os._exit(InterruptionError.exit_status)


def main() -> None:
    """Run the verb that the command line names."""
    end_on_interrupt()
    if sys.argv[1:2] == ["__complete"]:
        from armload.cli.completion.answer import answer

        answer(sys.argv[2:])
        return
    make_streams_usable()
    # What is imported stays: to look for garbage in it takes a quarter of a short command.
    gc.disable()
    from armload.cli.program import run

    gc.enable()
    gc.freeze()
    atexit.register(gc.freeze)
    run()
