"""Numbers that a person types."""

from __future__ import annotations

import math


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
        raise UsageError(f"--{option} {text!a}: a number of 0 or more is needed.")
    return number
