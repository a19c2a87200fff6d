r"""The boxes that models put final answers into: ``\boxed{…}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_OPENING = r"\boxed{"


class Box(NamedTuple):
    """What a box holds; an unclosed one holds the rest of the text."""

    content: str
    closed: bool


def box_from(text: str) -> Box:
    """Read a box whose opening brace has been read already; inner braces are balanced."""
    depth = 1
    for position, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return Box(content=text[:position], closed=True)
    return Box(content=text, closed=False)


def last_closed_box(text: str) -> str | None:
    """Return the content of the last box that is closed."""
    contents = [box.content for box in _boxes(text) if box.closed]
    return contents[-1] if contents else None


def _boxes(text: str) -> Iterator[Box]:
    start = text.find(_OPENING)
    while start >= 0:
        start += len(_OPENING)
        yield box_from(text[start:])
        start = text.find(_OPENING, start)
