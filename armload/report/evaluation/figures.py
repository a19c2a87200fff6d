"""Accuracy against the tokens and the seconds of an answer, with confidence bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.analysis.accuracy import Accuracy
from armload.analysis.tradeoff import Answers, Crossover, by_budget, by_deadline, deadlines_of
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.drawing import QUIET, Rows, columns_for, interval_band, source
from armload.report.evaluation.series import BudgetSeries
from armload.report.figures.figure import (
    Figure,
    TimeUnit,
    colour_and_shape,
    drawn,
    legend_line,
    time_unit,
)

if TYPE_CHECKING:
    import altair as alt

MOST_STEPS = 160


def deadline_figure(systems: Sequence[Answers], crossover: Crossover | None) -> Figure:
    """Draw the share of right answers by each deadline, with its confidence band.

    Args:
        systems: at least one, ``MOST_LINES`` at most.
        crossover: of two systems; none where it was not looked for.
    """
    import altair as alt

    deadlines = _thinned(deadlines_of(*systems))
    unit = time_unit([deadlines[-1]])
    labels = [legend_line(system.name) for system in systems]
    x = alt.X("deadline:Q").title(f"time since the question ({unit.name})").scale(zero=True)
    colour, _ = colour_and_shape("line", labels)
    data = source("deadlines")
    y = _share_axis("accuracy").scale(domain=[0, 100])
    band = interval_band(data, x, _share_axis("low"), colour, interpolate="step-after")
    line = data.mark_line(strokeWidth=2, interpolate="step-after").encode(
        x,
        y,
        colour,
        tooltip=[
            alt.Tooltip("line:N", title="model"),
            alt.Tooltip("deadline:Q", title=unit.name, format=",.4~g"),
            alt.Tooltip("accuracy:Q", title="correct (%)", format=".1f"),
        ],
    )
    layers = [band, line]
    at_s = crossover.deadline_s if crossover and crossover.is_shown else None
    datasets = {"deadlines": _deadline_rows(systems, deadlines, unit)}
    if at_s is not None:
        datasets["crossover"] = [{"deadline": at_s * unit.per_s}]
        rule = source("crossover")
        layers += [
            rule.mark_rule(color=QUIET, strokeDash=[4, 3]).encode(alt.X("deadline:Q")),
            rule.mark_text(align="left", dx=5, fontSize=12).encode(
                alt.X("deadline:Q"), y=alt.value(12), text=alt.value("crossover")
            ),
        ]
    return drawn(
        "accuracy-seconds",
        "Accuracy against time",
        _deadline_sentence(systems),
        layers,
        datasets,
        legend_columns=columns_for(labels),
    )


def _deadline_sentence(shown: Sequence[Answers]) -> str:
    parts = []
    for system in shown:
        last_s = max(max(row) for row in system.latency_s)
        (point,) = by_deadline(system, [last_s])
        parts.append(f"{system.name}: {point.accuracy.share:.1%} by {words.seconds(last_s)}")
    questions = counted(len(shown[0].questions), "question")
    return (
        f"{'; '.join(parts)} from the start of each of {questions}. Bands are 95% confidence "
        "intervals."
    )


def _thinned(deadlines: Sequence[float]) -> list[float]:
    every = -(-len(deadlines) // MOST_STEPS)
    kept = list(deadlines[::every])
    return kept if kept[-1] == deadlines[-1] else [*kept, deadlines[-1]]


def _deadline_rows(shown: Sequence[Answers], deadlines: Sequence[float], unit: TimeUnit) -> Rows:
    return [
        {
            "line": legend_line(system.name),
            "deadline": point.deadline_s * unit.per_s,
            **_percentages(point.accuracy),
        }
        for system in shown
        for point in by_deadline(system, [0.0, *deadlines])
    ]


def token_figure(series: Sequence[BudgetSeries]) -> Figure:
    """Draw the accuracy at each budget against the mean number of tokens that it took.

    Args:
        series: at least one, each with budgets; ``MOST_LINES`` at most.
    """
    import altair as alt

    labels = [legend_line(each.label) for each in series]
    x = alt.X("tokens:Q").title("tokens per answer (mean)").scale(zero=True)
    y = _share_axis("accuracy").scale(domain=[0, 100])
    colour, shape = colour_and_shape("line", labels)
    data = source("points")
    band = interval_band(data, x, _share_axis("low"), colour)
    line = data.mark_line(strokeWidth=2).encode(x, y, colour)
    marks = data.mark_point(filled=True, size=70, opacity=1).encode(
        *(x, y, colour, shape),
        tooltip=[
            *_budget_tooltips(),
            alt.Tooltip("low:Q", title="95% from", format=".1f"),
            alt.Tooltip("high:Q", title="to", format=".1f"),
            alt.Tooltip("tokens:Q", title="mean tokens", format=",.4~g"),
        ],
    )
    return drawn(
        "accuracy-tokens",
        "Accuracy against tokens",
        _token_sentence(series),
        (band, line, marks),
        {"points": _token_rows(series)},
        legend_columns=columns_for(labels),
    )


def _token_sentence(shown: Sequence[BudgetSeries]) -> str:
    parts, counts = [], []
    for series in shown:
        best = max(series.points, key=lambda point: point.correct)
        if best.accuracy is not None:
            tokens = f"{best.mean_tokens:.0f} tokens"
            parts.append(f"{series.label}: {best.accuracy.share:.1%} with {tokens}")
            counts.append(best.accuracy.questions)
    same = set(counts[:1]) == set(counts)
    over = counted(counts[0], "question") if same else f"{', '.join(map(str, counts))} questions"
    return f"{'; '.join(parts)} (mean over {over}). Bands are 95% confidence intervals."


def _share_axis(field: str) -> alt.Y:
    import altair as alt

    return alt.Y(f"{field}:Q").title("correct answers (%)")


def _budget_tooltips() -> list[alt.Tooltip]:
    import altair as alt

    return [
        alt.Tooltip("line:N", title="model"),
        alt.Tooltip("budget:Q", title="budget in tokens"),
        alt.Tooltip("accuracy:Q", title="correct (%)", format=".1f"),
    ]


def _percentages(accuracy: Accuracy) -> dict[str, float]:
    return {
        "accuracy": 100 * accuracy.share,
        "low": 100 * accuracy.interval.low,
        "high": 100 * accuracy.interval.high,
    }


def _token_rows(shown: Sequence[BudgetSeries]) -> Rows:
    return [
        {
            "line": legend_line(series.label),
            "budget": point.budget,
            "tokens": point.mean_tokens,
            **_percentages(point.accuracy),
        }
        for series in shown
        for point in series.points
        if point.accuracy is not None
    ]


def energy_figure(
    systems: Sequence[tuple[Answers, Sequence[float]]], *, name: str
) -> Figure | None:
    """Draw the accuracy at each budget against the mean joules of an answer; none without any.

    Args:
        systems: with the joules of each budget.
        name: of the figure.
    """
    import altair as alt

    if not systems:
        return None
    rows: Rows = [
        {
            "line": legend_line(system.name),
            "budget": point.budget,
            "joules": joules,
            **_percentages(point.accuracy),
        }
        for system, energies in systems
        for point, joules in zip(by_budget(system), energies, strict=True)
    ]
    labels = [legend_line(system.name) for system, _ in systems]
    x = alt.X("joules:Q").title("energy per answer (J, mean)").scale(zero=True)
    y = _share_axis("accuracy").scale(domain=[0, 100])
    colour, shape = colour_and_shape("line", labels)
    data = source("energies")
    rule = data.mark_rule(opacity=0.5).encode(x, _share_axis("low"), alt.Y2("high:Q"), colour)
    line = data.mark_line(strokeWidth=2).encode(x, y, colour)
    marks = data.mark_point(filled=True, size=70, opacity=1).encode(
        *(x, y, colour, shape),
        tooltip=[
            *_budget_tooltips(),
            alt.Tooltip("joules:Q", title="J per answer", format=",.4~g"),
        ],
    )
    return drawn(
        name,
        "Accuracy against energy",
        "Bars are 95% confidence intervals.",
        (rule, line, marks),
        {"energies": rows},
        legend_columns=columns_for(labels),
    )
