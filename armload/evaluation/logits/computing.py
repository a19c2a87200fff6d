"""Computing the logits of prompts on a board."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from armload.core.errors import RunError
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.engines.scorer import SCORER, Scoring
from armload.evaluation.items import write_items
from armload.evaluation.logits.rows import FLOAT_BYTES
from armload.evaluation.way import Way, one_continuation
from armload.models.model import Model
from armload.runs.pipeline import Request, execute, session
from armload.runs.predicting import foresight_of


def compute_logits(
    request: Request, model: Model, prompts: Sequence[str], way: Way, progress: Progress
) -> Path:
    """Compute the logits at all positions of prompts; return the run's folder.

    Args:
        prompts: as they are, without a chat template. They are numbered from 1.

    Raises:
        ArmloadError: the run could not be started, or ended early.
    """
    items: list[dict[str, object]] = [
        {"id": str(number), "kind": "logits", "prompt": prompt, "positions": "all"}
        for number, prompt in enumerate(prompts, start=1)
    ]
    # A token is at least a byte, and one may begin the text.
    most_tokens = sum(len(prompt.encode()) + 1 for prompt in prompts)
    size = format_bytes(most_tokens * model.vocabulary * FLOAT_BYTES)
    progress.say(f"The logits take {size} at most, on the board and here.")
    with tempfile.TemporaryDirectory() as scratch:
        path = write_items(items, Path(scratch) / "prompts.jsonl")
        with session(request, (SCORER,), progress) as where:
            plan = way.plan(items, path, model)
            engine = Scoring(plan, where.binaries[SCORER], model, path)
            run, folder = execute(
                *(where, engine, progress),
                new=request.new,
                foresee=foresight_of(
                    *(where, model, one_continuation(plan), engine.memory, progress)
                ),
            )
    if run.exit.status != 0:
        raise RunError(
            f"{request.board}: the scorer did not finish: {run.exit.meaning}.",
            f"Its messages: armload show {run.id}",
        )
    return folder
