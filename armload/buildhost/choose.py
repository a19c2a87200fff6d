"""Where a build runs: on this machine or on a build host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from armload.boards.board import load_board
from armload.boards.connect import connect
from armload.build.backend import BuildBackend
from armload.build.local_backend import LocalBackend
from armload.build.vulkan import vulkan_tools
from armload.buildhost.remote import RemoteBackend, kind_there
from armload.core.errors import UsageError
from armload.core.progress import Progress


@contextmanager
def build_backend(
    *,
    on: str,
    compiler: str,
    progress: Progress,
    jobs: int | None = None,
    nice: int | None = None,
    vulkan: bool = False,
) -> Iterator[BuildBackend]:
    """Yield what compiles.

    Args:
        on: a board; empty for this machine.
        compiler: its kind; empty for that machine's usual one.
        jobs: compilers at a time; none for as many as usual there.
        nice: how much they step back for other programs; none for as much as usual there.
        vulkan: to make programs for GPUs.
    """
    if vulkan and on:
        raise UsageError(
            f"--on {on} cannot build for GPUs: shaders are compiled on this machine.",
            "Remove --on.",
        )
    if vulkan:
        progress.say("Programs for GPUs are untested on hardware so far; a run that works helps.")
    if not on:
        tools = vulkan_tools(progress) if vulkan else None
        yield LocalBackend(compiler or "zig", jobs=jobs, nice=nice or 0, vulkan=tools)
        return
    board = load_board(on)
    kind = kind_there(board, compiler)
    with closing(connect(board, progress)) as host:
        yield RemoteBackend(host, board, compiler=kind, jobs=jobs, nice=nice)
