"""What a trace says of weights that are streamed."""

from __future__ import annotations

from typing import Literal

from armload.core.values import Count, Value


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
        reads: ``direct`` into the program's own memory, or ``buffered`` by the page cache, where
            that is faster or the file system has nothing else; none in what an older armload
            recorded.
    """

    weights: Literal["streamed", "mapped"]
    before_step: Count
    reason: str = ""
    requested_bytes: Count | None = None
    available_bytes: Count = 0
    weights_bytes: Count = 0
    resident_bytes: Count = 0
    locked_bytes: Count = 0
    anonymous_bytes: Count = 0
    cached_bytes: Count = 0
    released_bytes: Count = 0
    window_bytes: Count = 0
    lock_refused: bool = False
    reads: Literal["direct", "buffered"] | None = None

    @property
    def held_bytes(self) -> int:
        """Return how much stays in memory."""
        return self.locked_bytes + self.anonymous_bytes + self.cached_bytes

    @property
    def streamed_bytes(self) -> int:
        """Return how much one pass over the model reads from storage."""
        return self.weights_bytes - self.held_bytes if self.weights == "streamed" else 0
