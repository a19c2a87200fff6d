"""How the scorer is to run, and the plan that this makes for a file of items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.core.values import Value
from armload.engines.plan import (
    Cores,
    FlashAttention,
    KvType,
    Plan,
    Resident,
    TokenCount,
    WeightsMode,
)
from armload.engines.scorer import ScoringPlan, look_at_items
from armload.evaluation.items import context_tokens
from armload.models.model import Model

PROMPT_TOKENS = 128
"""Assumed of an item, where its time is estimated."""


class Way(Value):
    """How the scorer runs; the numbers are those of ``ScoringPlan``.

    Attributes:
        context_tokens: for each item; none for what the longest needs.
        max_time_s: for all parts, each its share; none for no limit.
    """

    parallel: int = 1
    threads: int | None = None
    cpus: Cores | None = None
    context_tokens: int | None = None
    micro_batch_tokens: TokenCount | None = None
    kv_type: KvType | None = None
    flash_attention: FlashAttention | None = None
    weights: WeightsMode = "auto"
    resident_bytes: Resident | None = None
    max_time_s: float | None = None

    def context_for(self, items: Sequence[dict[str, object]], model: Model) -> int:
        """Return the length of the KV cache for each item: as asked, or what the longest needs."""
        return self.context_tokens or min(context_tokens(items), model.context_length)

    def plan(self, items: Sequence[dict[str, object]], path: Path, model: Model) -> ScoringPlan:
        """Return the plan for items.

        Args:
            path: the file that they have been written to.
        """
        sha256, count = look_at_items(path)
        return ScoringPlan(
            items_sha256=sha256,
            items_count=count,
            context_tokens=self.context_for(items, model),
            **self.model_dump(exclude={"context_tokens", "max_time_s"}),
        )


def one_continuation(plan: ScoringPlan) -> Plan:
    """Return the plan of a single item, as predictions take it."""
    return Plan(
        prompt_tokens=min(PROMPT_TOKENS, plan.context_tokens - 1),
        n_predict=1,
        context_tokens=plan.context_tokens,
        threads=plan.threads,
        cpus=plan.cpus,
        kv_type=plan.kv_type,
        weights=plan.weights,
        resident_bytes=plan.resident_bytes,
    )
