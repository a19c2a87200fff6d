"""The time of requests: where it goes, and how it is distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armload.analysis.load.latency import e2e_s, ttft_s
from armload.analysis.load.parts import Parts
from armload.analysis.load.request_columns import EndedRequest
from armload.report import formatting as words
from armload.report.chart import (
    PERCENT,
    Plot,
    axis,
    channel,
    guide,
    in_panels,
    kinds_key,
    layered,
    lines_key,
)
from armload.report.drawing import MOST_LINES, WIDTH_PIXELS, Rows
from armload.report.figures.distribution import LOGARITHMIC_FROM
from armload.report.figures.figure import Figure, drawn, thinned, time_unit
from armload.report.load.loaded import LoadedPoint, LoadView
from armload.report.load.rates import FIRST, WHOLE

KINDS: dict[str, tuple[str, str]] = {
    "own_s": ("own prompt and tokens", "#0072B2"),
    "sharing_s": ("shared steps", "#56B4E9"),
    "blocked_s": ("prompts of others", "#E69F00"),
    "queued_s": ("queued", "#D55E00"),
    "paging_s": ("paging", "#CC79A7"),
    "throttling_s": ("throttling", "#F0E442"),
    "held_s": ("held back", "#009E73"),
    "late_s": ("client late", "#000000"),
    "other_s": ("other", "#999999"),
}
"""Names and colours (Okabe and Ito, 2008) of the parts, in the order in which they are stacked."""

LEAST_SHARE = 0.001
BAR_PIXELS = 34


def parts_figure(loaded: LoadView) -> Figure | None:
    """Draw the mean seconds of each part at each point; none without an answered request."""
    found = {point.label: means(point) for point in loaded.points}
    known = {label: parts for label, parts in found.items() if parts is not None}
    if not known:
        return None
    sentence = _parts_sentence(known)
    unit = time_unit(parts.total_s for parts in known.values())
    total_s = sum(parts.total_s for parts in known.values())
    shown = {
        name: label
        for name, (label, _) in KINDS.items()
        if sum(getattr(parts, name) for parts in known.values()) >= LEAST_SHARE * total_s
    }
    rows: Rows = [
        {
            "point": label,
            "part": shown[name],
            "order": number,
            "time": max(0.0, getattr(parts, name)) * unit.per_s,
        }
        for label, parts in known.items()
        for number, name in enumerate(shown)
    ]
    looks = {label: (KINDS[name][1],) for name, label in shown.items()}
    key = kinds_key("part", looks, rows)
    labels = [each.label for each in loaded.points]
    plot = Plot(
        rows="parts",
        x=axis("time", f"mean time per request ({unit.name})"),
        y=channel("point:N", {"title": None, "sort": labels}),
        key=key,
    )
    bars = plot.marks(
        "bar",
        {},
        {"order": channel("order:Q")},
        said=(
            ("point:N", "requests"),
            ("part:N", "what"),
            ("time:Q", f"{unit.name} per request", ",.3~g"),
        ),
    )
    return drawn(
        "parts",
        "Where the time goes",
        sentence,
        layered([bars], WIDTH_PIXELS, BAR_PIXELS * len(known)),
        {"parts": rows},
        key=key,
    )


def means(point: LoadedPoint) -> Parts | None:
    """Return the mean of each part over the answered requests; none without one."""
    count, total = 0, Parts()
    for _, account in point.accounting.answered():
        count, total = count + 1, total.plus(account.whole)
    if not count:
        return None
    return Parts(**{name: seconds / count for name, seconds in total})


def _parts_sentence(found: dict[str, Parts]) -> str:
    label, parts = list(found.items())[-1]
    largest = sorted(KINDS, key=lambda name: -getattr(parts, name))[:2]
    each = " and ".join(
        f"{words.seconds(getattr(parts, name))} {KINDS[name][0]}"
        for name in largest
        if getattr(parts, name) > 0
    )
    return f"{label}: of {words.seconds(parts.total_s)} per request, {each} (means)."


MOST_STEPS = 200


def latency_distribution(loaded: LoadView) -> Figure | None:
    """Draw both latencies of each point; none without an answered request."""
    answered = [point for point in loaded.points if point.assessed.metrics.ok]
    if not answered:
        return None
    shown = _spread(answered)
    sentence = _spread_sentence(answered, shown)
    names = [each.label for each in shown]
    rows = [row for point in shown for row in _lines(point)]
    values = [row["time"] for row in rows if row["share"] > 0]
    is_wide = min(values) > 0 and max(values) > LOGARITHMIC_FROM * min(values)
    y = axis("share", "share of requests", domain=(0, 1), form=PERCENT, ticks=5)
    key = lines_key("point", names)
    plot = Plot(
        rows="requests",
        x=axis("time", "latency (s)", zero=True, nice=False, is_log=is_wide, ticks=5),
        y=y,
        key=key,
    )
    half = guide("requests", {"y": {**y, "field": "half", "aggregate": "mean"}})
    layers = (plot.line(is_step=True, order="share"), half)
    panels = [kind for kind in (FIRST, WHOLE) if any(row["cell"] == kind for row in rows)]
    chart = in_panels(layers, panels, [1.0] * len(panels))
    return drawn(
        "distribution",
        "Distribution of the latencies",
        sentence,
        chart,
        {"requests": rows},
        note="Dashed: half of the requests.",
        key=key,
    )


def _spread(points: Sequence[LoadedPoint]) -> list[LoadedPoint]:
    """Return as many points as a chart has room for, from the lowest to the highest pace."""
    count = min(len(points), MOST_LINES)
    last = len(points) - 1
    return [points[round(number * last / max(1, count - 1))] for number in range(count)]


def _spread_sentence(answered: Sequence[LoadedPoint], shown: Sequence[LoadedPoint]) -> str:
    last = answered[-1]
    found = last.assessed.metrics.from_scheduled.e2e
    took = "" if found is None else f"the slowest took {words.seconds(found.max_s)}"
    half = (
        "" if found is None else f"half of the requests took {words.seconds(found.median.value_s)}"
    )
    left_out = f" Shown: {len(shown)} of {len(answered)}." if len(shown) < len(answered) else ""
    return f"{last.label}: {half} or less from the scheduled time to the end, {took}.{left_out}"


def _lines(point: LoadedPoint) -> Rows:
    rows: Rows = []
    ok = [record for record in point.observed.counted if record.outcome == "ok"]
    latencies: tuple[tuple[str, Callable[[EndedRequest], float | None]], ...] = (
        (FIRST, ttft_s),
        (WHOLE, e2e_s),
    )
    for kind, latency in latencies:
        times = sorted(time_s for each in ok if (time_s := latency(each)) is not None)
        if not times:
            continue
        steps = [
            {
                "cell": kind,
                "point": point.label,
                "time": times[place],
                "share": (place + 1) / len(times),
            }
            for place in thinned(range(len(times)), MOST_STEPS)
        ]
        start = {"cell": kind, "point": point.label, "time": times[0], "share": 0.0}
        rows += [start, *steps]
    return [{**row, "half": 0.5} for row in rows]
