"""What a trace says of weights that are streamed."""

from __future__ import annotations

from typing import Literal

from armload.core.values import Value


class Weights(Value):
    """How an engine held its weights, from one step on, as its trace tells.

    Attributes:
        weights: ``streamed``; ``mapped`` where that was wanted and is not possible.
        before_step: the number of the first step that it holds for.
        reason: why they are not streamed.
        requested_bytes: to stay in memory; none where the program chose.
        available_bytes: of memory, before anything was held.
        weights_bytes: that one pass over the model reads, in whole pages.
        resident_bytes: of these, chosen to stay in memory.
        locked_bytes: of these, locked with ``mlock``.
        anonymous_bytes: of these, in anonymous memory without a lock: locking is not permitted.
        cached_bytes: of these, left in the page cache, because of swap neither was possible.
        released_bytes: given up because memory ran short.
        window_bytes: read ahead of the computation at most.
        lock_refused: ``RLIMIT_MEMLOCK``, or a kernel that cannot lock, stopped the locking.
        reads: ``direct`` into the program's own memory, or ``buffered`` by the page cache; ``both``
            while the program compares them.
        reads_because: why the program reads so; empty while it compares.
        direct_bytes_per_s, buffered_bytes_per_s: what the comparison found; 0 without one.
    """

    weights: Literal["streamed", "mapped"]
    before_step: int
    reason: str = ""
    requested_bytes: int | None = None
    available_bytes: int = 0
    weights_bytes: int = 0
    resident_bytes: int = 0
    locked_bytes: int = 0
    anonymous_bytes: int = 0
    cached_bytes: int = 0
    released_bytes: int = 0
    window_bytes: int = 0
    lock_refused: bool = False
    reads: Literal["direct", "buffered", "both"] = "both"
    reads_because: str = ""
    direct_bytes_per_s: int = 0
    buffered_bytes_per_s: int = 0

    @property
    def held_bytes(self) -> int:
        """Return how much stays in memory."""
        return self.locked_bytes + self.anonymous_bytes + self.cached_bytes

    @property
    def streamed_bytes(self) -> int:
        """Return how much one pass over the model reads from storage."""
        return self.weights_bytes - self.held_bytes if self.weights == "streamed" else 0
