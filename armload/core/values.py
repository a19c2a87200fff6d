"""The base of every value that is read from, or written to, YAML and JSON."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Value(BaseModel):
    """A frozen value; an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_UNITS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_bytes(text: object) -> object:
    """Turn ``"2 GiB"`` or ``"165 MB"`` into a number of bytes; leave anything else alone.

    Decimal units are powers of 1000 and binary units powers of 1024 (IEC 80000-13).

    Raises:
        ValueError: the text is no number with one of those units.
    """
    if not isinstance(text, str):
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match.group(2) not in _UNITS:
        allowed = ", ".join(unit for unit in _UNITS if unit)
        raise ValueError(f"{text!r} is no size; write a number with one of {allowed}")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


ByteCount = Annotated[int, BeforeValidator(parse_bytes)]
"""A number of bytes; YAML may write it as ``2 GiB``."""


def format_bytes(count: float) -> str:
    """Write a number of bytes in decimal units, as storage makers do: ``1.5 GB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= 0.99995 * size:  # what would be written as 1000.0 of the smaller unit
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
