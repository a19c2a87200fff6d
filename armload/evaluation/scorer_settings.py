"""How the scorer is to run, and the plan that this makes for a file of items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.engines.scorer import ScoringPlan, SeenImages, look_at_items
from armload.engines.service_plan import ScorerOptions
from armload.evaluation.items import context_tokens
from armload.models.model import Model


class ScorerSettings(ScorerOptions):
    """How the scorer runs.

    Attributes:
        max_time_s: for all parts, each its share; none for no limit.
    """

    max_time_s: float | None = None

    def context_for(
        self, items: Sequence[dict[str, object]], model: Model, seen: SeenImages | None = None
    ) -> int:
        """Return the length of the KV cache for each item: as asked, or what the longest needs."""
        return self.context_tokens or min(context_tokens(items, seen), model.context_length)

    def plan(
        self,
        items: Sequence[dict[str, object]],
        path: Path,
        model: Model,
        seen: SeenImages | None = None,
    ) -> ScoringPlan:
        """Return the plan for items.

        Args:
            path: the file that they have been written to.
            seen: the images that they name; none where they name none.
        """
        sha256, count = look_at_items(path)
        return ScoringPlan(
            items_sha256=sha256,
            items_count=count,
            context_tokens=self.context_for(items, model, seen),
            **self.model_dump(exclude={"context_tokens", "max_time_s"}),
        )
