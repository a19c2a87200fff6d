"""Accuracy against the tokens and the seconds of an answer, with confidence bands."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.accuracy import Accuracy
from armload.analysis.tradeoff import Answers, Crossover, by_budget, by_deadline, deadlines_of
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.chart import Plot, axis, guide, lines_key
from armload.report.drawing import Rows, legend_line
from armload.report.evaluation.series import BudgetSeries
from armload.report.figures.figure import Figure, drawn, thinned, time_unit

_ACCURACY = axis("accuracy", "correct answers (%)", domain=(0, 100))

MOST_STEPS = 160


def deadline_figure(systems: Sequence[Answers], crossover: Crossover | None) -> Figure:
    """Draw the share of right answers by each deadline, with its confidence band.

    Args:
        systems: at least one, ``MOST_LINES`` at most.
        crossover: of two systems; none where it was not looked for.
    """
    deadlines = thinned(deadlines_of(*systems), MOST_STEPS)
    unit = time_unit([deadlines[-1]])
    labels = [legend_line(system.name) for system in systems]
    x = axis("deadline", f"time since the question ({unit.name})", zero=True)
    key = lines_key("line", labels)
    plot = Plot(rows="deadlines", x=x, y=_ACCURACY, key=key)
    line = plot.line(
        is_step=True,
        said=(
            ("line:N", "model"),
            ("deadline:Q", unit.name, ",.4~g"),
            ("accuracy:Q", "correct (%)", ".1f"),
        ),
    )
    layers = [plot.band(is_step=True), line]
    at_s = crossover.deadline_s if crossover and crossover.is_shown else None
    datasets: dict[str, Rows] = {
        "deadlines": [
            {
                "line": legend_line(system.name),
                "deadline": point.deadline_s * unit.per_s,
                **_percentages(point.accuracy),
            }
            for system in systems
            for point in by_deadline(system, [0.0, *deadlines])
        ]
    }
    if at_s is not None:
        datasets["crossover"] = [{"deadline": at_s * unit.per_s, "text": "crossover"}]
        text = Plot(rows="crossover", x=x, y={"value": 12}).texts({"align": "left", "dx": 5})
        layers += [guide("crossover", {"x": x}), text]
    return drawn(
        "accuracy-seconds",
        "Accuracy against time",
        _deadline_sentence(systems),
        layers,
        datasets,
        key=key,
    )


def _deadline_sentence(shown: Sequence[Answers]) -> str:
    parts = []
    for system in shown:
        last_s = max(max(row) for row in system.latency_s)
        (point,) = by_deadline(system, [last_s])
        parts.append(f"{system.name}: {point.accuracy.share:.1%} by {words.seconds(last_s)}")
    questions = counted(len(shown[0].questions), "question")
    return (
        f"{'; '.join(parts)} from the start of a question, over {questions}. Bands are 95% "
        "confidence intervals."
    )


def token_figure(series: Sequence[BudgetSeries]) -> Figure:
    """Draw the accuracy at each budget against the mean number of tokens that it took.

    Args:
        series: at least one, each with budgets; ``MOST_LINES`` at most.
    """
    rows: Rows = [
        {
            "line": legend_line(each.label),
            "budget": point.budget,
            "tokens": point.mean_tokens,
            **_percentages(point.accuracy),
        }
        for each in series
        for point in each.points
        if point.accuracy is not None
    ]
    labels = [legend_line(each.label) for each in series]
    key = lines_key("line", labels)
    x = axis("tokens", "tokens per answer (mean)", zero=True)
    plot = Plot(rows="points", x=x, y=_ACCURACY, key=key)
    marks = plot.points(
        size=70,
        said=(
            *_BUDGET_TIPS,
            ("low:Q", "95% from", ".1f"),
            ("high:Q", "to", ".1f"),
            ("tokens:Q", "mean tokens", ",.4~g"),
        ),
    )
    return drawn(
        "accuracy-tokens",
        "Accuracy against tokens",
        _token_sentence(series),
        (plot.band(), plot.line(), marks),
        {"points": rows},
        key=key,
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
    has_bands = any(len(series.points) > 1 for series in shown)
    bands = " Bands are 95% confidence intervals." if has_bands else ""
    return f"{'; '.join(parts)} (mean over {over}).{bands}"


_BUDGET_TIPS = (
    ("line:N", "model"),
    ("budget:Q", "budget in tokens"),
    ("accuracy:Q", "correct (%)", ".1f"),
)


def _percentages(accuracy: Accuracy) -> dict[str, float]:
    return {
        "accuracy": 100 * accuracy.share,
        "low": 100 * accuracy.interval.low,
        "high": 100 * accuracy.interval.high,
    }


def energy_figure(
    systems: Sequence[tuple[Answers, Sequence[float]]], *, name: str
) -> Figure | None:
    """Draw the accuracy at each budget against the mean joules of an answer; none without any.

    Args:
        systems: with the joules of each budget.
        name: of the figure.
    """
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
    key = lines_key("line", labels)
    x = axis("joules", "energy per answer (J, mean)", zero=True)
    plot = Plot(rows="energies", x=x, y=_ACCURACY, key=key)
    marks = plot.points(size=70, said=(*_BUDGET_TIPS, ("joules:Q", "J per answer", ",.4~g")))
    return drawn(
        name,
        "Accuracy against energy",
        "Bars are 95% confidence intervals.",
        (plot.spans(), plot.line(), marks),
        {"energies": rows},
        key=key,
    )
