"""Figures as tables, charts and pages write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from armload.core import values
from armload.core.values import format_bytes, format_seconds, three_figures

if TYPE_CHECKING:
    from armload.engines.job import RateKind

_FIGURE = re.compile(r"\d[\d.,]*")

UNKNOWN = "-"

Item = TypeVar("Item")


def seconds(value: float | None) -> str:
    """Write a time with three figures, in milliseconds below one second."""
    return UNKNOWN if value is None else format_seconds(value)


def duration(seconds_in_all: float) -> str:
    """Write how long something has lasted, in the unit that a person would take."""
    for unit, scale in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds_in_all >= 2 * scale:
            return f"{seconds_in_all / scale:.0f} {unit}"
    return f"{seconds_in_all:.0f} s"


def rate(tokens_per_s: float | None) -> str:
    """Write tokens per second with three figures."""
    return UNKNOWN if tokens_per_s is None else three_figures(tokens_per_s)


def size(count: int | None) -> str:
    """Write a number of bytes."""
    return UNKNOWN if count is None else format_bytes(count)


def counted(count: int | None, thing: str) -> str:
    """Write a number of things, as far as it is known."""
    return UNKNOWN if count is None else values.counted(count, thing)


def weights(count: int) -> str:
    """Write a number of weights as model names do: ``293 k``, ``81.8 M``, ``8.03 B``."""
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if float(f"{count:.2e}") >= scale:
            return f"{three_figures(count / scale)} {unit}"
    return str(count)


MOSTLY_ACTIVE = 0.6
"""Share of a dense model's weights that a token uses at least, without a large table of tokens."""


def is_mostly_active(count: int, active: int) -> bool:
    """Say whether a token uses most of a model's weights: it is no mixture of experts."""
    return active > MOSTLY_ACTIVE * count


def all_weights(count: int, active: int) -> str:
    """Write a number of weights, and how many of them a token uses where those are far fewer."""
    if is_mostly_active(count, active):
        return weights(count)
    return f"{weights(count)} ({weights(active)})"


def minute(time_utc: str) -> str:
    """Write a time to the minute, in UTC: ``2026-11-21 02:15``."""
    return time_utc[:16].replace("T", " ")


def joules(value: float | None) -> str:
    """Write an energy with three figures, without its unit."""
    return UNKNOWN if value is None else three_figures(value)


def joules_per(*figures: tuple[float | None, str]) -> str:
    """Write joules per something, as far as they are known."""
    return ", ".join(
        f"{three_figures(joules)} J per {each}" for joules, each in figures if joules is not None
    )


def at_clock(hz: int | None) -> str:
    """Write at which clock a rate was measured, to stand behind it; nothing where unknown."""
    return "" if hz is None else f" at {hz / 1e6:.0f} MHz"


def known_rate(count: int | None, kind: RateKind | None) -> str:
    """Write what memory or storage gives, and how that is known; nothing where it is not."""
    return "" if count is None else f"{size(count)}/s{f' ({kind})' if kind else ''}"


def alike(found: Iterable[Item], sentence: Callable[[Item], str]) -> list[list[Item]]:
    """Group what has the same sentence but for its figures, in the order in which it comes."""
    groups: dict[str, list[Item]] = {}
    for each in found:
        groups.setdefault(_FIGURE.sub("#", sentence(each)), []).append(each)
    return list(groups.values())
