"""A search in figures: the best over time, effects of parameters, speed by memory and quality."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armload.core.values import counted
from armload.report import formatting as words
from armload.report.chart import (
    DOUBTFUL_COLOUR,
    DOUBTFUL_SHAPE,
    Plot,
    axis,
    channel,
    guide,
    kinds_key,
    layered,
)
from armload.report.drawing import COLOURS, WIDTH_PIXELS, Rows
from armload.report.figures.figure import Figure, drawn
from armload.report.tuning.view import Candidate, TuningView
from armload.tuning.wanted import AIMS

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


_SLIGHT = 1.02
_ROW_PIXELS = 22
_WEIGHT_OF_NO_EFFECT = 0.1
"""In trials: choices that were tried with little else in common are drawn to no effect."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A choice of a parameter.

    Attributes:
        slower: how many times the cost of the parameter's best choice.
        settings: with this choice that were measured.
    """

    parameter: str
    choice: str
    slower: float
    settings: int


def effects_of(view: TuningView) -> list[Effect]:
    """Return the effects of all choices that were measured beside another of their parameter.

    The logarithm of a setting's cost is taken as a sum of one term for each of its choices, by
    least squares over all settings that were measured. The parameter that matters most comes
    first.
    """
    measured = [each for each in view.candidates if each.estimate is not None]
    names = [each.name for each in view.tuning.space.parameters]
    chosen = {name: Counter(_choice(each, name) for each in measured) for name in names}
    varied = {name: counts for name, counts in chosen.items() if len(counts) > 1}
    if not varied:
        return []
    terms = _terms(measured, varied)
    effects = []
    for name, counts in varied.items():
        best = min(terms[name, choice] for choice in counts)
        effects += [
            Effect(
                parameter=name,
                choice=choice,
                slower=math.exp(terms[name, choice] - best),
                settings=count,
            )
            for choice, count in counts.items()
        ]
    most = {name: max(each.slower for each in effects if each.parameter == name) for name in varied}
    return sorted(effects, key=lambda each: (-most[each.parameter], each.parameter, each.slower))


def effects_figure(view: TuningView) -> Figure | None:
    """Draw the effects; none where no parameter was varied."""
    effects = effects_of(view)
    if not effects:
        return None
    sentence = _sentence(effects, AIMS[view.tuning.objective].adjective)
    rows = [
        {
            "parameter": each.parameter,
            "choice": f"{each.parameter}: {each.choice}",
            "slower": each.slower,
            "none": 1.0,
            "settings": each.settings,
        }
        for each in effects
    ]
    order = [str(row["choice"]) for row in rows]
    names = list(dict.fromkeys(each.parameter for each in effects))
    colours = {name: (COLOURS[place % len(COLOURS)],) for place, name in enumerate(names)}
    x = axis("slower", "cost, relative to the parameter's best choice", zero=False)
    y = channel("choice:N", {"sort": order, "title": None, "axis": {"labelLimit": 260}})
    line = Plot(rows="effects", x=x, y=y).marks("rule", {"opacity": 0.6}, {"x2": {"field": "none"}})
    key = kinds_key("parameter", colours, rows, has_legend=False)
    marks = Plot(rows="effects", x=x, y=y, key=key).marks(
        "point",
        {"filled": True, "size": 80, "opacity": 1},
        said=(
            ("choice:N", "choice"),
            ("slower:Q", "times the best choice's cost", ".3f"),
            ("settings:Q", "configurations measured"),
        ),
    )
    chart = layered((line, marks), WIDTH_PIXELS - 160, _ROW_PIXELS * len(rows))
    return drawn("effects", "Effect of each parameter", sentence, chart, {"effects": rows})


def _terms(
    measured: Sequence[Candidate], varied: Mapping[str, Counter[str]]
) -> dict[tuple[str, str], float]:
    import numpy as np

    columns = [(name, choice) for name, counts in varied.items() for choice in counts]
    rows = np.array(
        [[float(_choice(each, name) == choice) for name, choice in columns] for each in measured]
    )
    costs = np.array([math.log(each.estimate.cost) for each in measured if each.estimate])
    penalty = _WEIGHT_OF_NO_EFFECT * np.eye(len(columns))
    solved = np.linalg.solve(rows.T @ rows + penalty, rows.T @ (costs - costs.mean()))
    return dict(zip(columns, solved.tolist(), strict=True))


def _choice(candidate: Candidate, name: str) -> str:
    choice = candidate.setting.choices.get(name)
    return "default" if choice is None else str(choice)


def _sentence(effects: Sequence[Effect], adjective: str) -> str:
    names = list(dict.fromkeys(each.parameter for each in effects))
    said, slight = [], []
    for name in names:
        own = [each for each in effects if each.parameter == name]
        if own[-1].slower < _SLIGHT:
            slight.append(name)
        else:
            times = f"{own[-1].slower:.2f} times as {adjective} as {own[-1].choice}"
            said.append(f"{name}: {own[0].choice} is {times}")
    words = "; ".join(said)
    if slight:
        less = f"{', '.join(slight)}: less than 2%"
        words = f"{words}; {less}" if words else less
    settings = sum(each.settings for each in effects if each.parameter == names[0])
    return (
        f"{words}. Estimated with an additive model, one term per choice, over "
        f"{counted(settings, 'configuration')}."
    )
