"""One chart for one run, panels for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.report.drawing import HEIGHT_PIXELS, WIDTH_PIXELS
from armload.report.figures.figure import SPLIT_LABEL, wrapped

if TYPE_CHECKING:
    import altair as alt

    from armload.report.drawing import Chart

MOST_PANELS = 12

PANEL_HEIGHT_PIXELS, SPACING_PIXELS = 130, 18
PANEL_COLUMNS = 3
PANEL_CHARACTERS = 32

APART_FROM = 5.0
"""Panels whose medians differ by so much have scales of their own."""


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
