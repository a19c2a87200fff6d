"""The list of graders, and the one way to grade."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from armload.core.errors import UsageError
from armload.engines.answers import ThoughtTags
from armload.evaluation.grading import choice, math_verify, number, qwen
from armload.evaluation.grading.grade import Grade, GraderFinding
from armload.evaluation.grading.qwen import last_closed_box
from armload.evaluation.question import Question

_USUAL_TAGS = ThoughtTags()


@dataclass(frozen=True, kw_only=True)
class Grader:
    """One way to grade.

    Attributes:
        grade: an answer, without its reasoning, to a question.
        of_numbers: whether it compares numbers: pages show what all of that kind say.
        is_quick: whether it takes no time, so that a page may grade all answers with it.
    """

    grade: Callable[[str, Question], GraderFinding]
    of_numbers: bool = False
    is_quick: bool = True


def _is_exact(text: str, question: Question) -> GraderFinding:
    answer = text.strip()
    return GraderFinding(correct=answer == question.expected.strip(), extracted=answer or None)


GRADERS: Mapping[str, Grader] = {
    "qwen": Grader(grade=qwen.grade, of_numbers=True),
    "boxed": Grader(grade=qwen.grade_boxed, of_numbers=True),
    "number": Grader(grade=number.grade, of_numbers=True),
    "choice": Grader(grade=choice.grade),
    "exact": Grader(grade=_is_exact),
    "math_verify": Grader(grade=math_verify.grade, of_numbers=True, is_quick=False),
}
"""A further grader is a line here."""


def check_grader(name: str) -> None:
    if name not in GRADERS:
        raise UsageError(f"There is no grader {name!r}.", f"Graders: {', '.join(GRADERS)}.")


def grade(
    grader: str, text: str, question: Question, thought_tags: ThoughtTags = _USUAL_TAGS
) -> Grade:
    """Grade an answer; its reasoning section does not count."""
    check_grader(grader)
    answer = thought_tags.answer_in(text)
    finding = GRADERS[grader].grade(answer, question)
    return Grade(**finding.model_dump(), boxed=last_closed_box(answer) is not None)
