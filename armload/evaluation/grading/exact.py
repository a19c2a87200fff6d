"""Grader ``exact``: the whole answer is the expected text, apart from space around it."""

from __future__ import annotations

from armload.evaluation.grading.grade import GraderFinding
from armload.evaluation.question import Question


def grade(text: str, question: Question) -> GraderFinding:
    """Compare a whole answer."""
    answer = text.strip()
    return GraderFinding(correct=answer == question.expected.strip(), extracted=answer or None)
