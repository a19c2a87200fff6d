"""Graders ``qwen`` and ``boxed``: the rules of Qwen2.5-Math for numbers.

They are those of ``evaluation/parser.py`` and ``evaluation/grader.py`` in the repository
``QwenLM/Qwen2.5-Math``. Left out is what goes beyond a number: matrices, intervals, equations and
expressions that need computer algebra, and numbers written as words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from armload.evaluation.grading.grade import GraderFinding
from armload.evaluation.question import Question

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


_UNITS = (
    r"a|ab|acre|am|apple|are|bc|by|c|cc|cm|coin|cube|cubic|d|day|decrease|"
    r"deg|degree|dm|east|excess|feet|ft|g|gain|gal|gallon|gm|h|hectare|hour|"
    r"hr|inch|inches|increase|kg|km|kmh|kmph|l|lb|less|liter|litre|loss|lt|m|"
    r"man|mark|men|meter|metre|mile|min|minute|minw|mm|monkey|month|more|mp|"
    r"mph|mt|mtr|noon|number|o|ohm|per|percent|pie|pm|prime|profit|pure|ratio|"
    r"rd|rise|rounds|rs|rupee|s|sec|second|soldier|sq|square|st|Surface|t|th|"
    r"tile|toy|unit|way|west|woman|women|yard|year|yr"
)
"""Words that are removed as units, also with an s at the end: those of the published list that are
one word. Most nouns of word problems are not in it, nor is ``dollars``."""

_UNIT = re.compile(rf"(^|\W)(?:{_UNITS})s?(?=$|\W)")

_REMOVED_BEFORE_UNITS = re.compile(r"\\!|\\left|\\right")
_TEXT_AT_END = re.compile(r"\\text{.*?}$")
_REMOVED_AFTER_UNITS = re.compile(r"\^\{\\circ\}|\^\\circ|\\\$|\$|\\\(|\\\)")
_REMOVED_LAST = re.compile(r"\\%|%|and|\\mathbf|\\mbox{.*?}")
_WHOLE_WITH_POINT = re.compile(r"(\d+)\.0*(?=\D|$)")
_SHORT_FRACTION = re.compile(r"\\frac([^{\s])(?:([^{\s])|(?=\{))")
_SLASH = re.compile(r"(-?\d+)/(-?\d+)")


def normalised(text: str) -> str:
    """Return an answer without units, currency, percent signs, spaces and LaTeX's decoration."""
    text = text.strip().replace("\n", "").rstrip(".")
    text = _REMOVED_BEFORE_UNITS.sub("", text)
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    text = text.replace(r"\{", "{").replace(r"\}", "}")
    text = _TEXT_AT_END.sub("", text).strip() or text
    for _ in range(2):
        text = _UNIT.sub(r"\1", text) or text
    text = _REMOVED_AFTER_UNITS.sub("", text)
    text = re.sub(r"\\text\{(.*?)\}", r"\1", text)
    text = re.sub(r"[xyz](?:=|\\in|\\to)", "", text)
    text = _REMOVED_LAST.sub("", text)
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    text = _WHOLE_WITH_POINT.sub(r"\1", text)
    if text.startswith("."):
        text = "0" + text
    left, equals, right = text.partition("=")
    if equals and len(left) <= 2 and "=" not in right:
        text = right
    text = text.replace(" ", "")
    text = _SHORT_FRACTION.sub(_with_braces, text)
    slash = _SLASH.fullmatch(text)
    return rf"\frac{{{slash[1]}}}{{{slash[2]}}}" if slash else text


def _with_braces(fraction: re.Match[str]) -> str:
    below = f"{{{fraction[2]}}}" if fraction[2] else ""
    return rf"\frac{{{fraction[1]}}}{below}"


RELATIVE_TOLERANCE = 1e-4

_PHRASES = ("he answer is", "final answer is")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_FRACTION = re.compile(r"(-?)\\frac\{([^{}]+)\}\{([^{}]+)\}")
_SPACING = re.compile(r"\\[,;:]")
_TRAILING = re.compile(r"[/),]+$")
_BRACKET = re.compile(r"[{}()]")


def grade(text: str, question: Question) -> GraderFinding:
    """Compare what the rules extract."""
    return compared(extracted(in_ascii(text)), question)


def compared(text: str, question: Question) -> GraderFinding:
    """Compare a text that holds an answer and nothing else.

    Typographic minus signs, spaces and digits count as the ASCII ones, which the published program
    does not know.
    """
    # Twice, as the published program does: what is removed first may hide something else.
    answer = normalised(normalised(_tidied(in_ascii(text))))
    return GraderFinding(
        correct=agree(answer, normalised(in_ascii(question.expected))), extracted=answer or None
    )


def extracted(text: str) -> str:
    """Return the part of an answer that the rules compare; empty if there is none.

    The text after the last ``boxed`` comes first, whether or not the box is closed; then what
    follows "he answer is" or "final answer is"; then the last number.
    """
    _, box, rest = text.rpartition("boxed")
    if box:
        return box_from(rest[1:]).content if rest.startswith("{") else rest.split("$")[0]
    for phrase in _PHRASES:
        if phrase in text:
            return text.rpartition(phrase)[2]
    numbers = _NUMBER.findall(text.replace(",", ""))
    return numbers[-1] if numbers else ""


def agree(answer: str, expected: str) -> bool:
    """Say whether two normalised answers are the same text or number.

    Numbers also agree if one is a hundred times the other, as a percentage may be.
    """
    if _BRACKET.sub("", answer.lower()) == _BRACKET.sub("", expected.lower()):
        return True
    one, other = _number(answer), _number(expected)
    if one is not None and other is not None:
        return any(_close(one, each) for each in (other / 100, other, other * 100))
    one, other = _value(answer), _value(expected)
    return one is not None and other is not None and _close(one, other)


def _tidied(text: str) -> str:
    return re.sub(r"\n\s*", "", text.strip()).removeprefix(":").removesuffix(".").removesuffix("/")


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=RELATIVE_TOLERANCE)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _value(text: str) -> float | None:
    """Return what sympy's parser makes of a number or a fraction; it ignores what trails it."""
    text = _TRAILING.sub("", _SPACING.sub("", text))
    fraction = _FRACTION.fullmatch(text)
    if fraction is None:
        return _number(text)
    above, below = _number(fraction[2]), _number(fraction[3])
    if above is None or not below:
        return None
    return above / below * (-1 if fraction[1] else 1)


def grade_boxed(text: str, question: Question) -> GraderFinding:
    """Compare the content of the last closed box."""
    box = last_closed_box(text)
    return GraderFinding(correct=False, extracted=None) if box is None else compared(box, question)
