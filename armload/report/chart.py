"""The kit for charts: axes, keys of colours and shapes, and marks over rows.

A chart is Vega-Lite, written down as pages and pictures take it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armload.report.drawing import (
    COLOURS,
    HEIGHT_PIXELS,
    QUIET,
    SHAPES,
    SPLIT_LABEL,
    WIDTH_PIXELS,
    panel_label,
)

Channel = dict[str, Any]
Layer = dict[str, Any]
Chart = dict[str, Any]
Look = tuple[str, ...]
Tip = tuple[str, str] | tuple[str, str, str]
"""A column with its kind, what it is called, and the format of a number."""

NUMBER, COUNT, PERCENT = ",.10~g", ",d", ".0%"
"""Formats of an axis."""

DOUBTFUL_COLOUR = "#7F7F7F"
DOUBTFUL_SHAPE = (
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"  # a solid X
)

PANEL_HEIGHT_PIXELS, SPACING_PIXELS = 130, 18
PANEL_COLUMNS = 3

APART_FROM = 5.0
"""Panels whose medians differ by so much have scales of their own."""

_TYPES = {"N": "nominal", "O": "ordinal", "Q": "quantitative"}
_DASHES = [5, 4]
_STEPS = {"interpolate": "step-after"}


def channel(column: str, definition: Mapping[str, Any] | None = None) -> Channel:
    """Return what a column sets: ``ms:Q`` as a quantity, ``:N`` as a name, ``:O`` as a rank."""
    name, kind = column.split(":")
    return {"field": name, "type": _TYPES[kind], **(definition or {})}


# Vega labels few of the ticks that it chooses itself: of 0.4 to 8, only 1 to 3.
_LOG_TICKS = tuple(float(f"{first}e{power}") for power in range(-3, 6) for first in (1, 2, 3, 5))


def axis(
    column: str,
    title: str | None,
    *,
    zero: bool | None = None,
    nice: bool | None = None,
    padding: int | None = None,
    domain: Sequence[float] | None = None,
    is_log: bool = False,
    ticks: int | None = None,
    values: Sequence[float] | None = None,
    form: str = NUMBER,
    grid: bool | None = None,
) -> Channel:
    """Return the axis of a quantity.

    Args:
        column: its name.
        title: with the unit; none for one that stands elsewhere.
        zero: whether the scale holds it; a logarithmic one does not.
        nice: whether the scale ends at round numbers; a logarithmic one does not.
        padding: in pixels, around the values.
        ticks: about so many, on a linear scale.
        values: that have a tick; none for round ones.
        form: of the labels.
        grid: as all charts have it, where none is said: for quantities upwards, on linear scales.
    """
    scale: dict[str, Any] = {"zero": zero, "nice": nice, "padding": padding, "domain": domain}
    if is_log:
        scale = {"type": "log", "nice": False, "padding": padding}
    marks = {"format": form, "tickCount": ticks, "values": values, "grid": grid}
    if form == COUNT:
        marks["tickMinStep"] = 1
    if is_log:
        marks |= {"grid": False, "tickCount": None, "values": values or _LOG_TICKS}
    made = {"title": title, "scale": _set(scale), "axis": _set(marks)}
    return channel(f"{column}:Q", {key: each for key, each in made.items() if each != {}})


def _set(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in definition.items() if each is not None}


@dataclass(frozen=True, kw_only=True)
class Key:
    """What colours and shapes mean.

    Attributes:
        column: holds the label of a row.
        looks: the colour of each label, and its shape if points have it, in the legend's order.
        has_legend: whether the labels are told beside the chart.
    """

    column: str
    looks: Mapping[str, Look]
    has_legend: bool = True

    @property
    def colour(self) -> Channel:
        """The channel of the colour."""
        return self._channel(0)

    @property
    def shape(self) -> Channel:
        """The channel of the shape."""
        return self._channel(1)

    def _channel(self, part: int) -> Channel:
        legend = {"labelExpr": SPLIT_LABEL, "symbolOpacity": 1} if self.has_legend else None
        scale = {"domain": list(self.looks), "range": [look[part] for look in self.looks.values()]}
        return channel(f"{self.column}:N", {"title": None, "legend": legend, "scale": scale})


def lines_key(column: str, labels: Sequence[str], *, doubtful: str = "") -> Key:
    """Return the key of lines, with a legend where there are several.

    Args:
        column: holds the label, wrapped by ``legend_line``.
        labels: of the lines, wrapped likewise; ``MOST_LINES`` at most.
        doubtful: one more, for what is shown and not counted.
    """
    looks: dict[str, Look] = dict(zip(labels, zip(COLOURS, SHAPES, strict=True), strict=False))
    if doubtful:
        looks[doubtful] = (DOUBTFUL_COLOUR, DOUBTFUL_SHAPE)
    return Key(column=column, looks=looks, has_legend=len(looks) > 1 or bool(doubtful))


def kinds_key(
    column: str,
    looks: Mapping[str, Look],
    rows: Sequence[Mapping[str, Any]],
    *,
    has_legend: bool = True,
) -> Key:
    """Return the key of those kinds that rows have."""
    there = {row[column] for row in rows}
    shown = {kind: look for kind, look in looks.items() if kind in there}
    return Key(column=column, looks=shown, has_legend=has_legend)


def mark(
    rows: str, kind: str, look: Mapping[str, Any], channels: Mapping[str, Any], where: str = ""
) -> Layer:
    """Return marks of a kind of Vega-Lite.

    Args:
        rows: the data set's name.
        where: an expression that a row must fulfil.
    """
    layer = {
        "data": {"name": rows},
        "mark": {"type": kind, **_set(look)},
        "encoding": dict(channels),
    }
    return {**layer, "transform": [{"filter": where}]} if where else layer


def guide(rows: str, channels: Mapping[str, Any], where: str = "") -> Layer:
    """Draw a dashed rule: a median, a limit, what is free."""
    return mark(rows, "rule", {"color": QUIET, "strokeDash": _DASHES}, channels, where)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Rows on two axes, of which marks are drawn.

    Attributes:
        rows: the data set's name.
        key: of the marks; without one they are grey.
    """

    rows: str
    x: Channel
    y: Channel
    key: Key | None = None

    def marks(
        self,
        kind: str,
        look: Mapping[str, Any],
        channels: Mapping[str, Any] | None = None,
        *,
        said: Sequence[Tip] = (),
        where: str = "",
    ) -> Layer:
        """Draw marks of a kind of Vega-Lite, in the colours of the key.

        Args:
            channels: besides, or instead of, the two axes.
            said: of the row under the pointer.
            where: an expression that a row must fulfil.
        """
        every: dict[str, Any] = {"x": self.x, "y": self.y, **(channels or {})}
        if self.key:
            every["color"] = self.key.colour
        else:
            look = {"color": QUIET, **look}
        if said:
            every["tooltip"] = [
                channel(column, {"title": title, **({"format": form[0]} if form else {})})
                for column, title, *form in said
            ]
        return mark(self.rows, kind, look, every, where)

    def line(
        self,
        *,
        width: float = 2,
        opacity: float | None = None,
        is_step: bool = False,
        order: str = "",
        said: Sequence[Tip] = (),
        where: str = "",
    ) -> Layer:
        """Draw a line for each label, along the x axis or in the order of a column."""
        look = {"strokeWidth": width, "opacity": opacity, **(_STEPS if is_step else {})}
        channels = {"order": channel(f"{order}:Q")} if order else {}
        return self.marks("line", look, channels, said=said, where=where)

    def dashes(self) -> Layer:
        """Draw a dashed line, which guides the eye."""
        look = {"color": QUIET, "strokeDash": _DASHES}
        return mark(self.rows, "line", look, {"x": self.x, "y": self.y})

    def points(
        self, *, size: int, opacity: float = 1, said: Sequence[Tip] = (), where: str = ""
    ) -> Layer:
        """Draw a point for each row."""
        look = {"filled": True, "size": size, "opacity": opacity}
        channels = {"shape": self.key.shape} if self.key else {}
        return self.marks("point", look, channels, said=said, where=where)

    def rings(self, *, size: int, where: str = "") -> Layer:
        """Draw a ring around each point."""
        look = {"filled": False, "shape": "circle", "size": size, "strokeWidth": 1.5, "opacity": 1}
        return self.marks("point", look, where=where)

    def band(self, *, is_step: bool = False) -> Layer:
        """Draw an interval around each line, from the column ``low`` to ``high``."""
        return self.marks("area", {"opacity": 0.15, **(_STEPS if is_step else {})}, self._interval)

    def spans(self) -> Layer:
        """Draw an interval at each point, likewise."""
        return self.marks("rule", {"strokeWidth": 2}, self._interval)

    def texts(
        self, look: Mapping[str, Any], channels: Mapping[str, Any] | None = None, where: str = ""
    ) -> Layer:
        """Write the column ``text`` in the colour of the page."""
        every = {"x": self.x, "y": self.y, "text": channel("text:N"), **(channels or {})}
        return mark(self.rows, "text", {"fontSize": 12, **look}, every, where)

    @property
    def _interval(self) -> dict[str, Channel]:
        return {"y": {**self.y, "field": "low"}, "y2": {"field": "high"}}


