"""What several graders say of the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.evaluation.grading.every import grade
from armload.evaluation.question import Question
from armload.evaluation.results import Attempt

COMPARED = ("qwen", "boxed", "number")
"""The graders of numeric answers that take no time."""


@dataclass(frozen=True, kw_only=True)
class OtherGrade:
    """What a grader says of an answer.

    Attributes:
        grader: its name.
        is_correct: by it.
        extracted: what it took for the answer; none where it found nothing.
        failure: why it came to no result.
    """

    grader: str
    is_correct: bool
    extracted: str | None
    failure: str

    @property
    def reason(self) -> str:
        """What its grade is based on, in a few words."""
        return self.failure or ("nothing found" if self.extracted is None else self.extracted)


@dataclass(frozen=True, kw_only=True)
class GraderRow:
    """What a grader says of all answers at the largest budget.

    Attributes:
        grader: its name.
        correct: by series, how many it calls right.
        answers: by series, of how many.
        differing: by series, how many it judges unlike the evaluation's grader.
    """

    grader: str
    correct: tuple[int, ...]
    answers: tuple[int, ...]
    differing: tuple[int, ...]


def grades_of(attempt: Attempt, question: Question, grader: str) -> tuple[OtherGrade, ...]:
    """Return what each compared grader says; nothing where answers are not numbers.

    Args:
        grader: the evaluation's own, whose grade the attempt has.
    """
    if grader not in (*COMPARED, "math_verify"):
        return ()
    own = OtherGrade(
        grader=grader,
        is_correct=attempt.is_correct,
        extracted=attempt.extracted,
        failure=attempt.failure,
    )
    others = [
        OtherGrade(
            grader=name,
            is_correct=found.correct,
            extracted=found.extracted,
            failure=found.failure,
        )
        for name in COMPARED
        if name != grader
        for found in [grade(name, attempt.graded_text, question)]
    ]
    return (own, *others)


def grader_rows(rows: Sequence[Sequence[tuple[OtherGrade, ...]]]) -> list[GraderRow]:
    """Return what each grader says of all answers, the evaluation's own grader first.

    Args:
        rows: for each question, the grades of each series' answer.
    """
    names = next((grades for row in rows for grades in row if grades), ())
    columns = [[grades for grades in column if grades] for column in zip(*rows, strict=True)]
    return [
        GraderRow(
            grader=each.grader,
            correct=tuple(sum(grades[at].is_correct for grades in column) for column in columns),
            answers=tuple(len(column) for column in columns),
            differing=tuple(
                sum(grades[at].is_correct != grades[0].is_correct for grades in column)
                for column in columns
            ),
        )
        for at, each in enumerate(names)
    ]
