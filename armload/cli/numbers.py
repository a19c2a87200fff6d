"""Numbers that a person types."""

from __future__ import annotations

import math
import re

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def amount(option: str, text: str) -> float:
    """Read a number that is not negative.

    Raises:
        UsageError: it is none; names the option.
    """
    from armload.core.errors import UsageError

    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"--{option} {text!a}: must be a number of 0 or more.")
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
        UsageError: it is none above 0; names the option.
    """
    from armload.core.errors import UsageError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--{option} {text!a}: must be a time above 0, such as 90s, 30m or 2h.")
    return float(match[1]) * _SECONDS[match[2]]


def whole_number(option: str, text: str, *, least: int = 0, most: int | None = None) -> int | None:
    """Read a whole number; none where nothing was typed.

    Raises:
        UsageError: it is none, smaller than ``least``, or larger than ``most``; names the option.
    """
    from armload.core.errors import UsageError

    if not text:
        return None
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        upto = "or more" if most is None else f"to {most}"
        raise UsageError(f"--{option} {text!a}: must be a whole number, {least} {upto}.")
    return int(text)


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
            f"--{option} {text!a}: must be a percentage above 0 and below 100, such as 5%."
        )
    return number
