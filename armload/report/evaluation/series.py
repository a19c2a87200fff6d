"""Points that belong to one line: the same model asked in the same way, at several budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armload.analysis.tradeoff import Answers, Crossover, crossover
from armload.evaluation.results import AccuracyPoint
from armload.evaluation.tradeoff import answered, on_common_questions, system_of
from armload.report.drawing import MOST_LINES

TOLD, UNTOLD, CONCLUDED = "told the budget", "not told the budget", "made to conclude"


@dataclass(frozen=True, kw_only=True)
class BudgetSeries:
    """A line.

    Attributes:
        label: what tells it from the others.
        points: by budget, the smallest first.
    """

    label: str
    points: tuple[AccuracyPoint, ...]

    @property
    def is_generated(self) -> bool:
        """Whether its answers are texts, some of which are there at every budget."""
        return self.points[0].budget is not None and bool(answered(self.points))


@dataclass(frozen=True, kw_only=True)
class SeriesGroup:
    """Lines that are drawn together: models that were asked in one way, or one model in several.

    Attributes:
        heading: what tells it from other groups; empty where it is the only one.
        series: the lines; those with budgets and answers at all of them.
        systems: the same, with the questions that all of them answered; none without a common one.
        crossover: of two systems; none for more or fewer.
    """

    heading: str
    series: tuple[BudgetSeries, ...]
    systems: tuple[Answers, ...]
    crossover: Crossover | None

    @property
    def statements(self) -> list[str]:
        """What is said of the crossover, if it was looked for."""
        if self.crossover is None:
            return []
        return [": ".join(filter(None, [self.heading, self.crossover.sentence]))]


@dataclass(frozen=True, kw_only=True)
class EvaluationView:
    """What an evaluation's points amount to.

    Attributes:
        points: all of them.
        series: the lines that they make.
        groups: of these, what is drawn together.
    """

    points: tuple[AccuracyPoint, ...]
    series: tuple[BudgetSeries, ...]
    groups: tuple[SeriesGroup, ...]

    @classmethod
    def of(cls, points: Sequence[AccuracyPoint]) -> EvaluationView:
        """Return what points amount to; each crossover's interval takes half a second."""
        series = series_of(points)
        return cls(
            points=tuple(points),
            series=tuple(series),
            groups=tuple(_groups_of([line for line in series if line.is_generated])),
        )


def series_of(points: Sequence[AccuracyPoint]) -> list[BudgetSeries]:
    """Return the lines that points make, in the order of their first points."""
    groups: dict[tuple[str, ...], list[AccuracyPoint]] = {}
    for point in points:
        groups.setdefault(_variants(point), []).append(point)
    columns = list(zip(*groups, strict=True))
    differing = [number for number, values in enumerate(columns) if len(set(values)) > 1] or [0]
    return [
        BudgetSeries(
            label=", ".join(variants[number] for number in differing),
            points=tuple(sorted(its, key=lambda point: point.budget or 0)),
        )
        for variants, its in groups.items()
    ]


def variant_words(prompt: str, *, is_told: bool, concludes: bool) -> str:
    """Say in which way a model was asked."""
    told = TOLD if is_told else UNTOLD
    return f"prompt {prompt}, {told}, {CONCLUDED}" if concludes else f"prompt {prompt}, {told}"


def variant_heading(prompt: str, *, is_told: bool, concludes: bool) -> str:
    """Say the same at the beginning of a sentence."""
    words = variant_words(prompt, is_told=is_told, concludes=concludes)
    return words[:1].upper() + words[1:]


def _groups_of(series: Sequence[BudgetSeries]) -> list[SeriesGroup]:
    one_model = len({line.points[0].model for line in series}) == 1
    lines: dict[str, list[BudgetSeries]] = {}
    for line in series:
        if one_model:
            lines.setdefault("", []).append(line)
            continue
        point = line.points[0]
        variant = variant_heading(point.prompt, is_told=point.is_told, concludes=point.concludes)
        of_model = replace(line, label=point.model.removesuffix(".gguf"))
        lines.setdefault(variant, []).append(of_model)
    drawn = [
        (variant, its[first : first + MOST_LINES])
        for variant, its in lines.items()
        for first in range(0, len(its), MOST_LINES)
    ]
    return [_group(variant if len(drawn) > 1 else "", its) for variant, its in drawn]


def _group(heading: str, series: Sequence[BudgetSeries]) -> SeriesGroup:
    systems = on_common_questions([system_of(line.label, line.points) for line in series])
    if not systems[0].questions:
        systems = []
    return SeriesGroup(
        heading=heading,
        series=tuple(series),
        systems=tuple(systems),
        crossover=crossover(*systems) if len(systems) == 2 else None,
    )


def _variants(point: AccuracyPoint) -> tuple[str, ...]:
    told = TOLD if point.is_told else UNTOLD
    return (
        point.model.removesuffix(".gguf"),
        f"prompt {point.prompt}",
        f"{told}, {CONCLUDED}" if point.concludes else told,
    )
