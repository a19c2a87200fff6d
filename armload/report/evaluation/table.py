"""The accuracy of each model at each budget, for terminals and pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.accuracy import Accuracy
from armload.analysis.statistics import Interval
from armload.core.columns import Column, Estimate
from armload.core.values import counted
from armload.evaluation.results import AccuracyPoint, GradedAttempt, doubts_in
from armload.report import formatting as words
from armload.report.evaluation.series import BudgetSeries, EvaluationView
from armload.report.layout import Entry, Prose, Table


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
    return Table.of(_POINT, series.points)


def point_table(view: EvaluationView) -> Table:
    """Lay out the points of all lines, for programs."""
    labelled = [(line.label, point) for line in view.series for point in line.points]
    columns: tuple[Column[tuple[str, AccuracyPoint]], ...] = (
        Column(heading="model", of=lambda each: each[0]),
        *(each.through(lambda pair: pair[1]) for each in _POINT),
    )
    return Table.of(columns, labelled)


def estimate_of(accuracy: Accuracy | None) -> Estimate | None:
    """Return a share of right answers, and where it lies."""
    if accuracy is None:
        return None
    interval = accuracy.interval
    return Estimate(value=accuracy.share, low=interval.low, high=interval.high)


def _of_texts(figure: Callable[[AccuracyPoint], float]) -> Callable[[AccuracyPoint], float | None]:
    """Return a figure of answers that are written, where there are some."""
    return lambda point: figure(point) if point.budget is not None and point.attempts else None


BUDGET = Column[AccuracyPoint](
    heading="budget", unit="tokens", of=lambda point: point.budget, is_number=True, is_optional=True
)
ACCURACY = Column[AccuracyPoint](
    heading="accuracy",
    of=lambda point: estimate_of(point.accuracy),
    write="{:.1%}".format,
    has_interval=True,
    style="bold",
)
BOXED = Column[AccuracyPoint](
    heading="boxed",
    of=_of_texts(lambda point: point.boxed_share),
    write="{:.0%}".format,
    is_optional=True,
)
MEAN_TIME = Column[AccuracyPoint](
    heading="mean\ntime",
    of=lambda point: point.mean_s if point.attempts else None,
    write=words.seconds,
)
_POINT = (
    BUDGET,
    Column[AccuracyPoint](
        heading="correct",
        of=lambda point: Entry(text=f"{point.correct}/{len(point.attempts)}", number=point.correct),
        is_number=True,
    ),
    ACCURACY,
    Column[AccuracyPoint](
        heading="acc_norm",
        of=lambda point: estimate_of(point.normalised),
        write="{:.1%}".format,
        has_interval=True,
        is_optional=True,
        style="bold",
    ),
    BOXED,
    Column[AccuracyPoint](
        heading="finished",
        of=_of_texts(lambda point: fmean(each.is_finished for each in point.attempts)),
        write="{:.0%}".format,
        is_optional=True,
    ),
    Column[AccuracyPoint](
        heading="mean\ntokens",
        of=_of_texts(lambda point: point.mean_tokens),
        write="{:.0f}".format,
        is_optional=True,
    ),
    MEAN_TIME,
)
