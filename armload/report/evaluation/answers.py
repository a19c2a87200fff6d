"""The questions, one a row, with what each model answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armload.evaluation.record import Evaluated
from armload.evaluation.results import Attempt
from armload.report.evaluation.graders import OtherGrade, grades_of
from armload.report.evaluation.series import Series


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """A question.

    Attributes:
        id, expected: of the question.
        text: its own words.
        attempts: at the largest budget, by series; none where it has no answer.
        outcome: a letter for each series: ``r`` right, ``w`` wrong, ``-`` no answer.
        grades: by series, what several graders say of the attempt.
    """

    id: str
    text: str
    expected: str
    attempts: tuple[Attempt | None, ...]
    outcome: str
    grades: tuple[tuple[OtherGrade, ...], ...]

    @property
    def is_disputed(self) -> bool:
        """Whether graders disagree on an answer."""
        return any(len({each.is_correct for each in grades}) > 1 for grades in self.grades)


def answer_rows(evaluated: Evaluated, series: Sequence[Series], grader: str) -> list[AnswerRow]:
    """Return a row for each question that anybody answered.

    Args:
        grader: that judged the attempts.
    """
    columns: list[Mapping[str, Attempt]] = [
        {attempt.question: attempt for attempt in line.points[-1].attempts} for line in series
    ]
    rows = []
    for question in evaluated.questions:
        attempts = tuple(column.get(question.id) for column in columns)
        if any(attempts):
            rows.append(
                AnswerRow(
                    id=question.id,
                    text=max(question.fields.values(), key=len, default=""),
                    expected=question.expected,
                    attempts=attempts,
                    outcome="".join(map(_letter, attempts)),
                    grades=tuple(
                        grades_of(each, question, grader) if each else () for each in attempts
                    ),
                )
            )
    return rows


def _letter(attempt: Attempt | None) -> str:
    if attempt is None:
        return "-"
    return "r" if attempt.is_correct else "w"
