"""Numbers that a person types."""

from __future__ import annotations

import math
import re

MOST = 2**31 - 1
"""Of any number: the engine, and shells on small boards, count in 32 bits."""

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_MOST_DIGITS = 20
_LONGEST_QUOTED = 40


def amount(option: str, text: str, *, most: float = MOST) -> float:
    """Read a number that is not negative.

    Raises:
        UsageError: it is none, or larger than ``most``; names the option.
    """
    from armload.core.errors import UsageError

    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        raise UsageError(f"--{option} {_quoted(text)}: must be a number from 0 to {most:,}.")
    return number


def above_0(option: str, text: str) -> float:
    """Read a number above 0.

    Raises:
        UsageError: it is none; names the option.
    """
    from armload.core.errors import UsageError

    if (number := amount(option, text)) == 0:
        raise UsageError(f"--{option} {text!a}: must be above 0.")
    return number


def duration_s(option: str, text: str) -> float:
    """Read a time such as ``90s``, ``30m`` or ``2h``; without a unit it is seconds.

    Raises:
        UsageError: it is none above 0, or too long; names the option.
    """
    from armload.core.errors import UsageError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    time_s = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < time_s <= MOST:
        raise UsageError(
            f"--{option} {_quoted(text)}: must be a time above 0, such as 90s, 30m or 2h."
        )
    return time_s


def whole_number(option: str, text: str, *, least: int = 0, most: int = MOST) -> int | None:
    """Read a whole number; none where nothing was typed.

    Raises:
        UsageError: it is none, smaller than ``least``, or larger than ``most``; names the option.
    """
    from armload.core.errors import UsageError

    if not text:
        return None
    number = int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else -1
    if not least <= number <= most:
        raise UsageError(
            f"--{option} {_quoted(text)}: must be a whole number from {least:,} to {most:,}."
        )
    return number


def _quoted(text: str) -> str:
    return ascii(text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}...")


def share(option: str, text: str) -> float:
    """Read a percentage above 0 and below 100, such as ``5%`` or ``5``, as a share of 1.

    Raises:
        UsageError: it is none; names the option.
    """
    from armload.core.errors import UsageError

    try:
        number = float(text.removesuffix("%")) / 100
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise UsageError(
            f"--{option} {_quoted(text)}: must be a percentage above 0 and below 100, such as 5%."
        )
    return number
