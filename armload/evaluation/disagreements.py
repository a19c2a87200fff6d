"""Answers that two graders judge differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from armload.core.values import Value
from armload.evaluation.grading.grade import Grade
from armload.evaluation.question import Question
from armload.evaluation.results import AccuracyPoint, GradedAttempt


class Disagreement(Value):
    """An answer that one grader calls right and another wrong.

    Attributes:
        model, prompt, is_told, concludes: as in the evaluation's part.
        budgets: at which the answer reads so.
        question: that was asked.
        text: of the answer.
        a, b: the grades.
    """

    model: str
    prompt: str
    is_told: bool
    concludes: bool
    budgets: tuple[int, ...]
    question: Question
    text: str
    a: Grade
    b: Grade


def disagreements(
    questions: Sequence[Question],
    points_a: Sequence[AccuracyPoint],
    points_b: Sequence[AccuracyPoint],
) -> tuple[Disagreement, ...]:
    """Return the answers that two graders judge differently; what budgets share, once.

    Args:
        questions: of the evaluation.
        points_a, points_b: all of its points, by each grader.
    """
    found: dict[tuple[object, ...], Disagreement] = {}
    by_id = {question.id: question for question in questions}
    for point, a, b in _pairs(points_a, points_b):
        if a.is_correct == b.is_correct or point.budget is None:
            continue
        key = (point.model, point.prompt, point.is_told, point.concludes, a.question, a.text)
        known = found.get(key)
        found[key] = Disagreement(
            model=point.model,
            prompt=point.prompt,
            is_told=point.is_told,
            concludes=point.concludes,
            budgets=(*(known.budgets if known else ()), point.budget),
            question=by_id[a.question],
            text=a.text,
            a=_grade(a),
            b=_grade(b),
        )
    return tuple(found.values())


def _pairs(
    points_a: Sequence[AccuracyPoint], points_b: Sequence[AccuracyPoint]
) -> Iterator[tuple[AccuracyPoint, GradedAttempt, GradedAttempt]]:
    for point_a, point_b in zip(points_a, points_b, strict=True):
        for a, b in zip(point_a.attempts, point_b.attempts, strict=True):
            yield point_a, a, b


def _grade(attempt: GradedAttempt) -> Grade:
    return Grade(
        correct=attempt.is_correct,
        extracted=attempt.extracted,
        failure=attempt.failure,
        boxed=attempt.is_boxed,
    )
