"""The questions, one a row, with what each model answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armload.evaluation.record import Evaluated
from armload.evaluation.results import Attempt
from armload.report.evaluation.series import Series


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """A question.

    Attributes:
        id, expected: of the question.
        text: its own words.
        attempts: at the largest budget, by series; none where it has no answer.
        outcome: a letter for each series: ``r`` right, ``w`` wrong, ``-`` no answer.
    """

    id: str
    text: str
    expected: str
    attempts: tuple[Attempt | None, ...]
    outcome: str


def answer_rows(evaluated: Evaluated, series: Sequence[Series]) -> list[AnswerRow]:
    """Return a row for each question that anybody answered."""
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
                )
            )
    return rows


def _letter(attempt: Attempt | None) -> str:
    if attempt is None:
        return "-"
    return "r" if attempt.is_correct else "w"
