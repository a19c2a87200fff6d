"""Pages of help: options under their headings, as wide as the terminal, 80 columns in a pipe."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from armload.core.options import LETTERS, Declared

_HEADINGS = (
    *("Program", "Service", "Arrivals", "Load", "Search", "Limits", "Plan", "Task"),
    *("Quantisation", "Repeats", "Engine", "Cores", "Board", "Conditions", "Build", "Output"),
)
_MOST_UNGROUPED = 9
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


def grouped(options: Sequence[Declared]) -> dict[str, list[Declared]]:
    """Return a verb's options as help lists them: under one heading, or many under several."""
    usual_first = sorted(options, key=_rank)
    if len(options) <= _MOST_UNGROUPED:
        return {"Options": usual_first}
    groups = {
        heading: [each for each in usual_first if each.heading == heading] for heading in _HEADINGS
    }
    return {heading: group for heading, group in groups.items() if group}


def _rank(option: Declared) -> int:
    """Put what is used most first, which has a letter, and the output last."""
    return 2 if option.name == "json" else int(option.name not in LETTERS)


def shown(option: Declared) -> str:
    """Return an option as help shows it: ``-b, --board BOARD``."""
    letter = LETTERS.get(option.name)
    return f"{f'-{letter}, ' if letter else '    '}--{option.name} {option.value}".rstrip()


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
