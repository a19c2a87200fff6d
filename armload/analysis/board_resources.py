"""What is known of a board's memory and storage, and of what it measured itself."""

from __future__ import annotations

from armload.core.values import Value
from armload.engines.job import RateKind
from armload.engines.prediction import Expected
from armload.engines.weights import BoardMemory

STORAGE_RATE_DOUBT = 0.05
DECLARED_RATE_DOUBT = 0.15
"""Of reading in order: as measured on the board, and as a data sheet says."""


class Rate(Value):
    """What storage or memory gives.

    Attributes:
        kind: whether a program of ours measured it on the board, or its file declares it.
    """

    bytes_per_s: int
    kind: RateKind

    @classmethod
    def known(cls, measured: int | None, declared: int | None) -> Rate | None:
        """Return a rate: as measured, else as declared; none where it is neither."""
        if measured:
            return cls(bytes_per_s=measured, kind="measured")
        return cls(bytes_per_s=declared, kind="declared") if declared else None

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
