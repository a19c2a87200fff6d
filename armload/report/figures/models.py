"""Model against model: how many times as long a token takes, beside how much more it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.analysis.statistics import Ratio, ratio_of_tokens
from armload.report.cells import Cell, grouped, tps_of
from armload.report.chart import Plot, axis, channel, kinds_key, layered, mark
from armload.report.drawing import Rows, wrapped
from armload.report.figures.figure import Figure, drawn
from armload.report.settings import MODEL, MODEL_SUM, QUANTISATION

NAME = "models"
TITLE = "Model against model"

ALIKE_WITHIN = 0.10
"""Ratios of time and of size that differ by less say that the bytes decide."""

MOST_PAIRS = 12
LINE_CHARACTERS = 46
"""Of what stands above the bars; as much as a phone has room for."""

BARS_PIXELS, LINE_PIXELS, GAP_PIXELS = 40, 15, 14

INTERVALS = "intervals"
"""The page draws what is called so in the colour of its text."""

TIME, SIZE = "time per token", "bytes read per token"
KINDS = {TIME: ("#56B4E9",), SIZE: ("#D55E00",)}
"""A light and a dark colour, also in black print; the intervals are seen on the light one."""


@dataclass(frozen=True, kw_only=True)
class ModelPair:
    """Two models in the same place and way; ``large`` has the larger weights."""

    small: Cell
    large: Cell
    time: Ratio
    size_ratio: float


def models(cells: Sequence[Cell]) -> Figure | None:
    """Hold each model to the smallest, where both ran alike; none with one model."""
    pairs = pairs_of(cells)
    if not pairs:
        return None
    shown = sorted(pairs, key=lambda pair: tps_of(pair.small), reverse=True)[:MOST_PAIRS]
    left_out = f" Shown: {len(shown)} of {len(pairs)}." if len(shown) < len(pairs) else ""
    sentence = sentence_on(shown[0]) + left_out
    kept = [pair for pair in pairs if pair in shown]
    rows: Rows = [row for pair in kept for row in _rows(pair)]
    order = list(dict.fromkeys(row["pair"] for row in rows))
    lines = max(name.count("\n") + 1 for name in order)
    gap = GAP_PIXELS + LINE_PIXELS * lines
    step = gap + BARS_PIXELS
    position = {"sort": order, "title": None, "axis": None}
    padding = {"paddingInner": gap / step, "paddingOuter": gap / step}
    key = kinds_key("kind", KINDS, rows)
    x = axis("ratio", "times that of the smaller model", zero=True, ticks=8, grid=True)
    pair = channel("pair:N", {**position, "scale": padding})
    plot = Plot(rows="ratios", x=x, y=pair, key=key)
    offset = {"yOffset": channel("kind:N", {"sort": list(KINDS), "scale": {"paddingInner": 0.1}})}
    low = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
    spans = {
        **mark(
            "ratios",
            "rule",
            {"strokeWidth": 1.5},
            {"y": pair, **offset, **low},
            "isValid(datum.low)",
        ),
        "name": INTERVALS,
    }
    values = plot.texts(
        {"align": "left", "dx": 6, "fontWeight": "bold"}, {**offset, "x": {**x, "field": "end"}}
    )
    top = channel("pair:N", {**position, "bandPosition": 0})
    names = Plot(rows="pairs", x={"value": 0}, y=top).texts(
        {
            "align": "left",
            "baseline": "line-bottom",
            "dy": -3 - LINE_PIXELS * (lines - 1),
            "lineBreak": "\n",
            "lineHeight": LINE_PIXELS,
        }
    )
    return drawn(
        NAME,
        TITLE,
        sentence,
        layered(
            (plot.marks("bar", {}, offset), spans, values, names),
            height=step * len(order) + gap,
        ),
        {
            "ratios": rows,
            # Empty lines above put the last line of every name in the same place.
            "pairs": [
                {"pair": name, "text": "\n" * (lines - 1 - name.count("\n")) + name}
                for name in order
            ],
        },
        note="Black lines: 95% confidence intervals.",
        key=key,
    )


def pairs_of(cells: Sequence[Cell]) -> list[ModelPair]:
    """Return each valid cell beside that of the smallest model with the same settings."""
    rated = [cell for cell in cells if cell.is_valid and cell.rows_s and _bytes(cell) > 0]
    pairs = []
    for group in grouped(rated, _but_model).values():
        small = min(group, key=_bytes)
        pairs += [
            ModelPair(
                small=small,
                large=cell,
                time=ratio_of_tokens(small.rows_s, cell.rows_s),
                size_ratio=_bytes(cell) / _bytes(small),
            )
            for cell in group
            if cell.runs[0].model.sha256 != small.runs[0].model.sha256
        ]
    return pairs


def sentence_on(pair: ModelPair) -> str:
    """Say both ratios, and what follows."""
    where = pair.large.label_without(MODEL)
    condition = f" ({where})" if where else ""
    return (
        f"{_model(pair.large)} takes {pair.time.ratio:.2f} times as long per token as "
        f"{_model(pair.small)}{condition}, and reads {pair.size_ratio:.2f} times as many bytes: "
        f"{_conclusion(pair)}."
    )


def _conclusion(pair: ModelPair) -> str:
    limits = {pair.small.limit, pair.large.limit}
    if pair.large.limit == "storage" and pair.small.limit != "storage":
        return "only the larger one waits for storage"
    off = pair.time.ratio / pair.size_ratio
    if abs(off - 1) <= ALIKE_WITHIN:
        if limits == {"storage"}:
            return "reading from storage is the limit"
        if "compute" in limits:
            return "time is proportional to size, although compute is the limit"
        return "reading the weights is the limit"
    if off < 1:
        return "the larger one takes less time per byte, so not all time is spent reading"
    return "the larger one takes longer per byte, so compute takes time in addition to reading"


def _but_model(cell: Cell) -> str:
    rest = {
        name: value
        for name, value in cell.settings.items()
        if name not in (MODEL, QUANTISATION, MODEL_SUM)
    }
    return repr(rest)


def _bytes(cell: Cell) -> int:
    return cell.runs[0].model.bytes_per_token or 0


def _model(cell: Cell) -> str:
    return cell.parts[MODEL]


def _rows(pair: ModelPair) -> Rows:
    name = f"{_model(pair.large)} against {_model(pair.small)}"
    where = pair.large.label_without(MODEL)
    if where:
        name += f", {where}"
    name = wrapped(name, LINE_CHARACTERS)
    time = {
        "pair": name,
        "kind": TIME,
        "ratio": pair.time.ratio,
        "low": pair.time.low,
        "high": pair.time.high,
        "end": max(pair.time.ratio, pair.time.high),
        "text": f"{pair.time.ratio:.2f}",
    }
    size = {
        "pair": name,
        "kind": SIZE,
        "ratio": pair.size_ratio,
        "low": None,
        "high": None,
        "end": pair.size_ratio,
        "text": f"{pair.size_ratio:.2f}",
    }
    return [time, size]
