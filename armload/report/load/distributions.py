"""How the latencies are distributed: the share of requests that took no longer."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.latency import e2e_s, ttft_s
from armload.report import formatting as words
from armload.report.drawing import MOST_LINES, Rows, columns_for, guide
from armload.report.figures.distribution import LOGARITHMIC_FROM
from armload.report.figures.figure import Figure, colour_and_shape, drawn, in_panels, thinned
from armload.report.load.loaded import LoadedPoint, LoadView, labels
from armload.report.load.rates import FIRST, WHOLE

NAME, TITLE = "distribution", "Distribution of the latencies"

MOST_STEPS = 200


def latency_distribution(loaded: LoadView) -> Figure | None:
    """Draw both latencies of each point; none without an answered request."""
    answered = [point for point in loaded.points if point.assessed.metrics.ok]
    if not answered:
        return None
    shown = _spread(answered)
    sentence = _sentence(answered, shown)
    return _drawn(shown, sentence)


def _spread(points: Sequence[LoadedPoint]) -> list[LoadedPoint]:
    """Return as many points as a chart has room for, from the lowest to the highest pace."""
    count = min(len(points), MOST_LINES)
    last = len(points) - 1
    return [points[round(number * last / max(1, count - 1))] for number in range(count)]


def _sentence(answered: Sequence[LoadedPoint], shown: Sequence[LoadedPoint]) -> str:
    last = answered[-1]
    found = last.assessed.metrics.from_scheduled.e2e
    took = "" if found is None else f"the slowest took {words.seconds(found.max_s)}"
    half = "" if found is None else f"half of the requests took {words.seconds(found.p50.value_s)}"
    left_out = f" Shown: {len(shown)} of {len(answered)}." if len(shown) < len(answered) else ""
    return f"{last.label}: {half} or less from the scheduled time to the end, {took}.{left_out}"


def _drawn(shown: Sequence[LoadedPoint], sentence: str) -> Figure:
    import altair as alt

    names = labels(shown)
    rows = [row for point in shown for row in _lines(point)]
    values = [row["time"] for row in rows if row["share"] > 0]
    is_wide = min(values) > 0 and max(values) > LOGARITHMIC_FROM * min(values)
    scale = alt.Scale(type="log", nice=False) if is_wide else alt.Scale(zero=True, nice=False)
    data = alt.NamedData(name="requests")
    x = alt.X("time:Q").title("latency (s)").scale(scale).axis(format=",.10~g", tickCount=5)
    y = alt.Y("share:Q").title("share of requests").scale(domain=(0, 1))
    y = y.axis(format=".0%", tickCount=5)
    colour, _ = colour_and_shape("point", names)
    line = alt.Chart(data).mark_line(interpolate="step-after", strokeWidth=2)
    layers = (
        line.encode(x, y, colour, order="share:Q"),
        guide(alt.Chart(data), alt.Y("mean(half):Q")),
    )
    chart = in_panels(layers, data, [FIRST, WHOLE], [1.0, 1.0])
    return drawn(
        NAME,
        TITLE,
        sentence,
        chart,
        {"requests": rows},
        note="Dashed: half of the requests.",
        legend_columns=columns_for(names),
    )


def _lines(point: LoadedPoint) -> Rows:
    rows: Rows = []
    ok = [record for record in point.observed.counted if record.outcome == "ok"]
    for kind, latency in ((FIRST, ttft_s), (WHOLE, e2e_s)):
        times = sorted(map(latency, ok))
        steps = [
            {"cell": kind, "point": point.label, "time": time_s, "share": number / len(times)}
            for number, time_s in enumerate(times, 1)
        ]
        ends = [number in (0, len(steps) - 1) for number in range(len(steps))]
        start = {"cell": kind, "point": point.label, "time": times[0], "share": 0.0}
        rows += [start, *thinned(steps, MOST_STEPS, always=ends)]
    return [{**row, "half": 0.5} for row in rows]
