"""Pages of help as wide as the terminal, 80 columns in a pipe; no word is broken."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

_INDENT = 2
_GAP = 2
_NARROWEST_MEANING = 30
_EXAMPLE = "Example: "


def prose(text: str) -> str:
    """Fill the paragraphs of a text anew; an example is a command, and keeps its line."""
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def columns(pairs: Sequence[tuple[str, str | None]], *, widest: int = 0) -> str:
    """Lay out words and what they mean, beside each other or, on a narrow terminal, beneath.

    Several lists whose longest word is ``widest`` are aligned.
    """
    indent = _INDENT + max(widest, *(len(word) for word, _ in pairs)) + _GAP
    is_beside = _width() - indent >= _NARROWEST_MEANING
    lines: list[str] = []
    for word, meaning in pairs:
        start = f"{'':{_INDENT}}{word}"
        if is_beside:
            start = start.ljust(indent)
        else:
            lines.append(start)
            start = " " * 4 * _INDENT
        lines.append(_filled(meaning or "", start) or start.rstrip())
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> str:
    about, _, example = text.partition(_EXAMPLE)
    parts = [_filled(about)] if about else []
    return "\n".join([*parts, f"{_EXAMPLE}{example}"] if example else parts)


def _filled(text: str, start: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _width(),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width() -> int:
    return shutil.get_terminal_size().columns
