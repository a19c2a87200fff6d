"""How the scorer is to run, and the plan that this makes for a file of items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.engines.plan import Plan
from armload.engines.scorer import ScoringPlan, look_at_items
from armload.engines.service_plan import ScorerOptions
from armload.evaluation.items import context_tokens
from armload.models.model import Model

PROMPT_TOKENS = 128
"""Assumed of an item, where its time is estimated."""


class ScorerSettings(ScorerOptions):
    """How the scorer runs.

    Attributes:
        max_time_s: for all parts, each its share; none for no limit.
    """

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
