"""The kinds of trials and settings in the figures: a colour and a shape for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.report.drawing import COLOURS
from armload.report.figures.figure import DOUBTFUL_COLOUR, DOUBTFUL_SHAPE, Rows

if TYPE_CHECKING:
    import altair as alt

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


def colour_and_shape(rows: Rows) -> tuple[alt.Color, alt.Shape]:
    """Return the channels that tell the kinds of rows apart; a row's is under ``kind``."""
    import altair as alt

    kinds = [kind for kind in _LOOKS if any(row["kind"] == kind for row in rows)]
    colours, shapes = ([_LOOKS[kind][part] for kind in kinds] for part in (0, 1))
    return (
        alt.Color("kind:N").title(None).scale(domain=kinds, range=colours),
        alt.Shape("kind:N").title(None).scale(domain=kinds, range=shapes),
    )
