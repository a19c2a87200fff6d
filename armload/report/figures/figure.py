"""What a figure is, and what several share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import Field

from armload.core.values import Value
from armload.report.cells import Cell, fastest_of_each
from armload.report.chart import Chart, Key, Layer, layered
from armload.report.drawing import MOST_LINES, Rows, Specification, chart_of, columns_for

MOST_PANELS = 12

Item = TypeVar("Item")


class Figure(Value):
    """One figure.

    Attributes:
        name: of its files, without an ending.
        title: what it shows.
        sentence: what it says, with figures and units.
        note: how it is read.
        specification: for Vega-Lite, with title and sentence; page and pictures are drawn from it.
    """

    name: str
    title: str
    sentence: str
    note: str = Field(default="", exclude=True)
    specification: Specification = Field(exclude=True)

    @property
    def said(self) -> str:
        """What it says, and how it is read."""
        return " ".join(filter(None, (self.sentence, self.note)))

    @property
    def label(self) -> str:
        """What it shows and says, for those who do not see it."""
        return ": ".join(filter(None, (self.title, self.sentence)))


def drawn(
    name: str,
    title: str,
    sentence: str,
    chart: Chart | Sequence[Layer],
    datasets: Mapping[str, Rows],
    *,
    note: str = "",
    key: Key | None = None,
) -> Figure:
    """Return a figure.

    Args:
        chart: or its layers, from the bottom to the top.
        datasets: the rows, by the names that the layers use.
        note: how the picture is read; it follows the sentence.
        key: whose labels the legend has room for.
    """
    specification = chart_of(
        layered(chart) if isinstance(chart, Sequence) else chart,
        datasets,
        title=title,
        subtitle=" ".join(filter(None, (sentence, note))),
        legend_columns=columns_for(list(key.looks) if key else []),
    )
    return Figure(name=name, title=title, sentence=sentence, note=note, specification=specification)


@dataclass(frozen=True, kw_only=True)
class TimeUnit:
    """Milliseconds or seconds, whichever suits all of a figure's times."""

    name: str
    per_s: float


def time_unit(times_s: Iterable[float]) -> TimeUnit:
    """Return seconds where even the shortest time has one."""
    if min(times_s, default=0.0) >= 1:
        return TimeUnit(name="s", per_s=1.0)
    return TimeUnit(name="ms", per_s=1000.0)


def drawn_as_lines(cells: Sequence[Cell]) -> tuple[Sequence[Cell], str]:
    """Return the cells that have room as lines, and a sentence on those that have not."""
    shown = fastest_of_each(cells, MOST_LINES)
    if len(shown) == len(cells):
        return shown, ""
    kind = "fastest of each kind" if len(shown) > 1 else "fastest"
    return shown, f" Shown: the {kind}, {len(shown)} of {len(cells)}; the table has all."


def thinned(several: Sequence[Item], most: int, *, always: Sequence[bool] = ()) -> list[Item]:
    """Return about so many at most, evenly taken, with the last, and those that must stay."""
    every, last = -(-len(several) // most), len(several) - 1
    return [
        each
        for number, each in enumerate(several)
        if number % every == 0 or number == last or (always and always[number])
    ]
