"""What a model will need of a board and how fast it will be there, before it is uploaded.

Pure arithmetic: what a board gives and what its CPU takes for a token come from elsewhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Literal

from armload.analysis.board_resources import BoardResources, MeasuredHits, Rate
from armload.analysis.columns import FAULT_BYTES
from armload.analysis.compute import Compute
from armload.analysis.limit import BANDWIDTH_LIMITED_FROM
from armload.analysis.prediction_notes import note
from armload.analysis.streamed_prediction import SPENT_RESERVE, held_weights, predict_streamed
from armload.core.values import Value, format_bytes
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import KV_ROUNDING_TOKENS
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.engines.prediction import (
    Bottleneck,
    Expected,
    MemoryParts,
    Prediction,
    PredictionNote,
)
from armload.engines.weights import LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES, WINDOW_SHARE, BoardMemory

Streaming = Literal["never", "if needed", "always"]

REREAD_SHARE = Expected(value=0.96, low=0.9, high=1.0)
"""Of mapped weights that exceed the memory, read again for every token: read in the same order
each time, a page is evicted before it is needed again."""

FAULT_S = Expected(value=60e-6, low=0.0, high=160e-6)
"""Beside reading ``FAULT_BYTES`` of mapped weights: who waits for them asks for the next only then.
At 165 MB/s this is 8% of the time, at 800 MB/s a third."""

NOT_OVERLAPPED = Expected(value=0.1, low=0.0, high=0.5)
"""Share of computing during which mapped weights are not read."""


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
    held = held_weights(need, resources.memory, resident_bytes)
    expected = held[0]
    streams = streaming == "always" or (exceeds and streaming == "if needed")
    streams = streams and not expected.leaves_experts_mapped
    parts = MemoryParts(
        weights_bytes=need.weights_bytes,
        row_table_bytes=need.row_table_bytes,
        kv_bytes=need.kv_bytes,
        program_bytes=need.program_bytes,
        window_bytes=expected.window_bytes if streams else 0,
        reserve_bytes=resources.memory.reserve_bytes,
        available_bytes=resources.memory.available_bytes,
        reserved_bytes=need.reserved_bytes,
        is_exact=need.is_exact,
        projector_bytes=need.projector_bytes,
    )
    base = base.model_copy(update={"memory": parts})
    if parts.least_bytes > parts.available_bytes and not need.kv_is_exact:
        return base
    if parts.least_bytes > parts.available_bytes:
        count = need.sequences.count
        kv_room = max(0, parts.available_bytes - (parts.least_bytes - parts.kv_bytes))
        update = {
            "verdict": "cannot run",
            "largest_context": _context_that_fits(need, kv_room, count),
            "largest_alone": _context_that_fits(need, kv_room, 1) if count > 1 else None,
        }
        return base.model_copy(update=update)
    if (streams or exceeds) and resources.storage is None:
        notes = (*base.notes, note("storage rate unknown"))
        base = base.model_copy(update={"notes": notes})
    if streams:
        update = predict_streamed(need, held, resources, compute, prompt_tokens, hits)
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
        return found
    computing = compute.token_s if compute else Expected.nothing()
    faults = FAULT_S * (need.bytes_per_token / FAULT_BYTES)
    one_pass = (resources.storage.time_s(need.bytes_per_token) + faults) * REREAD_SHARE
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
    if not need.kv_is_exact:
        notes = (*notes, note("lower bound"))
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
