"""The best setting so far, over the time that the search took."""

from __future__ import annotations

from armload.report import formatting as words
from armload.report.drawing import COLOURS, Rows, guide, source
from armload.report.figures.figure import Figure, drawn
from armload.report.tuning.front import ALIKE, BROKEN, LONG, SHORT, colour_and_shape
from armload.report.tuning.told import TuningView

NAME, TITLE = "best-so-far", "Best so far"

_MINUTE_S = 60


def progress_figure(told: TuningView) -> Figure | None:
    """Draw every trial at its end, and the leader's estimate; none before anything was measured."""
    if told.leader is None:
        return None
    sentence = _sentence(told)
    return _drawn(told, sentence)


def _sentence(told: TuningView) -> str:
    first = next(
        step
        for step in told.steps
        if step.leader and told.leader and step.leader.setting.key == told.leader.setting.key
    )
    failed = sum(step.entry.outcome.status == "failed" for step in told.steps)
    trials = words.counted(len(told.steps), "trial")
    settings = words.counted(len(told.candidates), "setting")
    parts = [
        f"{trials} of {settings} in {words.duration(told.steps[-1].entry.ended_s)}.",
        f"The leader first took the lead after {words.duration(first.entry.ended_s)}.",
        f"{words.counted(failed, 'trial')} failed; not shown." if failed else "",
        "Solid line: the leader; dashed line: the defaults.",
    ]
    return " ".join(filter(None, parts))


def _drawn(told: TuningView, sentence: str) -> Figure:
    import altair as alt

    rows, unit_s, unit = _rows(told)
    x = alt.X("time:Q").title(f"time ({unit})").scale(zero=True)
    y = alt.Y("value:Q").title(told.scale.name).scale(zero=True)
    trials = (
        source("trials")
        .mark_point(filled=True, size=50, opacity=0.9)
        .encode(
            x,
            y,
            *colour_and_shape(rows),
            tooltip=[
                alt.Tooltip("number:Q", title="trial"),
                alt.Tooltip("words:N", title="setting"),
                alt.Tooltip("value:Q", title=told.scale.unit, format=",.4~g"),
                alt.Tooltip("kind:N", title="what"),
            ],
        )
    )
    best = (
        source("best")
        .mark_line(interpolate="step-after", strokeWidth=2, color=COLOURS[1])
        .encode(x, y)
    )
    layers = [trials, best]
    datasets = {"trials": rows, "best": _best(told, unit_s)}
    default = told.candidate(told.tuning.space.defaults)
    if default is not None and default.estimate is not None:
        rule = source("defaults")
        layers.append(guide(rule, y))
        datasets["defaults"] = [{"value": told.scale.value(default.estimate.cost)}]
    return drawn(
        NAME,
        TITLE,
        sentence,
        layers,
        datasets,
    )


def _rows(told: TuningView) -> tuple[Rows, float, str]:
    unit_s, unit = (1.0, "s") if told.steps[-1].entry.ended_s < 2 * _MINUTE_S else (60.0, "min")
    named = {each.setting.key: each.words for each in told.candidates}
    has_lengths = any(step.entry.trial.rung for step in told.steps)
    rows = []
    for step in told.steps:
        trial, outcome = step.entry.trial, step.entry.outcome
        if outcome.cost is None:
            continue
        kind = (LONG if trial.rung else SHORT) if has_lengths else ALIKE
        rows.append(
            {
                "number": trial.number + 1,
                "time": step.entry.ended_s / unit_s,
                "value": told.scale.value(outcome.cost),
                "kind": BROKEN if outcome.status == "violates" else kind,
                "words": named[trial.setting.key],
            }
        )
    return rows, unit_s, unit


def _best(told: TuningView, unit_s: float) -> Rows:
    return [
        {"time": step.entry.ended_s / unit_s, "value": told.scale.value(step.leader.cost)}
        for step in told.steps
        if step.leader is not None
    ]
