"""Computing the logits of prompts on a board."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.evaluation.logits.rows import FLOAT_BYTES
from armload.evaluation.scorer_run import answer_items
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model
from armload.runs.request import Request


def compute_logits(
    request: Request,
    model: Model,
    prompts: Sequence[str],
    settings: ScorerSettings,
    progress: Progress,
) -> Path:
    """Compute the logits at all positions of prompts; return the run's folder.

    Args:
        prompts: as they are, without a chat template. They are numbered from 1.

    Raises:
        ArmloadError: as for ``answer_items``.
    """
    return answer_items(request, model, logits_items(model, prompts, progress), settings, progress)


def logits_items(
    model: Model, prompts: Sequence[str], progress: Progress
) -> list[dict[str, object]]:
    """Return what asks the scorer for the logits at all positions of prompts; say their size."""
    items: list[dict[str, object]] = [
        {"id": str(number), "kind": "logits", "prompt": prompt, "positions": "all"}
        for number, prompt in enumerate(prompts, start=1)
    ]
    # A token is at least a byte, and one may begin the text.
    most_tokens = sum(len(prompt.encode()) + 1 for prompt in prompts)
    size = format_bytes(most_tokens * model.vocabulary * FLOAT_BYTES)
    progress.say(f"The logits take {size} at most, on the board and here.")
    return items
