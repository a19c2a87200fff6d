"""A search in figures: the best setting over time, and speed against memory and quality."""

from __future__ import annotations

from collections.abc import Sequence

from armload.core.values import counted
from armload.report import formatting as words
from armload.report.chart import (
    DOUBTFUL_COLOUR,
    DOUBTFUL_SHAPE,
    Plot,
    axis,
    guide,
    kinds_key,
)
from armload.report.drawing import COLOURS, Rows
from armload.report.figures.figure import Figure, drawn
from armload.report.tuning.view import Candidate, TuningView

ALIKE, SHORT, LONG = "trial", "short trial", "longer trial"
SAME, OTHER, UNKNOWN = "text of the defaults", "other text", "text not compared"
BROKEN = "violates a constraint"

_LOOKS = {
    ALIKE: (COLOURS[5], "circle"),
    SHORT: (COLOURS[5], "circle"),
    LONG: (COLOURS[0], "diamond"),
    SAME: (COLOURS[0], "circle"),
    OTHER: (COLOURS[4], "diamond"),
    UNKNOWN: (COLOURS[2], "square"),
    BROKEN: (DOUBTFUL_COLOUR, DOUBTFUL_SHAPE),
}

_MINUTE_S = 60


def progress_figure(view: TuningView) -> Figure | None:
    """Draw every trial at its end, and the leader's estimate; none before anything was measured."""
    if view.leader is None:
        return None
    sentence = _progress_sentence(view)
    rows, unit_s, unit = _trial_rows(view)
    x = axis("time", f"time ({unit})", zero=True)
    y = axis("value", view.scale.name, zero=True)
    key = kinds_key("kind", _LOOKS, rows)
    trials = Plot(rows="trials", x=x, y=y, key=key).points(
        size=50,
        opacity=0.9,
        said=(
            ("number:Q", "trial"),
            ("words:N", "configuration"),
            ("value:Q", view.scale.unit, ",.4~g"),
            ("kind:N", "what"),
        ),
    )
    best = [
        {"time": step.entry.ended_s / unit_s, "value": view.scale.value(step.leader.cost)}
        for step in view.steps
        if step.leader is not None
    ]
    look = {"interpolate": "step-after", "strokeWidth": 2, "color": COLOURS[1]}
    layers = [trials, Plot(rows="best", x=x, y=y).marks("line", look)]
    datasets = {"trials": rows, "best": best}
    default = view.candidate(view.tuning.space.defaults)
    if default is not None and default.estimate is not None:
        layers.append(guide("defaults", {"y": y}))
        datasets["defaults"] = [{"value": view.scale.value(default.estimate.cost)}]
    return drawn("best-so-far", "Best so far", sentence, layers, datasets, key=key)


def _progress_sentence(view: TuningView) -> str:
    first = next(
        step
        for step in view.steps
        if step.leader and view.leader and step.leader.setting.key == view.leader.setting.key
    )
    failed = sum(step.entry.outcome.status == "failed" for step in view.steps)
    trials = words.counted(len(view.steps), "trial")
    settings = words.counted(len(view.candidates), "configuration")
    parts = [
        f"{trials} of {settings} in {words.duration(view.steps[-1].entry.ended_s)}.",
        f"The leader first took the lead after {words.duration(first.entry.ended_s)}.",
        f"{words.counted(failed, 'trial')} failed; not shown." if failed else "",
        "Solid line: the leader; dashed line: the defaults.",
    ]
    return " ".join(filter(None, parts))


def _trial_rows(view: TuningView) -> tuple[Rows, float, str]:
    unit_s, unit = (1.0, "s") if view.steps[-1].entry.ended_s < 2 * _MINUTE_S else (60.0, "min")
    named = {each.setting.key: each.words for each in view.candidates}
    has_lengths = any(step.entry.trial.rung for step in view.steps)
    rows = []
    for step in view.steps:
        trial, outcome = step.entry.trial, step.entry.outcome
        if outcome.cost is None:
            continue
        kind = (LONG if trial.rung else SHORT) if has_lengths else ALIKE
        rows.append(
            {
                "number": trial.number + 1,
                "time": step.entry.ended_s / unit_s,
                "value": view.scale.value(outcome.cost),
                "kind": BROKEN if outcome.status == "violates" else kind,
                "words": named[trial.setting.key],
            }
        )
    return rows, unit_s, unit


def front_of(view: TuningView) -> list[Candidate]:
    """Return the settings that may win, and that no other is at least as good as in every respect.

    What counts is the cost, the peak memory, and the quality: the text of the defaults is better
    than another, and of two that differ the one nearer to the defaults' distribution.
    """
    able = [each for each in view.able if each.max_rss_bytes is not None]
    merits = [_merits(each) for each in able]
    return [
        each
        for each, own in zip(able, merits, strict=True)
        if not any(
            other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in merits
        )
    ]


def front_figure(view: TuningView) -> Figure | None:
    """Draw all settings that were measured; none where no memory was."""
    shown = [each for each in view.candidates if each.estimate and each.max_rss_bytes is not None]
    if not shown:
        return None
    front = front_of(view)
    sentence = (
        f"{counted(len(front), 'configuration')} of {len(shown)} "
        f"{'is' if len(front) == 1 else 'are'} on the Pareto front (ringed): no other is as good "
        f"in {view.scale.merit}, memory and closeness to the output of the defaults."
    )
    rows = _setting_rows(view, shown)
    x = axis("memory", "peak memory (MB)", zero=False, padding=12)
    y = axis("value", view.scale.name, zero=True)
    key = kinds_key("kind", _LOOKS, rows)
    marks = Plot(rows="settings", x=x, y=y, key=key).points(
        size=60,
        opacity=0.9,
        said=(
            ("words:N", "configuration"),
            ("value:Q", view.scale.unit, ",.4~g"),
            ("memory:Q", "peak memory (MB)", ",.1f"),
            ("kind:N", "output"),
            ("kl:N", "KL divergence"),
            ("accuracy:N", "accuracy"),
        ),
    )
    return drawn(
        "pareto",
        f"{view.scale.merit.capitalize()}, memory and quality",
        sentence,
        (Plot(rows="front", x=x, y=y).rings(size=190), marks),
        {"settings": rows, "front": _setting_rows(view, front)},
        key=key,
    )


def _merits(candidate: Candidate) -> tuple[float, float, float, float]:
    assert candidate.estimate is not None  # noqa: S101 - only those that were measured are asked
    quality = candidate.quality
    rank = {True: 0.0, None: 1.0, False: 2.0}[quality.same_text]
    return (
        candidate.estimate.cost,
        float(candidate.max_rss_bytes or 0),
        rank,
        quality.kl_mean or 0.0,
    )


def _setting_rows(view: TuningView, candidates: Sequence[Candidate]) -> Rows:
    kinds = {True: SAME, False: OTHER, None: UNKNOWN}
    return [
        {
            "words": each.words,
            "value": view.scale.value(each.estimate.cost),
            "memory": (each.max_rss_bytes or 0) / 1e6,
            "kind": kinds[each.quality.same_text] if each.status == "measured" else BROKEN,
            "kl": "not measured" if each.quality.kl_mean is None else f"{each.quality.kl_mean:.4f}",
            "accuracy": "not measured"
            if each.quality.accuracy is None
            else f"{each.quality.accuracy:.1%}",
        }
        for each in candidates
        if each.estimate is not None
    ]
