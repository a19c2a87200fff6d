"""Streamed weights: whether a run read what it should have, and what its memory consists of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from armload.analysis.summary import generating
from armload.boards.conditions import Conditions
from armload.core.values import Value, format_bytes
from armload.engines.job import Job, ModelRecord
from armload.engines.trace import Step, Trace, Weights
from armload.engines.weights import BoardMemory, WeightsSettings

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


_CONTEXT_OPTIONS = ("-c", "--ctx-size")


class ResidentParts(Value):
    """Resident memory at the end of a step; the parts sum up to ``Step.rss_bytes``.

    Attributes:
        locked_bytes: as the kernel reports it (``VmLck``).
        unlocked_bytes: weights that stay in memory without a lock.
        streamed_bytes: weights that were read ahead, at most: the kernel reports resident pages of
            the file in one sum, so everything that fits into the window counts as such.
        kv_bytes: of the KV cache.
        other_bytes: the rest: the program, its buffers, and weights that are never streamed.
    """

    locked_bytes: int
    unlocked_bytes: int
    streamed_bytes: int
    kv_bytes: int
    other_bytes: int


def resident_parts(step: Step, weights: Weights, kv_bytes: int) -> ResidentParts:
    """Split a step's resident memory.

    Args:
        weights: how they were held at this step.
        kv_bytes: of the whole KV cache, which the engine clears, and so touches, when it starts.
    """
    locked = weights.locked_bytes if step.locked_bytes is None else step.locked_bytes
    rest = max(0, step.rss_bytes - locked)
    unlocked = min(weights.anonymous_bytes + weights.cached_bytes, rest)
    rest -= unlocked
    kv = min(kv_bytes, rest)
    rest -= kv
    streamed = min(weights.window_bytes, weights.streamed_bytes, rest)
    return ResidentParts(
        locked_bytes=min(locked, step.rss_bytes),
        unlocked_bytes=unlocked,
        streamed_bytes=streamed,
        kv_bytes=kv,
        other_bytes=rest - streamed,
    )


def weights_at(header: Trace, step: Step) -> Weights:
    """Return how the weights were held at a step of a trace that says so."""
    known = [each for each in header.weights if each.before_step <= step.step]
    return known[-1] if known else header.weights[0]


def kv_cache_bytes(job: Job) -> int | None:
    """Return the size of the KV cache; none where context or model is not known."""
    words = job.command
    contexts = [
        value
        for option, value in pairwise(words)
        if option in _CONTEXT_OPTIONS and value.isdecimal()
    ]
    if job.plan is None or job.model.kv_bytes_per_token is None or not contexts:
        return None
    return round(int(contexts[-1]) * job.model.kv_bytes_per_token * job.plan.kv_share)
