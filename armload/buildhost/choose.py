"""Where a build runs: on this machine or on a build host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from armload.boards.board import load_board
from armload.boards.connect import connect
from armload.build.order import BuildBackend
from armload.build.workshop import LocalWorkshop
from armload.buildhost.remote import RemoteWorkshop, kind_there
from armload.core.progress import Progress


@contextmanager
def workshop(
    *,
    on: str,
    compiler: str,
    progress: Progress,
    jobs: int | None = None,
    nice: int | None = None,
) -> Iterator[BuildBackend]:
    """Yield the place where the compiler runs.

    Args:
        on: a board; empty for this machine.
        compiler: its kind; empty for what that place prefers.
        jobs: compilers at a time; none for what that place prefers.
        nice: how much they step back for other programs; none for what that place prefers.

    Raises:
        UsageError: there is no such compiler, or not on a build host.
        ArmloadError: the board's file is malformed, or it cannot be reached.
    """
    if not on:
        yield LocalWorkshop(compiler or "zig", jobs=jobs, nice=nice or 0)
        return
    board = load_board(on)
    kind = kind_there(board, compiler)
    host = connect(board, progress)
    try:
        yield RemoteWorkshop(host, board, compiler=kind, jobs=jobs, nice=nice)
    finally:
        host.close()
