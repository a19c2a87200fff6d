"""Whether a model fits into a board's memory, said before minutes are spent on it."""

from __future__ import annotations

from armload.bench.engine import context_tokens
from armload.bench.plan import Plan
from armload.boards.board import Board
from armload.boards.conditions import Conditions
from armload.boards.rates import Rates
from armload.core.values import format_bytes
from armload.models.model import Model

_WORKING_BYTES = 64 << 20
"""Of the engine itself beside weights and cache, with some room."""


def doubt_about_memory(
    plan: Plan, model: Model, board: Board, now: Conditions, measured: Rates
) -> str:
    """Return a warning with figures when a run will not stay in memory; else nothing."""
    cache_bytes = context_tokens(plan, model) * model.kv_bytes_per_token
    free_bytes = now.memory_available_bytes
    own_bytes = cache_bytes + _WORKING_BYTES
    if own_bytes > free_bytes:
        return (
            f"warning: {board.name} has {format_bytes(free_bytes)} of memory free, and the context "
            f"alone takes {format_bytes(own_bytes)}: the kernel will most likely end the run. "
            "Ask for a smaller --context."
        )
    short_bytes = model.size_bytes + own_bytes - free_bytes
    if short_bytes <= 0:
        return ""
    rate = measured.storage_read_bytes_per_s or board.facts.storage_read_bytes_per_s
    least = "" if rate is None else f", {model.bytes_per_token / rate:.1f} s each at its full rate"
    return (
        f"warning: {model.name} ({format_bytes(model.size_bytes)}) and its context "
        f"({format_bytes(own_bytes)}) are {format_bytes(short_bytes)} larger than the "
        f"{format_bytes(free_bytes)} of memory free on {board.name}: every token will read "
        f"storage{least}."
    )
