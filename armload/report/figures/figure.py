"""What a figure is, what several share, and one chart or a panel for each run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from armload.core.values import Value
from armload.report.cells import Cell, fastest_of_each
from armload.report.drawing import (
    COLOURS,
    HEIGHT_PIXELS,
    LEGEND_COLUMNS,
    MOST_LINES,
    SHAPES,
    WIDTH_PIXELS,
    Rows,
    Specification,
    chart_of,
)

if TYPE_CHECKING:
    import altair as alt

    from armload.report.drawing import Chart

DOUBTFUL_COLOUR = "#7F7F7F"
DOUBTFUL_SHAPE = (
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"  # a solid X
)

LEGEND_CHARACTERS = 38
GLUE = "\N{NO-BREAK SPACE}"
SPLIT_LABEL = "split(datum.label, '\\n')"

MOST_PANELS = 12

PANEL_HEIGHT_PIXELS, SPACING_PIXELS = 130, 18
PANEL_COLUMNS = 3
PANEL_CHARACTERS = 32

APART_FROM = 5.0
"""Panels whose medians differ by so much have scales of their own."""


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
    def label(self) -> str:
        """What it shows and says, for those who do not see it."""
        return ": ".join(filter(None, (self.title, self.sentence)))


def drawn(
    name: str,
    title: str,
    sentence: str,
    layers: Chart | Sequence[alt.Chart],
    datasets: Mapping[str, Rows],
    *,
    note: str = "",
    legend_columns: int = LEGEND_COLUMNS,
    width: int = WIDTH_PIXELS,
    height: int = HEIGHT_PIXELS,
) -> Figure:
    """Return a figure of what ``chart_of`` draws.

    Args:
        note: how the picture is read; it follows the sentence.
    """
    specification = chart_of(
        layers,
        datasets,
        title=title,
        subtitle=" ".join(filter(None, (sentence, note))),
        legend_columns=legend_columns,
        width=width,
        height=height,
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


def lines_figure(
    sentence: str, cells: Sequence[Cell], draw: Callable[[Sequence[Cell], str], Figure]
) -> Figure:
    """Draw the cells that have room as lines; the sentence says of those that have not."""
    shown = fastest_of_each(cells, MOST_LINES)
    if len(shown) < len(cells):
        kind = "fastest of each kind" if len(shown) > 1 else "fastest"
        sentence += f" Shown: the {kind}, {len(shown)} of {len(cells)}; the table has all."
    return draw(shown, sentence)


def colour_and_shape(
    field: str, labels: Sequence[str], *, doubtful: str = ""
) -> tuple[alt.Color, alt.Shape]:
    """Return the encodings of lines and marks by their label, with one legend for both.

    Args:
        field: holds the label, wrapped by ``legend_line``.
        labels: of the lines, in the legend's order, wrapped likewise.
        doubtful: one more, for what is shown and not counted.
    """
    import altair as alt

    extra = [doubtful] if doubtful else []
    domain = [*labels, *extra]
    colours = [*COLOURS[: len(labels)], *([DOUBTFUL_COLOUR] if doubtful else [])]
    shapes = [*SHAPES[: len(labels)], *([DOUBTFUL_SHAPE] if doubtful else [])]
    legend = None
    if len(domain) > 1 or doubtful:
        legend = alt.Legend(labelExpr=SPLIT_LABEL, symbolOpacity=1)
    return (
        alt.Color(f"{field}:N", legend=legend).title(None).scale(domain=domain, range=colours),
        alt.Shape(f"{field}:N", legend=legend).title(None).scale(domain=domain, range=shapes),
    )


def legend_line(label: str) -> str:
    """Break a label into lines that a phone has room for."""
    return wrapped(label, LEGEND_CHARACTERS)


def wrapped(label: str, characters: int) -> str:
    """Break a label between its parts into lines, which the charts split at the line ends."""
    glued = label.replace(" ", GLUE).replace(f",{GLUE}", ", ").replace(f":{GLUE}", ": ")
    is_long = any(len(part) > characters for part in glued.split(" "))
    lines = textwrap.wrap(glued, characters, break_on_hyphens=is_long)
    return "\n".join(lines).replace(GLUE, " ")


def thinned(rows: Rows, most: int, *, always: Sequence[bool]) -> Rows:
    """Return at most about so many rows, evenly taken, and those that must stay."""
    every = -(-len(rows) // most)
    return [
        row
        for number, (row, stays) in enumerate(zip(rows, always, strict=True))
        if stays or number % every == 0 or number == len(rows) - 1
    ]


def panel_label(label: str) -> str:
    """Break a label into lines that a panel has room for; rows hold it as ``cell``."""
    return wrapped(label, PANEL_CHARACTERS)


def in_panels(
    marks: Sequence[alt.Chart],
    data: alt.NamedData,
    labels: Sequence[str],
    medians: Sequence[float],
) -> Chart:
    """Layer marks in one chart, or in a panel for each label.

    Args:
        data: of all marks, with the field ``cell``.
        labels: of the panels, in their order.
        medians: of what is on the y axis, in any unit.
    """
    import altair as alt

    layers = alt.layer(*marks, data=data)
    chart: Chart
    if len(labels) == 1:
        chart = layers.properties(width=WIDTH_PIXELS, height=HEIGHT_PIXELS)
        return chart
    header = alt.Header(
        title=None,
        labelFontSize=12,
        labelAnchor="start",
        labelLimit=0,
        labelExpr=SPLIT_LABEL,
    )
    columns = 2 if len(labels) in (2, 4) else PANEL_COLUMNS
    width = (WIDTH_PIXELS - SPACING_PIXELS * (columns - 1)) // columns
    chart = layers.properties(width=width, height=PANEL_HEIGHT_PIXELS).facet(
        facet=alt.Facet("cell:N").sort(list(map(panel_label, labels))).header(header),
        columns=columns,
        spacing=SPACING_PIXELS,
    )
    if max(medians) > APART_FROM * min(medians):
        chart = chart.resolve_scale(y="independent")
    chart = chart.resolve_axis(x="independent")
    return chart
