"""What all charts share: size, type, colours, and how a specification becomes a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from armload.core.values import visible

if TYPE_CHECKING:
    import altair as alt

    Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.VConcatChart

Specification = dict[str, Any]
Rows = list[dict[str, Any]]

WIDTH_PIXELS, HEIGHT_PIXELS = 760, 300
PIXELS_PER_UNIT = 2
SUBTITLE_CHARACTERS = 118
LEGEND_COLUMNS = 4

QUIET = "#888888"
"""Of rules and lines that only guide the eye; seen on light and dark paper."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Colours that people with any colour vision tell apart (Okabe and Ito, 2008), and a grey."""

SHAPES = (
    "circle",
    "triangle-up",
    "diamond",
    "square",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
"""One for each colour, for those who see none and for black print."""

MOST_LINES = len(COLOURS)
"""More lines in one chart nobody tells apart."""


def chart_of(
    layers: Chart | Sequence[alt.Chart],
    datasets: Mapping[str, Rows],
    *,
    title: str,
    subtitle: str,
    legend_columns: int = LEGEND_COLUMNS,
    width: int = WIDTH_PIXELS,
    height: int = HEIGHT_PIXELS,
) -> Specification:
    """Return the specification of a chart, with the type that all share.

    Args:
        layers: from the bottom to the top; or a chart that has its size already.
        datasets: by the names that ``source`` gave them.
        width: in pixels, of layers.
        height: likewise.
    """
    import altair as alt

    chart = (
        alt.layer(*layers).properties(width=width, height=height)
        if isinstance(layers, Sequence)
        else layers
    )
    lines = textwrap.wrap(subtitle, SUBTITLE_CHARACTERS)
    specification: Specification = (
        chart.properties(title=alt.TitleParams(title, subtitle=lines, anchor="start"))
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_axisX(grid=False, labelSeparation=8)
        .configure_title(
            fontSize=16, subtitleFontSize=12, subtitleLineHeight=16, subtitlePadding=6, offset=14
        )
        .configure_legend(
            orient="bottom",
            columns=legend_columns,
            labelFontSize=12,
            symbolSize=80,
            labelLimit=0,
        )
        .to_dict()
    )
    return {**specification, "datasets": dict(datasets)}


def source(name: str) -> alt.Chart:
    """Return what draws marks from a data set."""
    import altair as alt

    return alt.Chart(alt.NamedData(name=name))


def guide(rows: alt.Chart, *channels: Any) -> alt.Chart:
    """Draw a dashed rule: a median, a limit, what is free."""
    rule: alt.Chart = rows.mark_rule(color=QUIET, strokeDash=[5, 4]).encode(*channels)
    return rule


def interval_band(
    rows: alt.Chart, x: alt.X, low: alt.Y, colour: alt.Color, **options: Any
) -> alt.Chart:
    """Draw a confidence interval around a line, from the channel ``low`` to the field ``high``."""
    import altair as alt

    area = rows.mark_area(opacity=0.15, **options)
    band: alt.Chart = area.encode(x, low, alt.Y2("high:Q"), colour)
    return band


def untitled(specification: Specification) -> Specification:
    """Return a specification for a page, which writes title and sentence above the chart."""
    return {key: value for key, value in specification.items() if key != "title"}


def legible(value: Any) -> Any:
    """Replace in a specification what would turn the text around it, or what no SVG can hold."""
    if isinstance(value, dict):
        return {legible(key): legible(each) for key, each in value.items()}
    if isinstance(value, list):
        return [legible(each) for each in value]
    return visible(value) if isinstance(value, str) else value


def columns_for(labels: Sequence[str]) -> int:
    """Return how many labels of a legend stand beside one another in a picture."""
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    return max(1, min(LEGEND_COLUMNS, WIDTH_PIXELS // (7 * longest + 40)))


def png(specification: Specification) -> bytes:
    """Draw a specification on white, sharp enough for a slide."""
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(
        legible(specification), scale=PIXELS_PER_UNIT, config={"background": "white", "padding": 16}
    )
    return picture


def svg(specification: Specification) -> str:
    """Draw a specification on white, as a file of its own."""
    import vl_convert

    picture: str = vl_convert.vegalite_to_svg(
        legible(specification), config={"background": "white", "padding": 16}
    )
    return picture


def inline_svg(specification: Specification) -> str:
    """Draw a specification as an SVG element without a background."""
    import vl_convert

    picture: str = vl_convert.vegalite_to_svg(specification, config={"background": "transparent"})
    return picture
