"""What a figure is, and what several of them share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armload.report.cells import Cell
from armload.report.drawing import COLOURS, MOST_LINES, SHAPES, Specification
from armload.report.ranking import fastest_of_each

if TYPE_CHECKING:
    import altair as alt

DOUBTFUL_COLOUR = "#7F7F7F"
DOUBTFUL_SHAPE = (
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"  # a solid X
)

LEGEND_CHARACTERS = 38
GLUE = "\N{NO-BREAK SPACE}"
SPLIT_LABEL = "split(datum.label, '\\n')"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure.

    Attributes:
        name: of its files, without an ending.
        title: what it shows.
        sentence: what it says, with figures and units.
        specification: for Vega-Lite, with title and sentence; page and pictures are drawn from it.
    """

    name: str
    title: str
    sentence: str
    specification: Specification


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
    name: str,
    title: str,
    sentence: str,
    cells: Sequence[Cell],
    draw: Callable[[Sequence[Cell], str], Specification],
) -> Figure:
    """Draw the cells that have room as lines; the sentence says of those that have not."""
    shown = fastest_of_each(cells, MOST_LINES)
    if len(shown) < len(cells):
        kind = "fastest of each kind" if len(shown) > 1 else "fastest"
        sentence += f" Shown: the {kind}, {len(shown)} of {len(cells)}; the table has all."
    return Figure(name=name, title=title, sentence=sentence, specification=draw(shown, sentence))


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
