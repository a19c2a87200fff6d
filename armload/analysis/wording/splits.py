"""Which way of splitting a model between the members of a group was taken, and why."""

from __future__ import annotations

from collections.abc import Mapping

from armload.core.values import format_seconds
from armload.engines.prediction import GroupForecast, PartTime
from armload.engines.spread import Split


def chosen_between(
    best: Split, times_s: Mapping[Split, float], lacking: Mapping[Split, str]
) -> str:
    """Say which split was taken.

    Args:
        times_s: forecast per output token, where it is known.
        lacking: why a split cannot be had.
    """
    other: Split = "tensor" if best == "layer" else "layer"
    if other in lacking:
        return f"--split auto takes {best}; {other} is not possible: {lacking[other]}"
    if len(times_s) < 2:
        return f"--split auto takes {best}: the members' speed is unknown."
    return (
        f"--split auto takes {best}: about {format_seconds(times_s[best])} per token, compared "
        f"with {format_seconds(times_s[other])} with {other}."
    )


def part_name(part: PartTime) -> str:
    """Name a member, or the connection to it."""
    return part.board if part.kind == "member" else f"the connection to {part.board}"


def limited_by(found: GroupForecast) -> str:
    """Say what takes most of a token."""
    return part_name(found.longest)
