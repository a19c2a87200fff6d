"""What a model will need of a board and how fast it will be there, before it is uploaded.

Pure arithmetic: what a board gives and what its CPU takes for a token come from elsewhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from armload.analysis.compute import Compute
from armload.analysis.limit import BANDWIDTH_LIMITED_FROM
from armload.analysis.wording.prediction_notes import note
from armload.core.values import Value, format_bytes
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import KV_ROUNDING_TOKENS
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.engines.prediction import (
    Bottleneck,
    Expected,
    HitRate,
    MemoryParts,
    Prediction,
    PredictionNote,
)
from armload.engines.weights import LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES, WINDOW_SHARE, BoardMemory

Streaming = Literal["never", "if needed", "always"]

STREAMING_OVERHEAD = Expected(value=1.03, low=1.0, high=1.10)
"""Time of streaming over the longer of computing and reading."""

READER_SLOWDOWN = 1.03
"""Of computing, while the thread that reads ahead needs a core that computes."""

SPENT_RESERVE = Expected(value=0.25, low=0.0, high=0.5)
"""Of the memory that streaming leaves free, what the weights it holds may take after all: they give
memory back only when less than half of it is left, see ``toolchains/native/armload_reserve.c``."""

REREAD_SHARE = Expected(value=0.96, low=0.9, high=1.0)
"""Of mapped weights that exceed the memory, read again for every token: read in the same order
each time, a page is evicted before it is needed again."""

NOT_OVERLAPPED = Expected(value=0.1, low=0.0, high=0.5)
"""Share of computing during which mapped weights are not read."""

STORAGE_RATE_DOUBT = 0.05
DECLARED_RATE_DOUBT = 0.15
"""Of reading in order: as measured on the board, and as a data sheet says."""

SIMILAR_SLOTS = 0.1
"""Difference in the share of experts that stay within which a measured hit rate still holds."""


class Rate(Value):
    """What storage or memory gives.

    Attributes:
        kind: whether a program of ours measured it on the board, or its file declares it.
    """

    bytes_per_s: int
    kind: Literal["measured", "declared"]

    def time_s(self, size_bytes: float) -> Expected:
        doubt = STORAGE_RATE_DOUBT if self.kind == "measured" else DECLARED_RATE_DOUBT
        return Expected.within(size_bytes / self.bytes_per_s, doubt)

    def time_between(self, size_bytes: int, least_bytes: int, most_bytes: int) -> Expected:
        """Expect a size between two others."""
        return Expected(
            value=self.time_s(size_bytes).value,
            low=self.time_s(least_bytes).low,
            high=self.time_s(most_bytes).high,
        )

    def cold_time_s(self, size_bytes: float) -> Expected:
        """Expect what may as well lie in memory, and then takes no time."""
        return self.time_s(size_bytes).model_copy(update={"low": 0.0})


class MeasuredHits(Value):
    """How often an earlier run of a mixture found its experts in memory.

    Attributes:
        slot_share: of the experts, that stayed there.
    """

    hit_rate: float
    slot_share: float


class BoardResources(Value):
    """What is known of a board; none where it is not.

    Attributes:
        storage, memory_rate: reading in order.
    """

    memory: BoardMemory | None = None
    storage: Rate | None = None
    memory_rate: Rate | None = None


def predict(
    need: MemoryNeed,
    resources: BoardResources,
    compute: Compute | None,
    *,
    prompt_tokens: int,
    streaming: Streaming,
    resident_bytes: int | None = None,
    hits: MeasuredHits | None = None,
) -> Prediction:
    """Predict a run.

    Args:
        need: memory of the model and its context.
        resources: what is known of the board.
        compute: what computing takes there; none where it is unknown.
        prompt_tokens: of the prompt.
        streaming: whether weights are streamed, or left to the page cache.
        resident_bytes: of streamed weights, that stay in memory; none for what fits.
        hits: of streamed experts, where they were measured.
    """
    base = Prediction(
        verdict="unknown",
        context_tokens=need.context_tokens,
        sequences=need.sequences,
        prompt_tokens=prompt_tokens,
        compute=compute.source if compute else "unknown",
        notes=_notes(need, compute),
    )
    if resources.memory is None:
        return base
    exceeds = not resources.memory.holds(need)
    held, most_held, least_held = (
        _held(need, resources.memory, resident_bytes, share)
        for share in (SPENT_RESERVE.value, SPENT_RESERVE.high, SPENT_RESERVE.low)
    )
    streams = streaming == "always" or (exceeds and streaming == "if needed")
    streams = streams and not held.leaves_experts_mapped
    parts = MemoryParts(
        weights_bytes=need.weights_bytes,
        row_table_bytes=need.row_table_bytes,
        kv_bytes=need.kv_bytes,
        program_bytes=need.program_bytes,
        window_bytes=held.window_bytes if streams else 0,
        reserve_bytes=resources.memory.reserve_bytes,
        available_bytes=resources.memory.available_bytes,
        reserved_bytes=need.reserved_bytes,
        is_exact=need.is_exact,
    )
    base = base.model_copy(update={"memory": parts})
    if parts.least_bytes > parts.available_bytes and not need.kv_is_exact:
        return base.model_copy(update={"notes": (*base.notes, note("lower bound"))})
    if parts.least_bytes > parts.available_bytes:
        count = need.sequences.count
        kv_room = max(0, parts.available_bytes - (parts.least_bytes - parts.kv_bytes))
        update = {
            "verdict": "cannot run",
            "largest_context": _context_that_fits(need, kv_room, count),
            "largest_alone": _context_that_fits(need, kv_room, 1) if count > 1 else None,
        }
        return base.model_copy(update=update)
    if streams:
        every_held = (held, most_held, least_held)
        update = _streamed(need, every_held, resources, compute, prompt_tokens, hits)
        return base.model_copy(update=update)
    if not exceeds:
        return base.model_copy(update=_resident(need, resources, compute, prompt_tokens))
    return base.model_copy(update=_mapped(need, resources, compute, prompt_tokens))


def _context_that_fits(need: MemoryNeed, room_bytes: int, sequences: int) -> int:
    """Return the largest context of each of so many sequences, as the engine rounds it."""
    count = need.sequences.count
    as_planned = need.kv_cache.size_bytes(need.context_tokens // count, count)
    if not as_planned:
        return 0
    # Where the rules of an architecture give less than the engine allocates, they are scaled.
    scale = need.kv_bytes / as_planned
    blocks = range(need.context_tokens // sequences // KV_ROUNDING_TOKENS + 1)
    fitting = bisect_right(
        blocks,
        room_bytes,
        key=lambda block: math.ceil(
            scale * need.kv_cache.size_bytes(block * KV_ROUNDING_TOKENS, sequences)
        ),
    )
    return max(0, fitting - 1) * KV_ROUNDING_TOKENS


def _resident(
    need: MemoryNeed, resources: BoardResources, compute: Compute | None, prompt_tokens: int
) -> dict[str, object]:
    """Weights stay in memory; the file may lie there already, or not."""
    found: dict[str, object] = {"verdict": "fits"}
    if compute is None:
        return found
    load = compute.load_s
    if resources.storage is not None:
        load += resources.storage.cold_time_s(need.weights_bytes)
    bottleneck: Bottleneck = "unknown" if compute.source == "roofline" else "compute"
    if compute.is_memory_bound is not None:
        bottleneck = "memory bandwidth" if compute.is_memory_bound else "compute"
    elif resources.memory_rate is not None:
        share = need.bytes_per_token / compute.token_s.value / resources.memory_rate.bytes_per_s
        bottleneck = "memory bandwidth" if share >= BANDWIDTH_LIMITED_FROM else "compute"
    return found | {
        "load_s": load,
        "ttft_s": load + compute.prompt_s(prompt_tokens),
        "token_s": compute.token_s,
        "bottleneck": bottleneck,
    }


@dataclass(frozen=True, kw_only=True)
class _Held:
    """What stays in memory of streamed weights: of experts, and of all others, which come first.

    Attributes:
        leaves_experts_mapped: there is no memory for one layer's experts, so nothing is streamed.
    """

    dense_bytes: int
    expert_bytes: int
    window_bytes: int
    leaves_experts_mapped: bool = False


def _held(
    need: MemoryNeed, memory: BoardMemory, wanted_bytes: int | None, spent_reserve: float
) -> _Held:
    free = memory.free_bytes - need.own_bytes + round(spent_reserve * memory.reserve_bytes)
    dense = need.bytes_per_token - need.expert_bytes_per_token
    layer, window = need.expert_layer_bytes, memory.window_bytes
    if not need.expert_bytes or dense + layer > free:
        room = free - window - layer
        kept = max(0, min(room, dense, room if wanted_bytes is None else wanted_bytes))
        return _Held(
            dense_bytes=kept,
            expert_bytes=0,
            window_bytes=window + layer,
            leaves_experts_mapped=bool(need.expert_bytes) and window + layer > free,
        )
    # The experts of a layer that have no slot share a window.
    passing = layer / need.expert_bytes
    slots = min(need.expert_bytes, (free - dense - layer) / max(1 - passing, passing))
    if wanted_bytes is not None:
        dense, slots = min(dense, wanted_bytes), max(0, min(slots, wanted_bytes - dense))
    window = round(layer * (1 - slots / need.expert_bytes))
    return _Held(dense_bytes=dense, expert_bytes=round(slots), window_bytes=window)


@dataclass(frozen=True, kw_only=True)
class _Reads:
    """What a token reads of streamed weights.

    Attributes:
        dense_bytes: ahead of computing.
        missed_bytes: of experts, while computing waits.
        expert_share: of the experts, that stay in memory.
        hit_rate: of the experts that a token uses.
    """

    dense_bytes: int
    missed_bytes: int
    expert_share: float
    hit_rate: HitRate | None

    @property
    def all_bytes(self) -> int:
        return self.dense_bytes + self.missed_bytes


def _share_held(need: MemoryNeed, held: _Held) -> float:
    return held.expert_bytes / need.expert_bytes if need.expert_bytes else 0.0


def _reads(need: MemoryNeed, held: _Held, measured: MeasuredHits | None) -> _Reads:
    used = need.expert_bytes_per_token
    dense_bytes = need.bytes_per_token - used - held.dense_bytes
    if not need.expert_bytes:
        return _Reads(dense_bytes=dense_bytes, missed_bytes=0, expert_share=0.0, hit_rate=None)
    share = _share_held(need, held)
    hits = (
        HitRate(value=share, kind="assumed")
        if measured is None
        else HitRate(value=measured.hit_rate, kind="measured")
    )
    return _Reads(
        dense_bytes=dense_bytes,
        missed_bytes=round((1 - hits.value) * used),
        expert_share=share,
        hit_rate=hits,
    )


def _streamed(
    need: MemoryNeed,
    held: tuple[_Held, _Held, _Held],
    resources: BoardResources,
    compute: Compute | None,
    prompt_tokens: int,
    hits: MeasuredHits | None,
) -> dict[str, object]:
    """A part of the weights stays in memory; the rest is read ahead of computing.

    Experts are read when a token has chosen them, while computing waits; those of a prompt, which
    uses nearly all, ahead of it.

    Args:
        held: what is expected to stay, the most, and the least.
    """
    if hits is not None and abs(hits.slot_share - _share_held(need, held[0])) > SIMILAR_SLOTS:
        hits = None
    # The more stays in memory, the less is read.
    read, least, most = (_reads(need, each, hits) for each in held)
    found: dict[str, object] = {
        "verdict": "streams",
        "storage_bytes_per_token": read.all_bytes,
        "hit_rate": read.hit_rate,
    }
    storage = resources.storage
    if storage is None:
        return found | {"notes": (*_notes(need, compute), note("storage rate unknown"))}
    reading = storage.time_between(read.dense_bytes, least.dense_bytes, most.dense_bytes)
    waiting = storage.time_between(read.missed_bytes, least.missed_bytes, most.missed_bytes)
    computing = compute.token_s * READER_SLOWDOWN if compute else Expected.nothing()
    used, experts = need.expert_bytes_per_token, need.expert_bytes
    further = -(-prompt_tokens // MICRO_BATCH_TOKENS) - 1
    touched = experts * (1 - (1 - used / experts) ** prompt_tokens) if experts else 0.0
    again = further * (read.dense_bytes + (1 - read.expert_share) * touched)
    first = storage.time_s(need.bytes_per_token - used + touched + again)
    prompt = compute.prompt_s(prompt_tokens) * READER_SLOWDOWN if compute else Expected.nothing()
    load = compute.load_s if compute else Expected.nothing()
    token_s = computing.longer(reading) + waiting
    return found | {
        "load_s": load,
        "ttft_s": load + prompt.longer(first) * STREAMING_OVERHEAD,
        "token_s": token_s * STREAMING_OVERHEAD,
        "bottleneck": "storage" if reading.value + waiting.value >= computing.value else "compute",
    }


def _mapped(
    need: MemoryNeed, resources: BoardResources, compute: Compute | None, prompt_tokens: int
) -> dict[str, object]:
    """Weights are left to the page cache, which holds hardly any until they are needed again."""
    read_bytes = round(REREAD_SHARE.value * need.bytes_per_token)
    found: dict[str, object] = {
        "verdict": "reads storage",
        "storage_bytes_per_token": read_bytes,
        "bottleneck": "storage",
    }
    if resources.storage is None:
        return found | {"notes": (*_notes(need, compute), note("storage rate unknown"))}
    computing = compute.token_s if compute else Expected.nothing()
    one_pass = resources.storage.time_s(need.bytes_per_token) * REREAD_SHARE
    token = computing.longer(one_pass + computing * NOT_OVERLAPPED)
    # Loading maps the file, reads all of it ahead, and warms up with a token.
    load = resources.storage.time_s(need.weights_bytes) + token
    passes = -(-prompt_tokens // MICRO_BATCH_TOKENS)
    prompt = compute.prompt_s(prompt_tokens) if compute else Expected.nothing()
    if compute:
        load += compute.load_s
    return found | {
        "load_s": load,
        "ttft_s": load + prompt.longer(one_pass * float(passes) + prompt * NOT_OVERLAPPED),
        "token_s": token,
    }


def _notes(need: MemoryNeed, compute: Compute | None) -> tuple[PredictionNote, ...]:
    notes = tuple(map(note, compute.notes)) if compute else ()
    if not need.row_table_bytes:
        return notes
    return (
        *notes,
        note("read by row", subject=need.name, reason=format_bytes(need.row_table_bytes)),
    )


class MemoryCurve(Value):
    """A model on a board that has been measured, predicted as ``fit`` does it.

    Attributes:
        need: the model's need of memory.
        compute_s: of a token, without waiting for storage.
        storage: what storage gives.
        total_bytes: memory of the board, which decides what is left free.
    """

    need: MemoryNeed
    compute_s: float
    storage: Rate
    total_bytes: int

    @property
    def enough_bytes(self) -> int:
        """The free memory with which nothing is read from storage."""
        return self.need.wanted_bytes + self._memory(0).reserve_bytes

    def free_bytes(self, resident_bytes: int) -> int:
        """Return the free memory that leaves so much for streamed weights."""
        needed = resident_bytes + self._beside_weights_bytes
        window = needed // (WINDOW_SHARE - 1)  # a share of the sum of both
        return needed + min(max(window, LEAST_WINDOW_BYTES), MOST_WINDOW_BYTES)

    def token_s(self, free_bytes: int, streaming: Streaming) -> float | None:
        """Return the time per token; none where the KV cache does not fit."""
        now = Expected.within(self.compute_s, 0.0)
        resources = BoardResources(memory=self._memory(free_bytes), storage=self.storage)
        found = predict(
            self.need,
            resources,
            Compute(token_s=now, prompt_token_s=now, load_s=now, source="operations"),
            prompt_tokens=1,
            streaming=streaming,
        )
        return found.token_s.value if found.token_s else None

    def _memory(self, free_bytes: int) -> BoardMemory:
        return BoardMemory(total_bytes=self.total_bytes, available_bytes=free_bytes)

    @property
    def _beside_weights_bytes(self) -> int:
        kept_free = (1 - SPENT_RESERVE.value) * self._memory(0).reserve_bytes
        return self.need.own_bytes + round(kept_free)
