"""Grader ``choice``: the letter of a choice.

A closed box counts first, then the last letter after "answer is" or "answer:", then the last letter
that stands alone. ``A`` and ``I`` before a word are words themselves.
"""

from __future__ import annotations

import re

from armload.evaluation.grading.box import last_closed_box
from armload.evaluation.grading.grade import Finding
from armload.evaluation.question import LETTERS, Question

_UNNAMED = 10
_LATEX = re.compile(r"\\[a-z]+\{|[{}$*]")


def grade(text: str, question: Question) -> Finding:
    """Compare the letter that an answer commits to."""
    letters = LETTERS[: len(question.choices) or _UNNAMED]
    box = last_closed_box(text)
    letter = _last_letter(_LATEX.sub("", text if box is None else box), letters)
    return Finding(correct=letter == question.expected.strip().upper(), extracted=letter)


def _last_letter(text: str, letters: str) -> str | None:
    # The phrase in either case, but the letter in upper case: "the answer is a number".
    said = re.findall(rf"(?i:answer(?:\s+is)?)\s*:?\s*\(?([{letters}])\b(?!\s+[a-z])", text)
    alone = re.findall(rf"(?<![\w'])(?![AI]\s+[a-z]|[AI]['’])([{letters}])(?!\w)", text)  # noqa: RUF001
    found = said or alone
    return found[-1] if found else None
