"""The list of graders, and the one way to grade."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armload.core.errors import UsageError
from armload.evaluation.grading import boxed, choice, exact, math_verify, number, qwen
from armload.evaluation.grading.box import last_closed_box
from armload.evaluation.grading.grade import Finding, Grade
from armload.evaluation.grading.thoughts import without_thoughts
from armload.evaluation.question import Question

GRADERS: Mapping[str, Callable[[str, Question], Finding]] = {
    "qwen": qwen.grade,
    "boxed": boxed.grade,
    "number": number.grade,
    "choice": choice.grade,
    "exact": exact.grade,
    "math_verify": math_verify.grade,
}
"""A further grader is a line here."""


def check_grader(name: str) -> None:
    """Check that there is a grader of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in GRADERS:
        raise UsageError(f"There is no grader {name!r}.", f"Graders: {', '.join(GRADERS)}.")


def grade(grader: str, text: str, question: Question) -> Grade:
    """Grade an answer; its reasoning section does not count.

    Raises:
        UsageError: there is no such grader.
        MissingToolError: the grader's package is not installed.
    """
    check_grader(grader)
    answer = without_thoughts(text)
    finding = GRADERS[grader](answer, question)
    return Grade(**finding.model_dump(), boxed=last_closed_box(answer) is not None)
