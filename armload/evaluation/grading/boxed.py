"""Grader ``boxed``: only the last closed box counts, compared as ``qwen`` compares."""

from __future__ import annotations

from armload.evaluation.grading.box import last_closed_box
from armload.evaluation.grading.grade import Finding
from armload.evaluation.grading.qwen import compared
from armload.evaluation.question import Question


def grade(text: str, question: Question) -> Finding:
    """Compare the content of the last closed box."""
    box = last_closed_box(text)
    return Finding(correct=False, extracted=None) if box is None else compared(box, question)
