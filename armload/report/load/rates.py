"""Latency percentiles, and requests within the objectives, against the rate or the clients."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.quantiles import (
    SHOWN,
    USUAL,
    Distribution,
    Quantile,
    percentile_name,
)
from armload.analysis.load.records import Objectives
from armload.report import formatting as words
from armload.report.chart import Channel, Plot, axis, channel, guide, in_panels, lines_key
from armload.report.drawing import MOST_LINES, Rows
from armload.report.figures.distribution import LOGARITHMIC_FROM
from armload.report.figures.figure import Figure, drawn
from armload.report.load.loaded import LoadedPoint, LoadView

FIRST, EACH, WHOLE = "time to first token", "time per output token", "end-to-end latency"

WITHIN, ANSWERED = "within the SLO", "answered"


def latency_figure(loaded: LoadView) -> Figure | None:
    """Draw the percentiles of each latency against the pace; none without an answered request."""
    if not any(point.assessed.metrics.ok for point in loaded.points):
        return None
    title = f"Latency against {_pace_name(loaded)}"
    sentence = _latency_sentence(loaded)
    chosen = (loaded.load.percentiles or USUAL)[-MOST_LINES:]
    percentiles = [percentile_name(each) for each in chosen]
    rows: Rows = [row for point in loaded.points for row in _latency_rows(point, percentiles)]
    limits = _limits(loaded.objectives)
    panels = [kind for kind in (FIRST, EACH, WHOLE) if any(row["cell"] == kind for row in rows)]
    for row in rows:  # a panel without any figure to draw has no scale, so an unseen one stands in
        row["limit"] = limits.get(row["cell"], row["value"])
        row["limited"] = int(row["cell"] in limits)
    key = lines_key("percentile", percentiles)
    values = [row["value"] for row in rows]
    is_wide = bool(values) and max(values) > LOGARITHMIC_FROM * min(values)
    padding = 8 if is_wide else None
    y = axis("value", "latency (s)", zero=True, padding=padding, is_log=is_wide, ticks=5)
    plot = Plot(rows="latencies", x=_pace_axis(loaded), y=y, key=key)
    marks = plot.points(
        size=60,
        said=(
            ("percentile:N", "percentile"),
            ("pace:Q", _pace_name(loaded)),
            ("value:Q", "latency (s)", ",.4~g"),
            ("interval:N", "95% CI"),
        ),
    )
    layers = [plot.line(), marks]
    has_interval = any(row["low"] is not None for row in rows)
    if has_interval:
        # A panel without any interval would have no scale for them, so each has one of no width.
        for row in rows:
            row["low"] = row["value"] if row["low"] is None else row["low"]
            row["high"] = row["value"] if row["high"] is None else row["high"]
        layers.insert(0, plot.band())
    if limits:
        limit = {**y, "field": "limit", "aggregate": "mean"}
        shown = channel("limited:Q", {"legend": None, "scale": None})
        layers.append(guide("latencies", {"y": limit, "opacity": shown}))
    middles = [max(row["value"] for row in rows if row["cell"] == panel) for panel in panels]
    chart = in_panels(layers, panels, middles)
    bands = "Bands are 95% confidence intervals." if has_interval else ""
    dashed = "Dashed: the SLO." if limits else ""
    return drawn(
        "latency",
        title,
        sentence,
        chart,
        {"latencies": rows},
        note=" ".join(filter(None, (bands, dashed))),
        key=key,
    )


def throughput_figure(loaded: LoadView) -> Figure | None:
    """Draw answered requests per second, and those within the objectives, against the pace.

    One point is told by the headline and the table.
    """
    if len(loaded.points) < 2:
        return None
    what = "Goodput" if loaded.objectives else "Throughput"
    title = f"{what} against {_pace_name(loaded)}"
    sentence = _throughput_sentence(loaded)
    rows: Rows = []
    for point in loaded.points:
        metrics = point.assessed.metrics
        rows.append({"kind": ANSWERED, "pace": point.pace, "rate": metrics.requests_per_s})
        if metrics.goodput is not None:
            rows.append(
                {"kind": WITHIN, "pace": point.pace, "rate": metrics.goodput.requests_per_s}
            )
    kinds = [WITHIN, ANSWERED] if loaded.objectives else [ANSWERED]
    key = lines_key("kind", kinds)
    x = _pace_axis(loaded)
    y = axis("rate", "requests/s", zero=True, ticks=5)
    plot = Plot(rows="rates", x=x, y=y, key=key)
    marks = plot.points(
        size=70,
        said=(
            ("kind:N", "what"),
            ("pace:Q", _pace_name(loaded)),
            ("rate:Q", "requests/s", ",.3~g"),
        ),
    )
    layers = [plot.line(), marks]
    dashed = ""
    if loaded.is_open and len(loaded.points) > 1 and loaded.unit == "requests":
        layers.insert(0, Plot(rows="due", x=x, y=y).dashes())
        dashed = "Dashed: the scheduled rate."
    return drawn(
        "goodput",
        title,
        sentence,
        layers,
        {
            "rates": rows,
            "due": [
                {"pace": point.pace, "rate": point.assessed.rate or point.pace}
                for point in loaded.points
            ],
        },
        note=dashed,
        key=key,
    )


def _pace_name(loaded: LoadView) -> str:
    if loaded.is_staged:
        return "time"
    return "rate" if loaded.is_open else "clients"


def _pace_axis(loaded: LoadView) -> Channel:
    title = f"scheduled {loaded.unit}/s" if loaded.is_open else "concurrent clients"
    if loaded.is_staged:
        title = "start of the stage (s)"
    paces = [point.pace for point in loaded.points]
    return axis("pace", title, zero=False, nice=False, padding=14, values=paces)


def _latency_sentence(loaded: LoadView) -> str:
    latencies = [(point.label, point.assessed.metrics.from_scheduled) for point in loaded.points]
    has_tokens = any(found.ttft for _, found in latencies)
    known = [
        (label, latency)
        for label, found in latencies
        if (latency := found.ttft if has_tokens else found.e2e) is not None
    ]
    percentiles = loaded.load.percentiles or SHOWN
    low, highest = percentiles[0], percentiles[1:][-1:]

    def times(found: Distribution) -> list[str]:
        names = map(percentile_name, (low, *highest))
        return [words.seconds(found.percentiles[name].value_s) for name in names]

    (label, latency), *others = (*known[:1], *known[1:][-1:])
    first, *second = times(latency)
    said = (
        f"{label}: {'half' if low == 50 else f'{low:g}%'} of the requests had their "
        f"{'first token' if has_tokens else 'answer'} within {first} of their scheduled time"
    )
    for high, time in zip(highest, second, strict=True):
        said += f", {high:g}% within {time}"
    for label, ttft in others:
        said += f". {label}: within {' and '.join(times(ttft))}"
    return f"{said}."


def _limits(objectives: Objectives | None) -> dict[str, float]:
    if objectives is None:
        return {}
    limits = {FIRST: objectives.ttft_s, EACH: objectives.tpot_s, WHOLE: objectives.e2e_s}
    return {kind: limit for kind, limit in limits.items() if limit is not None}


def _latency_rows(point: LoadedPoint, percentiles: Sequence[str]) -> Rows:
    metrics = point.assessed.metrics
    found = {
        FIRST: metrics.from_scheduled.ttft,
        EACH: metrics.tpot,
        WHOLE: metrics.from_scheduled.e2e,
    }

    def interval(of: Quantile) -> str:
        known = of.low_s is not None and of.high_s is not None
        return f"{of.low_s:,.4g} to {of.high_s:,.4g}" if known else "unknown"

    return [
        {
            "cell": kind,
            "pace": point.pace,
            "percentile": name,
            "value": distribution.percentiles[name].value_s,
            "low": distribution.percentiles[name].low_s,
            "high": distribution.percentiles[name].high_s,
            "interval": interval(distribution.percentiles[name]),
        }
        for kind, distribution in found.items()
        if distribution is not None
        for name in percentiles
    ]


def _throughput_sentence(loaded: LoadView) -> str:
    best = max(loaded.points, key=lambda point: point.assessed.metrics.requests_per_s)
    metrics = best.assessed.metrics
    tokens = metrics.output_tokens_per_s
    said = f"At most {words.rate(metrics.requests_per_s)} requests/s were answered"
    if tokens is not None:
        said += f", with {words.rate(tokens)} output tokens/s"
    said += f", at {best.label}."
    within = [
        (point, point.assessed.metrics.goodput)
        for point in loaded.points
        if point.assessed.metrics.goodput
    ]
    if within:
        good, found = max(within, key=lambda each: each[1].requests_per_s if each[1] else 0)
        if found is not None and not found.good:
            said += f" None was within the SLO ({found.objectives})."
        elif found is not None:
            said += (
                f" At most {words.rate(found.requests_per_s)} requests/s were within the SLO "
                f"({found.objectives}), at {good.label}."
            )
    return said
