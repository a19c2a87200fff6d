"""Points that belong to one line: the same model asked in the same way, at several budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.analysis.tradeoff import Answers, Crossover, crossover
from armload.evaluation.results import Point
from armload.evaluation.systems import on_common_questions, system_of

TOLD, UNTOLD, CONCLUDED = "told the budget", "not told the budget", "made to conclude"


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line.

    Attributes:
        label: what tells it from the others.
        points: by budget, the smallest first.
    """

    label: str
    points: tuple[Point, ...]

    @property
    def is_generated(self) -> bool:
        """Whether its answers are texts, some of which are there, and not choices."""
        return self.points[0].budget is not None and bool(self.points[0].attempts)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What an evaluation's points amount to.

    Attributes:
        points: all of them.
        series: the lines that they make.
        generated: of these, the ones that have budgets.
        systems: these, with the questions that all of them answered; none without a common one.
        crossover: of two systems; none for more or fewer.
    """

    points: tuple[Point, ...]
    series: tuple[Series, ...]
    generated: tuple[Series, ...]
    systems: tuple[Answers, ...]
    crossover: Crossover | None


def standing_of(points: Sequence[Point]) -> Standing:
    """Return what points amount to; the crossover's interval takes half a second."""
    series = series_of(points)
    generated = [line for line in series if line.is_generated]
    systems = _systems_of(generated)
    return Standing(
        points=tuple(points),
        series=tuple(series),
        generated=tuple(generated),
        systems=tuple(systems),
        crossover=crossover(*systems) if len(systems) == 2 else None,
    )


def series_of(points: Sequence[Point]) -> list[Series]:
    """Return the lines that points make, in the order of their first points."""
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(_ways(point), []).append(point)
    columns = list(zip(*groups, strict=True))
    differing = [number for number, values in enumerate(columns) if len(set(values)) > 1] or [0]
    return [
        Series(
            label=", ".join(ways[number] for number in differing),
            points=tuple(sorted(its, key=lambda point: point.budget or 0)),
        )
        for ways, its in groups.items()
    ]


def way_words(prompt: str, *, is_told: bool, concludes: bool) -> str:
    """Say in which way a model was asked."""
    told = TOLD if is_told else UNTOLD
    return f"prompt {prompt}, {told}, {CONCLUDED}" if concludes else f"prompt {prompt}, {told}"


def _systems_of(series: Sequence[Series]) -> list[Answers]:
    systems = [system_of(line.label, line.points) for line in series]
    common = on_common_questions(systems) if systems else []
    return [] if any(not system.questions for system in common) else common


def _ways(point: Point) -> tuple[str, ...]:
    told = TOLD if point.is_told else UNTOLD
    return (
        point.model.removesuffix(".gguf"),
        f"prompt {point.prompt}",
        f"{told}, {CONCLUDED}" if point.concludes else told,
    )
