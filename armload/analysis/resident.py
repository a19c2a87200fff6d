"""What the resident memory of a run with streamed weights consists of."""

from __future__ import annotations

from itertools import pairwise

from armload.core.values import Value
from armload.engines.job import Job
from armload.engines.trace import Step, Trace
from armload.engines.weights_record import Weights

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
