"""Streamed weights: whether a run read what it should have, and what its memory consists of."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Literal

from armload.analysis.engine_options import context_tokens
from armload.analysis.finding import RunFinding
from armload.analysis.summary import generating
from armload.core.values import Value, format_bytes
from armload.engines.job import Job
from armload.engines.trace import Step, Trace, Weights

READ_WITHIN = 0.05
"""Share of the streamed bytes by which the bytes read per token may differ from them."""

ROOM_BYTES = 4 << 20
"""Rows of a token embedding, and pages that neighbours share, are not counted as streamed."""

LOCKED_WITHIN_BYTES = 8 << 20
"""What a program may have locked beside the weights, and pages that two pieces share."""


class StreamedBytes(RunFinding):
    """A pass read another number of bytes than the weights that are streamed."""

    name: ClassVar[str] = "streaming"
    kind: Literal["streamed bytes"] = "streamed bytes"
    read_bytes: float
    streamed_bytes: int
    weights_bytes: int
    held_bytes: int
    released_bytes: int
    reads: str

    def fact(self) -> str:
        said = (
            f"Each pass read {format_bytes(self.read_bytes)} from storage instead of "
            f"{format_bytes(self.streamed_bytes)} ({format_bytes(self.weights_bytes)} of weights "
            f"less {format_bytes(self.held_bytes)} held in memory)"
        )
        more = self.read_bytes - self.streamed_bytes
        if more < 0:
            return f"{said}: the rest was in the page cache."
        said = f"{said}: {format_bytes(more)} more than needed, with {self.reads} reads."
        if self.released_bytes:
            said += (
                f" Memory ran short, and {format_bytes(self.released_bytes)} of weights were "
                "released: other programs took memory during the run."
            )
        return said

    def advice(self) -> str:
        if self.read_bytes >= self.streamed_bytes:
            return ""
        return "Drop the page cache first (bench: --cold), and leave less memory free."


class LockedBytes(RunFinding):
    """The kernel counts less locked memory than the program says that it locked."""

    name: ClassVar[str] = "streaming"
    kind: Literal["locked bytes"] = "locked bytes"
    said_bytes: int
    counted_bytes: int

    def fact(self) -> str:
        return (
            f"The program locked {format_bytes(self.said_bytes)} of weights, but the kernel "
            f"reports {format_bytes(self.counted_bytes)} of locked memory (VmLck)."
        )


def streamed_weights(header: Trace | None) -> Weights | None:
    """Return how the weights were held in the end; none where they were not streamed."""
    last = header.weights[-1] if header is not None and header.weights else None
    return last if last is not None and last.weights == "streamed" else None


def doubts_about_streaming(
    header: Trace | None, steps: Sequence[Step]
) -> list[StreamedBytes | LockedBytes]:
    """Hold what was read and locked against what the program says that it streams and locks."""
    weights = streamed_weights(header)
    decode = [step for step in generating(steps) if step.model == 0]
    if weights is None or not decode:
        return []
    settled = [step for step in decode if step.step >= weights.before_step][1:]
    return [*_about_bytes_read(weights, settled), *_about_locking(weights, decode)]


def _about_bytes_read(weights: Weights, steps: Sequence[Step]) -> list[StreamedBytes]:
    counted = [step for step in steps if step.read_bytes is not None]
    if not counted:
        return []
    read = median(step.read_bytes or 0 for step in counted)
    missed = median(step.missed_bytes or 0 for step in counted)
    streamed = weights.streamed_bytes + round(missed)
    if abs(read - streamed) <= max(READ_WITHIN * streamed, ROOM_BYTES):
        return []
    return [
        StreamedBytes(
            read_bytes=read,
            streamed_bytes=streamed,
            weights_bytes=weights.weights_bytes,
            held_bytes=weights.held_bytes,
            released_bytes=weights.released_bytes,
            reads=weights.reads,
        )
    ]


def _about_locking(weights: Weights, steps: Sequence[Step]) -> list[LockedBytes]:
    locked = steps[-1].locked_bytes
    if locked is None or locked >= weights.locked_bytes - LOCKED_WITHIN_BYTES:
        return []
    return [LockedBytes(said_bytes=weights.locked_bytes, counted_bytes=locked)]


def notes_about_weights(header: Trace | None) -> list[str]:
    """Say what a reader of the figures should know of how the weights were held."""
    if header is None or not header.weights:
        return []
    last = header.weights[-1]
    if last.weights == "mapped":
        return [f"The weights were not streamed: {last.reason}."]
    notes = []
    if last.lock_refused:
        rest = "kept in anonymous memory" if last.anonymous_bytes else "left in the page cache"
        notes.append(
            f"Locking weights in memory was refused after {format_bytes(last.locked_bytes)}; "
            f"the rest was {rest}. To permit it, log in as root, or add 'USER - memlock "
            "unlimited' to the board's /etc/security/limits.conf."
        )
    if last.released_bytes:
        notes.append(
            f"Memory ran short during the run: {format_bytes(last.released_bytes)} of resident "
            "weights were released, and streamed from then on."
        )
    return notes


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
    context = context_tokens(job.command)
    memory = job.model.context_memory
    if job.plan is None or memory is None or context is None:
        return None
    return memory.size_bytes(context, kv_shares=job.plan.kv_shares)
