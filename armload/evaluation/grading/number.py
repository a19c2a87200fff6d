"""Grader ``number``: the last number of an answer is exactly the expected one."""

from __future__ import annotations

import re
from fractions import Fraction

from armload.evaluation.grading.grade import GraderFinding
from armload.evaluation.grading.qwen import in_ascii
from armload.evaluation.question import Question

_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    # A minus after a digit, a letter or a closing bracket is an operator, not a sign.
    r"(?P<sign>(?:(?<![\w.)}])-(?:\\?[$\u20ac\u00a3\u00a5])?)?)"
    rf"(?:\\[dt]?frac\{{(?P<above>{_DECIMAL})\}}\{{(?P<below>{_DECIMAL})\}}"
    r"|(?P<mixed>\d+ +\d+/\d+)(?![\d/])"
    r"|(?P<ratio>\d+/\d+)(?![\d/])"
    rf"|(?P<decimal>{_DECIMAL}(?:[eE][+-]?\d{{1,3}}(?!\w))?))",
    re.ASCII,
)
_LATEX_SPACE = re.compile(r"(?<=[\d,])\\[,!;: ](?=\d)")


def grade(text: str, question: Question) -> GraderFinding:
    """Compare the last numbers of both texts."""
    answer, expected = last_number(text), last_number(question.expected)
    correct = answer is not None and expected is not None and _are_equal(answer, expected)
    return GraderFinding(correct=correct, extracted=answer)


def last_number(text: str) -> str | None:
    """Return the last number of a text, without separators: ``-1800``, ``1/2``, ``1 1/2``."""
    plain = _LATEX_SPACE.sub("", in_ascii(text).replace("{,}", ","))
    found = None
    for found in _NUMBER.finditer(plain):  # noqa: B007 - only the last is wanted
        pass
    if found is None:
        return None
    number = found["mixed"] or found["ratio"] or found["decimal"]
    number = number or f"{found['above']}/{found['below']}"
    return ("-" if found["sign"] else "") + number.replace(",", "")


def _are_equal(one: str, other: str) -> bool:
    values = _value(one), _value(other)
    return one == other if None in values else values[0] == values[1]


def _value(number: str) -> Fraction | None:
    """Return a number's value; none without one: divided by zero, or too long to be computed."""
    size = Fraction(0)
    try:
        for part in number.removeprefix("-").split():
            above, _, below = part.partition("/")
            size += Fraction(above) / Fraction(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return -size if number.startswith("-") else size
