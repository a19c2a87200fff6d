"""All tries of a seed, and armload's patience shortened for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from armload.boards import device_tool, power
from armload.core import download
from tests.hostile.boards import probes, tools
from tests.hostile.files import files
from tests.hostile.hubs import hubs
from tests.hostile.meters import commands, plugs, sensors
from tests.hostile.tries import Area, Try


def tries(seed: int, root: Path, each: int) -> Iterator[tuple[Area, Try]]:
    """Yield so many tries of each area, always the same for a seed."""
    makers: Sequence[tuple[Area, Callable[[random.Random, Path], Iterator[Try]]]] = (
        ("plug", plugs),
        ("command", commands),
        ("sensor", sensors),
        ("tool", tools),
        ("hub", hubs),
        ("file", files),
        ("probe", probes),
    )
    for area, make in makers:
        found = make(random.Random(f"{seed} {area}"), root)
        for _ in range(each):
            yield area, next(found)


@contextmanager
def impatient() -> Iterator[None]:
    """Shorten what armload waits for a silent hub, tool or meter: many tries take minutes."""
    changed: list[tuple[Any, str, float]] = [
        (download, "ANSWER_TIMEOUT_S", 1),
        (download, "_BEGIN_WITHIN_S", 1.0),
        (download, "_BODY_WITHIN_S", 3.0),
        (download, "_FIRST_PAUSE_S", 0.01),
        (download, "LONGEST_WAIT_S", 0.1),
        (power, "_TIMEOUT_S", 1.0),
        (device_tool, "_CALL_TIMEOUT_S", 1.0),
    ]
    former = [getattr(module, name) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(changed, former, strict=True):
            setattr(module, name, value)
