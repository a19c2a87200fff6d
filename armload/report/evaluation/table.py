"""The accuracy of each model at each budget, for terminals and pages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.accuracy import Accuracy
from armload.analysis.statistics import Interval
from armload.core.values import counted
from armload.evaluation.results import AccuracyPoint, GradedAttempt, doubts_in
from armload.report import formatting as words
from armload.report.evaluation.series import BudgetSeries, EvaluationView
from armload.report.layout import Column, Prose, Table


def between(interval: Interval) -> str:
    """Write an interval of shares."""
    return f"{100 * interval.low:.1f}–{100 * interval.high:.1f}%"


def evaluation_view(view: EvaluationView) -> Group:
    """Lay out the points, one a line, and notes on questions and times."""
    lines: list[RenderableType] = []
    for series in view.series:
        if lines:
            lines.append(Text(""))
        lines += [Prose(series.label, "bold"), accuracy_table(series)]
    lines += [Prose(sentence, "yellow") for sentence in notes(view.points)]
    return Group(*lines)


def notes(points: Sequence[AccuracyPoint]) -> list[str]:
    """Say what became of questions without a whole, graded answer: each kind of reason once.

    Last comes which times are not reliable, and why.
    """
    return [
        *_unanswered(points),
        *_ungraded(points),
        *_out_of_context(points),
        *doubts_in(points),
    ]


def _unanswered(points: Sequence[AccuracyPoint]) -> list[str]:
    kinds: dict[str, dict[str, str]] = {}
    for point in points:
        for question, reason in point.failed.items():
            kinds.setdefault(re.sub(r"\d+", "", reason), {})[question] = reason
    return [
        f"{counted(len(failed), 'question')} without an answer, such as question "
        f"{next(iter(failed))}: {next(iter(failed.values()))}."
        for failed in kinds.values()
    ]


def _ungraded(points: Sequence[AccuracyPoint]) -> list[str]:
    kinds: dict[str, list[GradedAttempt]] = {}
    for point in points:
        for attempt in point.ungraded:
            kinds.setdefault(attempt.failure, []).append(attempt)
    return [
        f"{counted(len(attempts), 'answer')} could not be graded, for example the one to "
        f"question {attempts[0].question}: {reason}. Ungraded answers count as incorrect."
        for reason, attempts in kinds.items()
    ]


def _out_of_context(points: Sequence[AccuracyPoint]) -> list[str]:
    # Budgets that share one answer are shown by the largest.
    found = {
        (
            *(point.model, point.prompt, point.is_told, point.concludes),
            point.budget if point.is_told or point.concludes else None,
            attempt.question,
        ): (point, attempt)
        for point in points
        for attempt in point.out_of_context
    }
    if not found:
        return []
    point, attempt = next(iter(found.values()))
    answers = counted(len(found), "answer")
    sentence = (
        f"Ended before the budget because the context was full: {answers}, for example the one to "
        f"question {attempt.question} after {attempt.tokens} of {point.budget} tokens. The partial "
        "answer was graded. To ask again, use a larger --context."
    )
    return [sentence]


def accuracy_table(series: BudgetSeries) -> Table:
    """Lay out the points of a line."""
    if series.points[0].budget is None:
        return _choices(series)
    table = Table(
        Column(heading="budget", unit="tokens", is_number=True),
        *_ACCURACY,
        Column(heading="boxed", is_number=True),
        Column(heading="finished", is_number=True),
        Column(heading="mean\ntokens", is_number=True),
        Column(heading="mean\ntime", is_number=True),
    )
    for point in series.points:
        count = len(point.attempts)
        finished = sum(each.is_finished for each in point.attempts) / max(1, count)
        table.add(
            str(point.budget),
            f"{point.correct}/{count}",
            *share_entries(point.accuracy),
            *(
                (
                    f"{point.boxed_share:.0%}",
                    f"{finished:.0%}",
                    f"{point.mean_tokens:.0f}",
                    words.seconds(point.mean_s),
                )
                if count
                else 4 * [words.UNKNOWN]
            ),
        )
    return table


def _choices(series: BudgetSeries) -> Table:
    table = Table(
        Column(heading="correct", is_number=True),
        Column(heading="acc", is_number=True),
        INTERVAL,
        Column(heading="acc_norm", is_number=True),
        INTERVAL,
        Column(heading="mean\ntime", is_number=True),
    )
    for point in series.points:
        table.add(
            f"{point.correct}/{len(point.attempts)}",
            *share_entries(point.accuracy),
            *share_entries(point.normalised),
            words.seconds(point.mean_s),
        )
    return table


INTERVAL = Column(heading="95%\nCI", is_number=True)
_ACCURACY = (
    Column(heading="correct", is_number=True),
    Column(heading="accuracy", is_number=True),
    INTERVAL,
)


def share_entries(accuracy: Accuracy | None) -> tuple[Text, str]:
    """Write a share of right answers, and its interval."""
    if accuracy is None:
        return Text(words.UNKNOWN, style="bold"), words.UNKNOWN
    return Text(f"{accuracy.share:.1%}", style="bold"), between(accuracy.interval)
