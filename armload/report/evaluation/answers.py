"""The questions, one a row, with each model's answer and what several graders say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armload.evaluation.grading.registry import GRADERS, grade
from armload.evaluation.question import Question
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.results import GradedAttempt
from armload.report.evaluation.series import BudgetSeries


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


def grades_of(attempt: GradedAttempt, question: Question, grader: str) -> tuple[OtherGrade, ...]:
    """Return what each quick grader of numbers says; nothing where answers are not numbers.

    Args:
        grader: the evaluation's own, whose grade the attempt has.
    """
    if not GRADERS[grader].of_numbers:
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
        for name, each in GRADERS.items()
        if each.of_numbers and each.is_quick and name != grader
        for found in [grade(name, attempt.graded_text, question, attempt.thought_tags)]
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


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """A question.

    Attributes:
        id, expected: of the question.
        text: its own words, after the names of its images.
        attempts: at the largest budget, by series; none where it has no answer.
        outcome: a letter for each series: ``r`` right, ``w`` wrong, ``-`` no answer.
        grades: by series, what several graders say of the attempt.
    """

    id: str
    text: str
    expected: str
    attempts: tuple[GradedAttempt | None, ...]
    outcome: str
    grades: tuple[tuple[OtherGrade, ...], ...]

    @property
    def is_disputed(self) -> bool:
        """Whether graders disagree on an answer."""
        return any(len({each.is_correct for each in grades}) > 1 for grades in self.grades)


def _asked(question: Question) -> str:
    """Return a question's own words, after the names of its images."""
    words = max(question.fields.values(), key=len, default="")
    return ": ".join((*(image.file for image in question.images), words))


def answer_rows(
    evaluated: EvaluationFolder, series: Sequence[BudgetSeries], grader: str
) -> list[AnswerRow]:
    """Return a row for each question that anybody answered.

    Args:
        grader: that judged the attempts.
    """
    columns: list[Mapping[str, GradedAttempt]] = [
        {attempt.question: attempt for attempt in line.points[-1].attempts} for line in series
    ]
    rows = []
    for question in evaluated.questions:
        attempts = tuple(column.get(question.id) for column in columns)
        if any(attempts):
            rows.append(
                AnswerRow(
                    id=question.id,
                    text=_asked(question),
                    expected=question.expected,
                    attempts=attempts,
                    outcome="".join(
                        "-" if each is None else "r" if each.is_correct else "w"
                        for each in attempts
                    ),
                    grades=tuple(
                        grades_of(each, question, grader) if each else () for each in attempts
                    ),
                )
            )
    return rows
