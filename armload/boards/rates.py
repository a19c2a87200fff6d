"""What a board's memory and storage give, as a program of ours has measured it there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from armload.core.values import Value


class Rates(Value):
    """What was measured in the board's present boot.

    Attributes:
        memory_bytes_per_s: reading, by all cores at once, a buffer far larger than the caches;
            none when it was not measured.
        memory_threads: that read at once.
        memory_buffer_bytes, memory_passes: how much they read, and how often.
        storage_read_bytes_per_s: reading a file in order; none when it was not measured.
        storage_way: ``direct`` past the page cache, or after the file was dropped from it.
        storage_read_bytes: how much was read.
    """

    memory_bytes_per_s: Annotated[int, Field(gt=0)] | None = None
    memory_threads: int | None = None
    memory_buffer_bytes: int | None = None
    memory_passes: int | None = None
    storage_read_bytes_per_s: Annotated[int, Field(gt=0)] | None = None
    storage_way: Literal["direct", "cache dropped"] | None = None
    storage_read_bytes: int | None = None


def read_rates(lines: Iterable[str]) -> Rates:
    """Read lines of JSON, each with what was measured at once; later ones win.

    A line that makes no sense, as one that was cut with the power, counts for nothing.
    """
    found: dict[str, object] = {}
    for line in lines:
        try:
            content = json.loads(line)
            Rates.model_validate(content)
        except (ValueError, ValidationError):
            continue
        found |= content
    return Rates.model_validate(found)
