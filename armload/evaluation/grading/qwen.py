"""Grader ``qwen``: the rules of Qwen2.5-Math for numbers.

They are those of ``evaluation/parser.py`` and ``evaluation/grader.py`` in the repository
``QwenLM/Qwen2.5-Math``. Left out is what goes beyond a number: matrices, intervals, equations and
expressions that need computer algebra, and numbers written as words.
"""

from __future__ import annotations

import math
import re

from armload.evaluation.grading.box import box_from
from armload.evaluation.grading.grade import Finding
from armload.evaluation.grading.numerals import in_ascii
from armload.evaluation.grading.qwen_text import normalised
from armload.evaluation.question import Question

RELATIVE_TOLERANCE = 1e-4

_PHRASES = ("he answer is", "final answer is")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_FRACTION = re.compile(r"(-?)\\frac\{([^{}]+)\}\{([^{}]+)\}")
_SPACING = re.compile(r"\\[,;:]")
_TRAILING = re.compile(r"[/),]+$")
_BRACKET = re.compile(r"[{}()]")


def grade(text: str, question: Question) -> Finding:
    """Compare what the rules extract."""
    return compared(extracted(in_ascii(text)), question)


def compared(text: str, question: Question) -> Finding:
    """Compare a text that holds an answer and nothing else.

    Typographic minus signs, spaces and digits count as the ASCII ones, which the published program
    does not know.
    """
    # Twice, as the published program does: what is removed first may hide something else.
    answer = normalised(normalised(_tidied(in_ascii(text))))
    return Finding(
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
