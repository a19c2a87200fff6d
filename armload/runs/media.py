"""An image or a sound in what is predicted of a run."""

from __future__ import annotations

from armload.analysis.board_resources import BoardResources
from armload.analysis.compute import Compute
from armload.analysis.roofline import encoder_s
from armload.boards.specs import DeclaredSpecs
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import likely_prompt_tokens
from armload.engines.media import MediaNeed
from armload.engines.plan import Plan
from armload.engines.prediction import Expected, MediaForecast, Prediction


def plan_with(plan: Plan, media: MediaNeed | None) -> Plan:
    """Return a plan whose prompt is longer by the tokens of an image."""
    if media is None:
        return plan
    tokens = likely_prompt_tokens(plan) + media.tokens
    return plan.model_copy(update={"prompt_tokens": tokens})


def need_with(need: MemoryNeed, media: MediaNeed | None) -> MemoryNeed:
    """Return the memory of a run with its projector, which stays there for all of it."""
    if media is None:
        return need
    size = media.weights_bytes + media.buffer_bytes
    return need.model_copy(update={"projector_bytes": size})


def with_media(
    found: Prediction,
    media: MediaNeed | None,
    facts: DeclaredSpecs,
    resources: BoardResources,
    *,
    threads: int | None,
    compute: Compute | None = None,
    estimated: Compute | None = None,
) -> Prediction:
    """Add the encoder to what is expected until the first token.

    The projector is read when the program starts.

    Args:
        compute: as it was timed on the board; none where it was not.
        estimated: from the board's facts.
    """
    if media is None or found.verdict in ("cannot run", "unknown"):
        return found
    measured = 1.0
    if compute is not None and estimated is not None and compute.source == "operations":
        measured = compute.prompt_token_s.value / estimated.prompt_token_s.value
    taken = encoder_s(media, facts, threads=threads, measured=measured)
    reading = Expected.nothing()
    if resources.storage is not None:
        reading = resources.storage.cold_time_s(media.weights_bytes)
    return found.model_copy(
        update={
            "media": MediaForecast(need=media, encoder_s=taken),
            "load_s": found.load_s and found.load_s + reading,
            "ttft_s": found.ttft_s + reading + taken if found.ttft_s and taken else None,
        }
    )
