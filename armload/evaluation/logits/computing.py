"""Computing the logits of prompts on a board."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.evaluation.logits.agreement import Agreement, agreement
from armload.evaluation.logits.binding import BINDING, logits_by_binding
from armload.evaluation.logits.distributed import NODES, logits_by_a_node
from armload.evaluation.logits.rows import FLOAT_BYTES, Logits, logits_called, logits_of_run
from armload.evaluation.preparing import EvaluationRequest
from armload.evaluation.scorer_run import answer_items
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request


def read_prompts(path: Path, limit: int | None = None) -> tuple[str, ...]:
    """Read a file with a prompt on each line; empty lines count for nothing.

    Args:
        limit: take the first so many only.
    """
    require_file(path, "file of prompts", "Give a text file with a prompt on each line.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    prompts = tuple(line for line in lines if line.strip())[:limit]
    if not prompts:
        raise UsageError(f"{path} holds no prompts.", "Write a prompt on each line.")
    return prompts


def compute_logits(
    request: Request,
    model: Model,
    prompts: Sequence[str],
    settings: ScorerSettings,
    progress: Progress,
    *,
    reach: Reach = CONNECTED,
) -> Path:
    """Compute the logits at all positions of prompts; return the run's folder.

    Args:
        prompts: as they are, without a chat template. They are numbered from 1.
        reach: how the board is reached.
    """
    items = logits_items(model, prompts, progress)
    return answer_items(request, model, items, settings, progress, reach=reach)


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


def logits_and_reference(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    progress: Progress,
    *,
    reference: str,
    reach: Reach,
) -> tuple[Path, int, Logits, Agreement | None]:
    """Compute the logits of one model's prompts, and compare them where there is a reference.

    Returns:
        The run's folder, the number of prompts, their logits, and how far these agree.

    Raises:
        ArmloadError: they could not be computed, or not be compared.
    """
    if not asked.data:
        raise UsageError(
            "--task logits needs prompts.", "Give a file with a prompt on each line: --data FILE."
        )
    model_name = asked.only_model("logits")
    prompts = read_prompts(Path(asked.data), asked.limit)
    model = with_adapters(model_called(model_name, progress), settings.adapters, progress)
    with ExitStack() as stack:
        known = None
        if reference == BINDING:
            known = stack.enter_context(logits_by_binding(model, prompts, settings, progress))
        elif reference == NODES:
            known = stack.enter_context(logits_by_a_node(model, prompts, settings, progress))
        elif reference:
            known = logits_called(reference)
        folder = compute_logits(request, model, prompts, settings, progress, reach=reach)
        logits = logits_of_run(folder)
        return folder, len(prompts), logits, agreement(logits, known) if known else None
