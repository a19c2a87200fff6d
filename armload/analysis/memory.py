"""A warning, before a run, if a model does not fit into a board's memory."""

from __future__ import annotations

from armload.boards.board import Board
from armload.boards.conditions import Conditions, within_group
from armload.boards.rates import Rates
from armload.core.values import format_bytes
from armload.engines.engine import MemoryNeed


def doubt_about_memory(need: MemoryNeed, board: Board, now: Conditions, measured: Rates) -> str:
    """Return a warning with figures when a run will not stay in memory; else nothing."""
    free_bytes = now.memory_available_bytes
    if need.own_bytes > free_bytes:
        return (
            f"warning: {board.name} has {format_bytes(free_bytes)} of memory free"
            f"{within_group(now)}, but the context alone needs {format_bytes(need.own_bytes)}: "
            "the kernel will most likely kill the run. Use a smaller --context."
        )
    short_bytes = need.weights_bytes + need.own_bytes - free_bytes
    if short_bytes <= 0:
        return ""
    rate = measured.storage_read_bytes_per_s or board.facts.storage_read_bytes_per_s
    least = "" if rate is None else f", {need.bytes_per_token / rate:.1f} s each at its full rate"
    return (
        f"warning: {need.name} ({format_bytes(need.weights_bytes)}) and its context "
        f"({format_bytes(need.own_bytes)}) are {format_bytes(short_bytes)} larger than the "
        f"{format_bytes(free_bytes)} of memory free on {board.name}{within_group(now)}: every "
        f"token will read from storage{least}."
    )
