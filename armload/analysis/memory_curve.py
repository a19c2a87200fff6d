"""The time per token of a measured model with more or less free memory."""

from __future__ import annotations

from armload.analysis.board_resources import BoardResources, Rate
from armload.analysis.compute import Compute
from armload.analysis.prediction import Streaming, predict
from armload.analysis.streamed_prediction import SPENT_RESERVE
from armload.core.values import Value
from armload.engines.engine import MemoryNeed
from armload.engines.prediction import Expected
from armload.engines.weights import LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES, WINDOW_SHARE, BoardMemory


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
