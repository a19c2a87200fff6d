"""Numbers as people and models type them, written in ASCII."""

from __future__ import annotations

import re
import unicodedata

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_MINUS = dict.fromkeys("\N{MINUS SIGN}\N{EN DASH}\N{HYPHEN}\N{NON-BREAKING HYPHEN}", "-")
_SLASHES = dict.fromkeys("\N{FRACTION SLASH}\N{DIVISION SLASH}", "/")
_AS_TYPED = str.maketrans(_MINUS | _SLASHES)
_SEPARATOR = (
    "[\N{NO-BREAK SPACE}\N{FIGURE SPACE}\N{PUNCTUATION SPACE}\N{THIN SPACE}"
    "\N{NARROW NO-BREAK SPACE}'\N{RIGHT SINGLE QUOTATION MARK}]"
)
_GROUPED = re.compile(rf"(?<![\d.,])\d{{1,3}}(?:{_SEPARATOR}\d{{3}})+(?!\d)")


def in_ascii(text: str) -> str:
    """Return a text whose digits, signs, spaces and fractions are ASCII: ``-5``, ``1 1/2``.

    Thousands that are separated by a space which does not break, or by an apostrophe, lose their
    separators. Superscripts stay as they are: the 2 of a square metre is not a digit.
    """
    joined = _GROUPED.sub(lambda number: re.sub(_SEPARATOR, "", number[0]), text)
    return _NOT_ASCII.sub(_character_in_ascii, joined).translate(_AS_TYPED)


def _character_in_ascii(character: re.Match[str]) -> str:
    form = unicodedata.decomposition(character[0]).partition(" ")[0]
    if form in {"<super>", "<sub>"}:
        return character[0]
    digit = unicodedata.decimal(character[0], None)
    plain = unicodedata.normalize("NFKC", character[0]) if digit is None else str(digit)
    return f" {plain}" if form == "<fraction>" else plain
