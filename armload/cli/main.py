"""The command ``armload``. It imports the program only once an interruption is no fault."""

from __future__ import annotations

# What is imported here is imported while Ctrl-C would end as a traceback.
import os
import signal
import sys

_INTERRUPTED = 130


def end_on_interrupt() -> None:
    """Let Ctrl-C end the program at once, while nothing is begun or after all is done.

    An exception there would end as a traceback, or be swallowed inside an import.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def end(_number: int, _frame: object) -> None:
    """Handle SIGINT while there is nothing to keep."""
    try:
        os.write(2, b"Interrupted.\n")
    finally:
        os._exit(_INTERRUPTED)


def main() -> None:
    """Run the verb that the command line names."""
    end_on_interrupt()
    if sys.argv[1:2] == ["__complete"]:
        from armload.cli.completion.answer import answer

        answer(sys.argv[2:])
        return

    import atexit
    import gc

    from armload.cli.streams import make_streams_usable

    make_streams_usable()
    # What is imported stays: to look for garbage in it takes a quarter of a short command.
    gc.disable()
    from armload.cli.program import run

    gc.enable()
    gc.freeze()
    atexit.register(gc.freeze)
    run()
