"""Which of several models one service can hold in memory at a time, and what a switch takes."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.fitted import FittedModel
from armload.core.values import format_bytes, format_seconds


def served_together(board: str, models: Sequence[FittedModel]) -> str:
    """Say whether a service of these models holds all of them, each with its own KV cache.

    Returns:
        Sentences; empty for a single model, or where a board's memory is unknown.
    """
    known = [(each, each.prediction.memory) for each in models]
    memories = [memory for _, memory in known if memory is not None]
    if len(models) < 2 or len(memories) < len(models):
        return ""
    free_bytes = min(each.available_bytes - each.reserve_bytes for each in memories)
    needs = sorted((each.wanted_bytes for each in memories), reverse=True)
    amounts = f"{format_bytes(sum(needs))} of {format_bytes(max(free_bytes, 0))}"
    if sum(needs) <= free_bytes:
        return f"A service of these models holds all of them in {board}'s memory ({amounts})."
    fitting = sum(1 for n in range(1, len(needs) + 1) if sum(needs[:n]) <= free_bytes)
    times = [
        f"{format_seconds(each.prediction.load_s.value)} for {each.model}"
        for each in models
        if each.prediction.load_s is not None
    ]
    takes = f"; a switch takes {', '.join(times)}" if times else ""
    return (
        f"A service of these models holds {fitting or 'none'} of them in {board}'s memory at a "
        f"time (all: {amounts}){takes}."
    )
