"""Sets of a board's cores, written as the kernel does: ``0-3,6``."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIGHEST_CPU = 1023


def cpu_numbers(words: str) -> tuple[int, ...]:
    """Return the numbers that a set such as ``0-3,6`` names, in order.

    Raises:
        ValueError: it names none, or is written otherwise.
    """
    numbers: set[int] = set()
    for part in words.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if match is None:
            raise ValueError("give core numbers and ranges, such as 4-7 or 0-3,6")
        first = int(match[1])
        last = int(match[2] or first)
        if not first <= last <= HIGHEST_CPU:
            raise ValueError(f"{part} is not a range of cores between 0 and {HIGHEST_CPU}")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def cpu_mask(words: str) -> str:
    """Return a set as a hexadecimal mask, core 0 in its last bit."""
    return f"{sum(1 << number for number in cpu_numbers(words)):x}"


def cpu_words(numbers: Iterable[int]) -> str:
    """Write a set as the kernel does, with ranges."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ",".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in ranges)
