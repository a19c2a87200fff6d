"""Which of a board's cores a program may use, and for how much of the time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from armload.core.cpu_sets import cpu_numbers
from armload.core.values import LEAVES, Count, Finite, Value, whole_number

CoreSet = tuple[Count, ...]


class CpuAccess(Value):
    """What affinity and control groups leave a program of the CPU.

    Attributes:
        usual: cores that it runs on unless it asks for others, as by ``isolcpus`` or ``taskset``;
            none where the board does not say.
        allowed: cores that it may ask for, as by a cpuset; none for all.
        quota: CPU time that its control groups leave it, in cores; none for all of it.
    """

    usual: Annotated[CoreSet | None, LEAVES] = None
    allowed: Annotated[CoreSet | None, LEAVES] = None
    quota: Annotated[Annotated[Finite, Field(gt=0)] | None, LEAVES] = None

    @property
    def quota_threads(self) -> int | None:
        """How many threads the quota keeps busy, at least one; none without a quota."""
        return None if self.quota is None else max(1, math.floor(self.quota))


def read_cpu_access(lines: Sequence[str]) -> CpuAccess:
    """Read lines ``affinity CORES``, ``groups``, ``cpuset CORES`` and ``quota TIME PERIOD``.

    ``groups`` says that there are control groups: where none of them shows a cpuset, as in a
    container that does not see them, no more than the affinity is known to be allowed.
    """
    told: dict[str, str] = {}
    quotas = []
    for line in lines:
        key, _, value = line.strip().partition(" ")
        if key == "quota":
            quotas += _quota(value)
        else:
            told.setdefault(key, value)
    usual, cpuset = (_cores(told.get(key, "")) for key in ("affinity", "cpuset"))
    return CpuAccess(
        usual=usual,
        allowed=cpuset if cpuset or "groups" not in told else usual,
        quota=min(quotas, default=None),
    )


def _cores(words: str) -> CoreSet | None:
    if not re.fullmatch(r"[0-9,-]{1,4096}", words):
        return None
    try:
        return cpu_numbers(words)
    except ValueError:
        return None


def _quota(words: str) -> list[float]:
    """Return the cores that a quota leaves; ``max`` and -1 are none."""
    numbers = [whole_number(word) for word in words.split()]
    match numbers:
        case [int() as time, int() as period] if time > 0 and period > 0:
            return [time / period]
        case _:
            return []
