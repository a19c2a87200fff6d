"""Grader ``number``: the last number of an answer is exactly the expected one."""

from __future__ import annotations

import re
from decimal import Decimal

from armload.evaluation.grading.grade import Finding
from armload.evaluation.question import Question

_SIGN = r"(?:(?<![\w.)}])-)?"
_WITH_SEPARATORS = r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?"
_NUMBER = re.compile(rf"{_SIGN}(?:{_WITH_SEPARATORS}|\d+(?:\.\d+)?|\.\d+)", re.ASCII)


def grade(text: str, question: Question) -> Finding:
    """Compare the last numbers of both texts."""
    answer, expected = last_number(text), last_number(question.expected)
    correct = answer is not None and expected is not None and Decimal(answer) == Decimal(expected)
    return Finding(correct=correct, extracted=answer)


def last_number(text: str) -> str | None:
    """Return the last number of a text, without thousands separators.

    A minus after a digit, a letter or a closing bracket is an operator, not a sign.
    """
    found = _NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None
