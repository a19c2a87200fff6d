"""Where a build runs, as the command line says it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from armload.build.order import Workshop
from armload.core.errors import UsageError
from armload.core.progress import Progress

MOST_NICE = 19


@contextmanager
def workshop(
    *, on: str, compiler: str, jobs: str, nice: str, progress: Progress
) -> Iterator[Workshop]:
    """Yield this machine, or the build host ``on``, as the place where the compiler runs.

    The other arguments are as they were typed; empty leaves the choice to the machine.

    Raises:
        UsageError: an argument makes no sense.
        ArmloadError: the build host's file is malformed, or it cannot be reached.
    """
    count = whole_number("--jobs", jobs, least=0) or None
    priority = whole_number("--nice", nice, least=0, most=MOST_NICE)
    if not on:
        from armload.build.workshop import LocalWorkshop

        yield LocalWorkshop(compiler or "zig", jobs=count, nice=priority or 0)
        return
    from armload.boards.board import load_board
    from armload.boards.connect import connect
    from armload.buildhost.remote import RemoteWorkshop

    board = load_board(on)
    host = connect(board, progress)
    try:
        yield RemoteWorkshop(host, board, compiler=compiler, jobs=count, nice=priority)
    finally:
        host.close()


def whole_number(option: str, text: str, *, least: int, most: int | None = None) -> int | None:
    """Read a whole number; none where nothing was typed.

    Raises:
        UsageError: it is none, or out of range.
    """
    if not text:
        return None
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        upto = f" to {most}" if most is not None else " or more"
        raise UsageError(f"{option} {text}: a whole number is needed, {least}{upto}.")
    return int(text)
