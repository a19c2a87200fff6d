"""What a board's memory and storage give, as a program of ours has measured it there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from armload.core.values import Value, parse_json

LITTLE = 0.1
"""Of one core, and of what was read: so much others may do without making a rate too low."""


class Rates(Value):
    """What was measured in the board's present boot.

    Attributes:
        memory_bytes_per_s: reading, by all cores at once, a buffer far larger than the caches;
            none when it was not measured.
        memory_threads: that read at once.
        memory_buffer_bytes, memory_passes: how much they read, and how often.
        memory_clock_hz: the memory's clock right after that; none where it is not known.
        storage_read_bytes_per_s: reading a file in order; none when it was not measured.
        storage_way: how it was read: ``direct`` past the page cache, or through it, after the file
            was dropped from it, where that was faster or there is nothing else.
        storage_other_way_bytes_per_s: reading it in the way that was slower; none where there is no
            direct I/O.
        storage_read_bytes: how much was read.
        memory_others_cpu, storage_others_cpu: how many cores other programs kept busy meanwhile.
        storage_others_read_bytes: what others read from any storage meanwhile.
    """

    memory_bytes_per_s: Annotated[int, Field(gt=0)] | None = None
    memory_threads: int | None = None
    memory_buffer_bytes: int | None = None
    memory_passes: int | None = None
    storage_read_bytes_per_s: Annotated[int, Field(gt=0)] | None = None
    storage_way: Literal["direct", "cache dropped"] | None = None
    storage_other_way_bytes_per_s: Annotated[int, Field(gt=0)] | None = None
    storage_read_bytes: int | None = None
    memory_clock_hz: Annotated[int, Field(gt=0)] | None = None
    memory_others_cpu: float | None = None
    storage_others_cpu: float | None = None
    storage_others_read_bytes: int | None = None

    @property
    def memory_is_settled(self) -> bool:
        """Whether the memory was measured while nobody else did much."""
        return self.memory_bytes_per_s is not None and not _is_much(self.memory_others_cpu)

    @property
    def storage_is_settled(self) -> bool:
        """Whether the storage was measured while nobody else did much, or read much."""
        read, others = self.storage_read_bytes or 0, self.storage_others_read_bytes or 0
        return (
            self.storage_read_bytes_per_s is not None
            and not _is_much(self.storage_others_cpu)
            and others <= LITTLE * read
        )

    def better_of(self, later: Rates) -> Rates:
        """Return what counts of two measurements in one boot, for memory and storage apart.

        Others can only make a rate too low: so the higher of two counts, unless the later one was
        measured while nobody else did much.
        """
        memory, storage = self.memory_bytes_per_s or 0, self.storage_read_bytes_per_s or 0
        update: dict[str, object] = {}
        if later.memory_is_settled or (later.memory_bytes_per_s or 0) > memory:
            update |= later.model_dump(include=_MEMORY)
        if later.storage_is_settled or (later.storage_read_bytes_per_s or 0) > storage:
            update |= later.model_dump(include=_STORAGE)
        return self.model_copy(update=update)


_MEMORY = {name for name in Rates.model_fields if name.startswith("memory_")}
_STORAGE = {name for name in Rates.model_fields if name.startswith("storage_")}


def _is_much(cores: float | None) -> bool:
    return cores is not None and cores > LITTLE


def read_rates(lines: Iterable[str]) -> Rates:
    """Read lines of JSON, each with what was measured at once, and return what counts of them.

    A line that makes no sense, as one that was cut with the power, counts for nothing.
    """
    found = Rates()
    for line in lines:
        with contextlib.suppress(ValueError):  # pydantic's errors are some, too
            found = found.better_of(Rates.model_validate(parse_json(line)))
    return found
