"""How often a mixture found its experts in memory, in an earlier run on the same board."""

from __future__ import annotations

from armload.analysis.board_resources import MeasuredHits
from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.models.model import Model
from armload.runs import store

_MOST_READ = 30
_LEAST_TOKENS = 16
"""Fewer mostly fill the slots."""


def measured_hits(board: str, model: Model) -> MeasuredHits | None:
    """Return what the newest run measured that streamed this model there; none without one."""
    if not model.expert_bytes:
        return None
    found = (_hits(run, model) for run in store.latest_on(board, most=_MOST_READ))
    return next(filter(None, found), None)


def _hits(run: Run, model: Model) -> MeasuredHits | None:
    weights, reads = streamed_weights(run.trace), run.summary.experts
    is_same = (run.model.name, run.model.size_bytes) == (model.name, model.size_bytes)
    if not is_same or weights is None or reads is None:
        return None
    if (run.summary.decode_tokens or 0) < _LEAST_TOKENS:
        return None
    return MeasuredHits(
        hit_rate=reads.hit_rate, slot_share=weights.expert_slot_bytes / weights.expert_bytes
    )
