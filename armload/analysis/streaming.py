"""Streamed weights: whether a run read what it should have, and how it is described."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from armload.analysis.summary import generating
from armload.boards.conditions import Conditions
from armload.core.values import format_bytes
from armload.engines.job import ModelRecord
from armload.engines.trace import Step, Trace
from armload.engines.weights import BoardMemory, WeightsSettings
from armload.engines.weights_record import Weights

READ_WITHIN = 0.05
"""Share of the streamed bytes by which the bytes read per token may differ from them."""

ROOM_BYTES = 4 << 20
"""Rows of a token embedding, and pages that neighbours share, are not counted as streamed."""

LOCKED_WITHIN_BYTES = 8 << 20
"""What a program may have locked beside the weights, and pages that two pieces share."""


def streamed_weights(header: Trace | None) -> Weights | None:
    """Return how the weights were held in the end; none where they were not streamed."""
    last = header.weights[-1] if header is not None and header.weights else None
    return last if last is not None and last.weights == "streamed" else None


def doubts_about_streaming(header: Trace | None, steps: Sequence[Step]) -> list[str]:
    """Hold what was read and locked against what the program says that it streams and locks."""
    weights = streamed_weights(header)
    decode = [step for step in generating(steps) if step.model == 0]
    if weights is None or not decode:
        return []
    settled = [step for step in decode if step.step >= weights.before_step][1:]
    return [*_about_bytes_read(weights, settled), *_about_locking(weights, decode)]


def _about_bytes_read(weights: Weights, steps: Sequence[Step]) -> list[str]:
    counted = [step.read_bytes for step in steps if step.read_bytes is not None]
    if not counted:
        return []
    read, streamed = median(counted), weights.streamed_bytes
    if abs(read - streamed) <= max(READ_WITHIN * streamed, ROOM_BYTES):
        return []
    said = (
        f"Each pass read {format_bytes(read)} from storage, but "
        f"{format_bytes(weights.weights_bytes)} of weights less the "
        f"{format_bytes(weights.held_bytes)} held in memory are {format_bytes(streamed)}"
    )
    if read < streamed:
        return [f"{said}: the rest was in the page cache. Use --cold, and less memory."]
    more = f"{said}: {format_bytes(read - streamed)} more than needed, with {weights.reads} reads."
    if weights.released_bytes:
        more += (
            f" Memory ran short, and {format_bytes(weights.released_bytes)} of weights were "
            "released: other programs took memory during the run."
        )
    return [more]


def _about_locking(weights: Weights, steps: Sequence[Step]) -> list[str]:
    locked = steps[-1].locked_bytes
    if locked is None or locked >= weights.locked_bytes - LOCKED_WITHIN_BYTES:
        return []
    return [
        (
            f"The program locked {format_bytes(weights.locked_bytes)} of weights, but the kernel "
            f"reports {format_bytes(locked)} of locked memory (VmLck)."
        )
    ]


def notes_about_weights(
    header: Trace | None, settings: WeightsSettings | None, model: ModelRecord, before: Conditions
) -> tuple[str, ...]:
    """Return what a reader of the figures should know of how the weights were held.

    Args:
        settings: how they were to be held; none of a program that has no choice.
        before: the board before the run.
    """
    if header is None:
        return ()
    if not header.weights:
        return _about_experts(settings, model, before)
    last = header.weights[-1]
    if last.weights == "mapped":
        return (f"The weights were not streamed: {last.reason}.",)
    notes = []
    if last.lock_refused:
        instead = "kept in anonymous memory" if last.anonymous_bytes else "left in the page cache"
        notes.append(
            f"Locking weights in memory was refused after {format_bytes(last.locked_bytes)}; the "
            f"rest was {instead}. On the board, 'ulimit -l unlimited' permits it, or "
            "RLIMIT_MEMLOCK of the service that starts the shell."
        )
    if last.released_bytes:
        notes.append(
            f"Memory ran short during the run: {format_bytes(last.released_bytes)} of resident "
            "weights were released, and streamed from then on."
        )
    return tuple(notes)


def _about_experts(
    settings: WeightsSettings | None, model: ModelRecord, before: Conditions
) -> tuple[str, ...]:
    memory = BoardMemory.of(before)
    fits = (model.size_bytes or 0) + memory.reserve_bytes <= memory.available_bytes
    if fits or not model.experts or settings is None or settings.weights != "auto":
        return ()
    return (
        (
            "The weights were not streamed, although they exceed the free memory: in a mixture of "
            "experts, a token decides which weights are read."
        ),
    )
