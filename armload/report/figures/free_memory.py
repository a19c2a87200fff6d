"""Time per token against free memory: what was measured, and what more or less would give."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.prediction import Streaming
from armload.analysis.streaming import streamed_weights
from armload.analysis.waiting import Waits, decoding
from armload.report import formatting as words
from armload.report.cells import Cell
from armload.report.drawing import (
    HEIGHT_PIXELS,
    MOST_LINES,
    QUIET,
    WIDTH_PIXELS,
    Specification,
    columns_for,
    finish,
)
from armload.report.figures.figure import (
    Figure,
    Rows,
    TimeUnit,
    colour_and_shape,
    time_unit,
)
from armload.report.figures.memory_series import MAPPED, STREAMED, Point, Series, series_of

NAME = "free-memory"
TITLE = "Time per token against free memory"

MOST_SERIES = MOST_LINES // 2
CURVE_POINTS = 80
BEYOND = 1.1
"""The curves end so far above what is enough memory."""

FAR_BEYOND = 2.0
"""So many times more memory than all else in the figure is marked at its edge."""

LOGARITHMIC_FROM = 20.0
"""Boards whose memory differs by so much share no linear scale."""

TEXT_LINE_PIXELS = 16


def free_memory(cells: Sequence[Cell]) -> Figure | None:
    """Draw one model; none for several, and where no run read from storage."""
    timed = [cell for cell in cells if cell.typical and decoding(cell.typical)]
    if len({cell.runs[0].model.sha256 for cell in timed}) != 1:
        return None
    found = series_of(timed)
    if not found:
        return None
    shown = found[:MOST_SERIES]
    sentence = f"{_sentence(shown[0])} {_basis(shown)}"
    if len(shown) < len(found):
        sentence += f" Shown: {len(shown)} of {len(found)}; the table has all."
    return Figure(
        name=NAME, title=TITLE, sentence=sentence, specification=_specification(shown, sentence)
    )


def _sentence(series: Series) -> str:
    reading = [point for point in series.points if Waits(run=point.run).is_noticeable]
    point = min(reading, key=lambda point: (point.is_requested, point.token_s))
    weights = streamed_weights(point.run.trace)
    with_what = f"{words.size(point.free_bytes)} of free memory"
    if weights and point.is_requested:
        with_what = f"{words.size(weights.held_bytes)} of the weights kept in memory"
    whose = f"{series.label}: a" if series.label else "A"
    return (
        f"{whose} token took {words.seconds(point.token_s)} with {with_what}; with "
        f"{words.size(series.curve.enough_bytes)} free, nothing would be read from storage, and "
        f"it would take {words.seconds(series.curve.compute_s)}."
    )


def _specification(shown: Sequence[Series], sentence: str) -> Specification:
    import altair as alt

    points = [point for series in shown for point in series.points]
    unit = time_unit(point.token_s for point in points)
    sizes = [point.free_bytes for point in points]
    low = min([*sizes, *(series.curve.free_bytes(0) for series in shown)])
    high = max([*sizes, *(int(BEYOND * series.curve.enough_bytes) for series in shown)])
    rules = _rules(points, low, high)
    high = max([high, *(int(rule["mb"] * 1e6) for rule in rules)])
    names = [series.name(mode) for series in shown for mode in series.modes]
    scale = alt.Scale(nice=False, zero=False, padding=8)
    if max(sizes) > LOGARITHMIC_FROM * min(sizes):
        scale = alt.Scale(nice=False, type="log", padding=8)
    x = alt.X("mb:Q").title("free memory before the run (MB)").scale(scale)
    x = x.axis(format=",d", tickCount=8)
    y = alt.Y("time:Q").title(f"time per token ({unit.name})").scale(zero=True)
    y = y.axis(format=",.10~g", tickCount=6)
    colour, shape = colour_and_shape("line", names)
    lines = (
        alt.Chart(alt.NamedData(name="curves"))
        .mark_line(strokeWidth=2)
        .encode(
            x,
            y,
            colour,
            alt.StrokeDash("is_dashed:N", legend=None).scale(
                domain=[False, True], range=[[1, 0], [6, 4]]
            ),
            order="mb:Q",
        )
    )
    marks = (
        alt.Chart(alt.NamedData(name="points"))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x,
            y,
            colour,
            shape,
            tooltip=[
                alt.Tooltip("line:N", title="weights"),
                alt.Tooltip("mb:Q", title="free memory (MB)", format=",.1f"),
                alt.Tooltip("time:Q", title=f"{unit.name} per token, median", format=",.4~g"),
                alt.Tooltip("run:N", title="run"),
            ],
        )
    )
    boards = alt.Chart(alt.NamedData(name="boards"))
    within = boards.transform_filter("!datum.is_beyond")
    rule = within.mark_rule(color=QUIET, strokeDash=[2, 3]).encode(x)
    texts = [
        boards.transform_filter(f"datum.number == {number}")
        .mark_text(align=each["align"], dx=5 if each["align"] == "left" else -5, fontSize=12)
        .encode(x, y=alt.value(HEIGHT_PIXELS - 10 - TEXT_LINE_PIXELS * number), text="text:N")
        for number, each in enumerate(rules)
    ]
    chart = alt.layer(rule, lines, marks, *texts)
    chart = chart.properties(width=WIDTH_PIXELS, height=HEIGHT_PIXELS)
    specification = finish(
        chart,
        title=TITLE,
        subtitle=sentence,
        legend_columns=columns_for(names),
    )
    specification["datasets"] = {
        "curves": [row for series in shown for row in _curve(series, low, high, unit)],
        "points": [
            {
                "line": series.name(point.mode),
                "mb": point.free_bytes / 1e6,
                "time": point.token_s * unit.per_s,
                "run": point.run.id,
            }
            for series in shown
            for point in series.points
        ],
        "boards": rules,
    }
    return specification


def _curve(series: Series, low: int, high: int, unit: TimeUnit) -> Rows:
    curve = series.curve
    sizes = [low + (high - low) * number // CURVE_POINTS for number in range(CURVE_POINTS + 1)]
    # The corners, and both sides of the step.
    sizes += [curve.free_bytes(0), curve.enough_bytes - 1, curve.enough_bytes]
    streaming: dict[str, Streaming] = {STREAMED: "if needed", MAPPED: "never"}
    return [
        {
            "line": series.name(mode),
            "mode": mode,
            "is_dashed": mode == MAPPED,
            "mb": size / 1e6,
            "time": token_s * unit.per_s,
        }
        for mode in series.modes
        for size in sorted(sizes)
        if (token_s := curve.token_s(size, streaming[mode])) is not None
    ]


def _rules(points: Sequence[Point], low: int, high: int) -> Rows:
    """Return what is free on each board, as its last run found it, the least first."""
    free = {
        point.run.board.name: point.run.before.memory_available_bytes
        for point in sorted(points, key=lambda point: point.run.started_utc)
    }
    rows: Rows = []
    for number, name in enumerate(sorted(free, key=lambda name: free[name])):
        is_beyond = free[name] > FAR_BEYOND * high
        place = (free[name] - low) / (high - low)
        # Away from the other rules, and where there is room.
        to_the_left = place > 0.5 or (place > 0.25 and number < len(free) // 2)
        whose = name if len(free) > 1 else "this board"
        rows.append(
            {
                "number": number,
                "mb": (high if is_beyond else free[name]) / 1e6,
                "is_beyond": is_beyond,
                "align": "right" if to_the_left else "left",
                "text": f"{whose}: {words.size(free[name])} free{' →' if is_beyond else ''}",
            }
        )
    return rows


def _basis(shown: Sequence[Series]) -> str:
    if len(shown) > 1:
        basis = "Lines: predicted from the weights that a token reads, storage, and computing."
    else:
        (curve,) = (series.curve for series in shown)
        basis = (
            f"Lines: predicted from {words.size(curve.need.bytes_per_token)} of weights and "
            f"storage at {words.size(curve.storage.bytes_per_s)}/s."
        )
    if any(point.is_requested for series in shown for point in series.points):
        basis += " Runs with --resident are drawn at the free memory that would leave as much."
    return basis
