"""The real frequency of cores around a run, where the one that is shown cannot be trusted.

Raspberry Pi's firmware lowers the clock without telling the kernel, which shows what it asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from armload.core.values import Count, Value, parse_json

FILE_NAME = "clock"

SLOWER_FROM = 0.90
"""A core whose real frequency is below this share of the one shown is slower than it says."""

_FASTEST_KHZ = 10_000_000


class MeasuredClock(Value):
    """What ``toolchains/board/clock.c`` found on one core.

    Attributes:
        moment: before or after the program.
        cycles: that passed in ``ns``.
        by: the CPU's counter, or a loop of known cycles.
        shown_khz: by the kernel at that moment; 0 for nothing.
    """

    moment: Literal["before", "after"]
    core: Count
    cycles: Annotated[Count, Field(gt=0)]
    ns: Annotated[Count, Field(gt=0)]
    by: Literal["counter", "loop"]
    shown_khz: Count

    @property
    def khz(self) -> int:
        """The real frequency."""
        return round(self.cycles * 1_000_000 / self.ns)

    @property
    def is_slower_than_shown(self) -> bool:
        """Whether the kernel shows a frequency that the core does not have."""
        return self.khz < SLOWER_FROM * self.shown_khz


def read_clocks(folder: Path) -> tuple[MeasuredClock, ...]:
    """Read what was measured around a run; empty where nothing was, or nothing that makes sense."""
    try:
        lines = (folder / FILE_NAME).read_bytes().split(b"\n")
    except OSError:
        return ()
    found, moment = [], "before"
    for line in lines:
        if line == b"#after":
            moment = "after"
        try:
            each = MeasuredClock.model_validate({"moment": moment, **dict(parse_json(line))})
        except (ValueError, TypeError):
            continue
        if each.khz < _FASTEST_KHZ:
            found.append(each)
    return tuple(found)
