"""Accuracy against the tokens of an answer, with its confidence bands."""

from __future__ import annotations

from collections.abc import Sequence

from armload.core.values import counted
from armload.report.drawing import Rows, columns_for, interval_band, source
from armload.report.evaluation.series import BudgetSeries
from armload.report.evaluation.table import percent
from armload.report.figures.figure import Figure, colour_and_shape, drawn, legend_line

NAME, TITLE = "accuracy-tokens", "Accuracy against tokens"


def token_figure(series: Sequence[BudgetSeries]) -> Figure:
    """Draw the accuracy at each budget against the mean number of tokens that it took.

    Args:
        series: at least one, each with budgets; ``MOST_LINES`` at most.
    """
    sentence = _sentence(series)
    return _drawn(series, sentence)


def _sentence(shown: Sequence[BudgetSeries]) -> str:
    parts, counts = [], []
    for series in shown:
        best = max(series.points, key=lambda point: point.correct)
        if best.accuracy is not None:
            tokens = f"{best.mean_tokens:.0f} tokens"
            parts.append(f"{series.label}: {percent(best.accuracy.share)} with {tokens}")
            counts.append(best.accuracy.questions)
    same = set(counts[:1]) == set(counts)
    over = counted(counts[0], "question") if same else f"{', '.join(map(str, counts))} questions"
    return f"{'; '.join(parts)} (mean over {over}). Bands are 95% confidence intervals."


def _drawn(shown: Sequence[BudgetSeries], sentence: str) -> Figure:
    import altair as alt

    labels = [legend_line(series.label) for series in shown]
    x = alt.X("tokens:Q").title("tokens per answer (mean)").scale(zero=True)
    y = alt.Y("accuracy:Q").title("right answers (%)").scale(domain=[0, 100])
    colour, shape = colour_and_shape("line", labels)
    data = source("points")
    band = interval_band(data, x, alt.Y("low:Q").title("right answers (%)"), colour)
    line = data.mark_line(strokeWidth=2).encode(x, y, colour)
    marks = data.mark_point(filled=True, size=70, opacity=1).encode(
        x,
        y,
        colour,
        shape,
        tooltip=[
            alt.Tooltip("line:N", title="model"),
            alt.Tooltip("budget:Q", title="budget in tokens"),
            alt.Tooltip("accuracy:Q", title="right (%)", format=".1f"),
            alt.Tooltip("low:Q", title="95% from", format=".1f"),
            alt.Tooltip("high:Q", title="to", format=".1f"),
            alt.Tooltip("tokens:Q", title="mean tokens", format=",.4~g"),
        ],
    )
    return drawn(
        NAME,
        TITLE,
        sentence,
        (band, line, marks),
        {"points": _rows(shown)},
        legend_columns=columns_for(labels),
    )


def _rows(shown: Sequence[BudgetSeries]) -> Rows:
    return [
        {
            "line": legend_line(series.label),
            "budget": point.budget,
            "tokens": point.mean_tokens,
            "accuracy": 100 * point.accuracy.share,
            "low": 100 * point.accuracy.interval.low,
            "high": 100 * point.accuracy.interval.high,
        }
        for series in shown
        for point in series.points
        if point.accuracy is not None
    ]
