"""What stays in memory of streamed weights, what a token then reads, and how long both take."""

from __future__ import annotations

from dataclasses import dataclass

from armload.analysis.board_resources import BoardResources, MeasuredHits
from armload.analysis.compute import Compute
from armload.engines.engine import MemoryNeed
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.engines.prediction import Expected, HitRate
from armload.engines.weights import BoardMemory

STREAMING_OVERHEAD = Expected(value=1.03, low=1.0, high=1.10)
"""Time of streaming over the longer of computing and reading."""

READER_SLOWDOWN = 1.03
"""Of computing, while the thread that reads ahead needs a core that computes."""

SPENT_RESERVE = Expected(value=0.25, low=0.0, high=0.5)
"""Of the memory that streaming leaves free, what the weights it holds may take after all: they give
memory back only when less than half of it is left, see ``toolchains/native/armload_reserve.c``."""

SIMILAR_SLOTS = 0.1
"""Difference in the share of experts that stay within which a measured hit rate still holds."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """What stays in memory of streamed weights: of experts, and of all others, which come first.

    Attributes:
        leaves_experts_mapped: there is no memory for one layer's experts, so nothing is streamed.
    """

    dense_bytes: int
    expert_bytes: int
    window_bytes: int
    leaves_experts_mapped: bool = False


def held_weights(
    need: MemoryNeed, memory: BoardMemory, wanted_bytes: int | None
) -> tuple[Held, Held, Held]:
    """Return what is expected to stay, the least and the most.

    Args:
        wanted_bytes: to stay, where that was requested.
    """
    spent = SPENT_RESERVE
    shares = (spent.value, spent.low, spent.high)
    expected, least, most = (_held(need, memory, wanted_bytes, share) for share in shares)
    return expected, least, most


def _held(
    need: MemoryNeed, memory: BoardMemory, wanted_bytes: int | None, spent_reserve: float
) -> Held:
    free = memory.free_bytes - need.own_bytes + round(spent_reserve * memory.reserve_bytes)
    dense = need.bytes_per_token - need.expert_bytes_per_token
    layer, window = need.expert_layer_bytes, memory.window_bytes
    if not need.expert_bytes or dense + layer > free:
        room = free - window - layer
        kept = max(0, min(room, dense, room if wanted_bytes is None else wanted_bytes))
        return Held(
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
    return Held(dense_bytes=dense, expert_bytes=round(slots), window_bytes=window)


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


def _share_held(need: MemoryNeed, held: Held) -> float:
    return held.expert_bytes / need.expert_bytes if need.expert_bytes else 0.0


def _reads(need: MemoryNeed, held: Held, measured: MeasuredHits | None) -> _Reads:
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


def predict_streamed(
    need: MemoryNeed,
    held: tuple[Held, Held, Held],
    resources: BoardResources,
    compute: Compute | None,
    prompt_tokens: int,
    hits: MeasuredHits | None,
) -> dict[str, object]:
    """A part of the weights stays in memory; the rest is read ahead of computing.

    Experts are read when a token has chosen them, while computing waits; those of a prompt, which
    uses nearly all, ahead of it.

    Args:
        held: what is expected to stay, the least and the most.
    """
    if hits is not None and abs(hits.slot_share - _share_held(need, held[0])) > SIMILAR_SLOTS:
        hits = None
    # The less stays in memory, the more is read.
    read, most, least = (_reads(need, each, hits) for each in held)
    found: dict[str, object] = {
        "verdict": "streams",
        "storage_bytes_per_token": read.all_bytes,
        "hit_rate": read.hit_rate,
    }
    storage = resources.storage
    if storage is None:
        return found
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
