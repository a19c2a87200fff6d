"""What all charts share: size, type, colours, and how a specification becomes a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from armload.core.values import visible

Specification = dict[str, Any]
Rows = list[dict[str, Any]]

WIDTH_PIXELS, HEIGHT_PIXELS = 760, 300
PIXELS_PER_UNIT = 2
SUBTITLE_CHARACTERS = 118
LEGEND_COLUMNS, LEGEND_CHARACTERS = 4, 38
PANEL_CHARACTERS = 32
GLUE = "\N{NO-BREAK SPACE}"
SPLIT_LABEL = "split(datum.label, '\\n')"

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

_LEGEND = {"orient": "bottom", "labelFontSize": 12, "symbolSize": 80, "labelLimit": 0}
_CONFIG = {
    "view": {"continuousWidth": 300, "continuousHeight": 300, "stroke": None},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
    "axisX": {"grid": False, "labelSeparation": 8},
    "title": {
        "fontSize": 16,
        "subtitleFontSize": 12,
        "subtitleLineHeight": 16,
        "subtitlePadding": 6,
        "offset": 14,
    },
}


def chart_of(
    chart: Mapping[str, Any],
    datasets: Mapping[str, Rows],
    *,
    title: str,
    subtitle: str,
    legend_columns: int = LEGEND_COLUMNS,
) -> Specification:
    """Return the specification of a chart, with the type that all share.

    Args:
        datasets: by the names that the chart's layers use.
    """
    lines = textwrap.wrap(subtitle, SUBTITLE_CHARACTERS)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **chart,
        "title": {"text": title, "subtitle": lines, "anchor": "start"},
        "config": {**_CONFIG, "legend": {**_LEGEND, "columns": legend_columns}},
        "datasets": dict(datasets),
    }


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


def legend_line(label: str) -> str:
    """Break a label into lines that a phone has room for."""
    return wrapped(label, LEGEND_CHARACTERS)


def panel_label(label: str) -> str:
    """Break a label into lines that a panel has room for; rows hold it as ``cell``."""
    return wrapped(label, PANEL_CHARACTERS)


def wrapped(label: str, characters: int) -> str:
    """Break a label between its parts into lines, which the charts split at the line ends."""
    glued = label.replace(" ", GLUE).replace(f",{GLUE}", ", ").replace(f":{GLUE}", ": ")
    is_long = any(len(part) > characters for part in glued.split(" "))
    lines = textwrap.wrap(glued, characters, break_on_hyphens=is_long)
    return "\n".join(lines).replace(GLUE, " ")


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
