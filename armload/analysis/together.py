"""Which of several models a service holds in memory at a time, and what a switch takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from armload.core.values import format_bytes, format_seconds


class HeldModel(NamedTuple):
    """A model of a service.

    Attributes:
        name: what it is called.
        needed_bytes: weights, KV cache of all slots, and buffers.
        load_s: until it is in memory; none where that is unknown.
    """

    name: str
    needed_bytes: int
    load_s: float | None


class Together(NamedTuple):
    """How many of a service's models are in memory at a time.

    Attributes:
        most_loaded: at most.
        sentence: why, and how long a switch takes; empty for a single model.
    """

    most_loaded: int
    sentence: str


def held_together(
    models: Sequence[HeldModel], free_bytes: int, wanted: int | None = None
) -> Together:
    """Choose how many models are in memory at a time.

    Args:
        free_bytes: that the service may take.
        wanted: by the person; none for what fits.
    """
    if len(models) == 1:
        return Together(1, "")
    needs = sorted((each.needed_bytes for each in models), reverse=True)
    fitting = sum(1 for n in range(1, len(needs) + 1) if sum(needs[:n]) <= free_bytes) or 1
    chosen = min(wanted or fitting, len(models))
    names = [each.name for each in models]
    called = f"{', '.join(names[:-1])} and {names[-1]}"
    needed, free = format_bytes(sum(needs)), format_bytes(max(free_bytes, 0))
    if fitting == len(models):
        said = f"{called} fit into memory together ({needed} of {free})."
        if chosen < fitting:
            said += f" With --most-loaded {chosen}, a service loads {chosen} at a time."
    else:
        said = (
            f"{called} do not fit into memory together ({needed} of {free}): a service loads "
            f"{chosen} at a time."
        )
    if chosen > fitting:
        said += f" With --most-loaded {chosen}, the board may run out of memory."
    if chosen < len(models):
        said += _switch_words(models)
    return Together(chosen, said)


def _switch_words(models: Sequence[HeldModel]) -> str:
    times = [
        f"{format_seconds(each.load_s)} to {each.name}"
        for each in models
        if each.load_s is not None
    ]
    if not times:
        return " How long a switch takes is unknown: the storage's rate could not be measured."
    return f" A switch takes about {', '.join(times)}, less while the file is in the page cache."
