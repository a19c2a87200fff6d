"""What users did over time, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from armload.core.values import counted

if TYPE_CHECKING:
    from armload.analysis.load.metrics import Metrics
    from armload.analysis.load.users import Abandoned, Conversations, Ending

_ENDINGS: Mapping[Ending, str] = {
    "context-full": "outgrew the context of a slot",
    "abandoned": "abandoned",
    "failed": "ended by a failed request",
    "cancelled": "cancelled",
}


def about_users(metrics: Metrics) -> list[str]:
    """Say what became of conversations, who gave up, and how much of the prompts was cached."""
    said = []
    if metrics.conversations is not None:
        said.append(_conversations(metrics.conversations))
    if metrics.abandoned is not None:
        said.append(_abandoned(metrics.abandoned, metrics.requests))
    reuse = metrics.prompt_reuse
    if reuse is not None and (reuse.cached_tokens or metrics.conversations):
        said.append(
            f"{reuse.hit_rate:.0%} of the prompt tokens came from the server's cache "
            f"({reuse.cached_tokens:,} of {reuse.prompt_tokens:,})."
        )
    return said


def _conversations(found: Conversations) -> str:
    complete = found.ended.get("complete", 0)
    held = f"{counted(found.begun, 'conversation')} of {found.turns:.3g} turns on average"
    if complete == found.begun:
        return f"{held}, all complete."
    words = [f"{complete:,} complete"] if complete else []
    words += [
        f"{found.ended[how]:,} {what}" for how, what in _ENDINGS.items() if how in found.ended
    ]
    return f"{held}: {', '.join(words)}."


def _abandoned(found: Abandoned, requests: int) -> str:
    said = (
        f"users abandoned {found.requests:,} of {counted(requests, 'request')}, "
        f"{found.unanswered:,} of them before any text arrived. End-to-end latencies cover only "
        "the other requests, which were faster."
    )
    if found.left_busy:
        said += (
            f" Long after the last request had ended, {counted(found.left_busy, 'request')} kept "
            "the service busy: it may not notice that users have left."
        )
    return said


def no_steady_state(found: Conversations) -> str:
    """Say why conversations have no confidence intervals; nothing where they may have some."""
    if found.span_s is None or found.is_steady:
        return ""
    if found.length_s is None:
        return "no confidence intervals: no conversation was completed."
    return (
        f"no confidence intervals: conversations take {found.length_s:.3g} s, but new ones began "
        f"for only {found.span_s:.3g} s, so most of the load was ramp-up. Use a longer --duration."
    )