def layered(
    layers: Sequence[Layer], width: int = WIDTH_PIXELS, height: int = HEIGHT_PIXELS
) -> Chart:
    """Return a chart of layers, from the bottom to the top, of a size in pixels."""
    first, *others = (layer["data"] for layer in layers)
    size = {"width": width, "height": height}
    if any(other != first for other in others):
        return {"layer": list(layers), **size}
    bare = [{key: part for key, part in layer.items() if key != "data"} for layer in layers]
    return {"data": first, "layer": bare, **size}


def in_panels(layers: Sequence[Layer], labels: Sequence[str], medians: Sequence[float]) -> Chart:
    """Return layers in one chart, or in a panel for each label.

    Args:
        layers: of one data set, with the column ``cell``.
        labels: of the panels, in their order.
        medians: of what is on the y axis, in any unit.
    """
    if len(labels) == 1:
        return layered(layers)
    columns = 2 if len(labels) in (2, 4) else PANEL_COLUMNS
    width = (WIDTH_PIXELS - SPACING_PIXELS * (columns - 1)) // columns
    panel = layered(layers, width, PANEL_HEIGHT_PIXELS)
    header = {"title": None, "labelFontSize": 12, "labelAnchor": "start"}
    header |= {"labelLimit": 0, "labelExpr": SPLIT_LABEL}
    facet = {"sort": [panel_label(label) for label in labels], "header": header}
    is_apart = max(medians) > APART_FROM * min(medians)
    return {
        "data": panel.pop("data"),
        "facet": channel("cell:N", facet),
        "spec": panel,
        "columns": columns,
        "spacing": SPACING_PIXELS,
        "resolve": {
            "axis": {"x": "independent"},
            **({"scale": {"y": "independent"}} if is_apart else {}),
        },
    }
