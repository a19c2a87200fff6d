"""What each parameter does: how many times as fast its choices are, other things being equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armload.core.values import counted
from armload.report.chart import Plot, axis, channel, kinds_key, layered
from armload.report.drawing import COLOURS, WIDTH_PIXELS
from armload.report.figures.figure import Figure, drawn
from armload.report.tuning.view import Candidate, TuningView
from armload.tuning.wanted import AIMS

NAME, TITLE = "effects", "Effect of each parameter"
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
    return drawn(NAME, TITLE, sentence, chart, {"effects": rows})


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
