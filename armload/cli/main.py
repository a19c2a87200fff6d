"""The command ``armload``. It imports the program only once an interruption is no fault."""

from __future__ import annotations

from armload.cli.interrupts import end_on_interrupt
from armload.cli.streams import make_streams_usable


def main() -> None:
    """Run the verb that the command line names."""
    end_on_interrupt()
    make_streams_usable()
    from armload.cli.program import run

    run()
