"""Time per token against free memory: what was measured, and what more or less would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from armload.analysis.board_resources import Rate
from armload.analysis.columns import storage_rate
from armload.analysis.latency import Waits, decoding
from armload.analysis.prediction import MemoryCurve, Streaming
from armload.analysis.run import Run
from armload.analysis.streamed_prediction import READER_SLOWDOWN, STREAMING_OVERHEAD
from armload.analysis.streaming import kv_cache_bytes, streamed_weights
from armload.engines.engine import MemoryNeed
from armload.engines.model_program import PROGRAM_BYTES
from armload.engines.weights import BoardMemory
from armload.report import formatting as words
from armload.report.cells import Cell, grouped
from armload.report.chart import COUNT, Plot, axis, channel, guide, lines_key
from armload.report.drawing import HEIGHT_PIXELS, MOST_LINES, Rows, legend_line
from armload.report.figures.figure import Figure, TimeUnit, drawn, time_unit
from armload.report.settings import CACHE, REPACKED, RESIDENT, WEIGHTS

STREAMED, MAPPED = "streamed", "mapped"


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """A run's median time per token.

    Attributes:
        free_bytes: before the run; where a resident size was requested, what would leave as much.
    """

    run: Run
    mode: str
    free_bytes: int
    token_s: float
    is_requested: bool


@dataclass(frozen=True, kw_only=True)
class MemorySeries:
    """Runs that differ in free memory and in how they hold their weights."""

    label: str
    curve: MemoryCurve
    points: tuple[MemoryPoint, ...]

    @property
    def modes(self) -> list[str]:
        """What has a line: streaming only where it was seen to be possible."""
        is_streamed = any(point.mode == STREAMED for point in self.points)
        return [STREAMED, MAPPED] if is_streamed else [MAPPED]

    def name(self, mode: str) -> str:
        """Return the label of a line."""
        return legend_line(f"{self.label}: {mode}" if self.label else mode)


def series_of(cells: Sequence[Cell]) -> list[MemorySeries]:
    """Return a series for each choice of other settings with which a run read from storage."""
    groups = grouped(cells, _series_label).values()
    return [each for each in map(_series, groups) if each]


def _series_label(cell: Cell) -> str:
    return cell.label_without(WEIGHTS, RESIDENT, REPACKED, CACHE)


def _series(group: Sequence[Cell]) -> MemorySeries | None:
    runs = [run for cell in group for run in cell.counted if decoding(run)]
    reading = next((run for run in runs if Waits(run=run).is_noticeable), None)
    needs = [need for need in map(_need, sorted(runs, key=_is_told_less)) if need]
    if reading is None or not needs:
        return None
    board, before = reading.board, reading.before
    rate = storage_rate(decoding(reading), board.storage_read_bytes_per_s)
    curve = MemoryCurve(
        need=needs[0],
        compute_s=median(map(_compute_s, runs)),
        storage=Rate(bytes_per_s=round(rate), kind=board.storage_read_rate or "measured"),
        total_bytes=BoardMemory.of(before).total_bytes,
    )
    return MemorySeries(
        label=_series_label(group[0]),
        curve=curve,
        points=tuple(_point(run, curve) for run in runs),
    )


def _compute_s(run: Run) -> float:
    """Return the time of a token if nothing had been read."""
    is_streamed = streamed_weights(run.trace) is not None
    slowdown = READER_SLOWDOWN * STREAMING_OVERHEAD.value if is_streamed else 1.0
    return Waits(run=run).computed_s / slowdown


def _is_told_less(run: Run) -> bool:
    weights = streamed_weights(run.trace)
    return weights is None or weights.requested_bytes is not None


def _need(run: Run) -> MemoryNeed | None:
    """Return what a run needs of memory: where its program chose what stays, as it turned out.

    None of a mixture of experts, whose tokens choose what is read.
    """
    weights = streamed_weights(run.trace)
    if weights is not None and weights.expert_bytes:
        return None
    weights_bytes = weights.weights_bytes if weights else run.model.bytes_per_token
    if not weights_bytes:
        return None
    kv_bytes = kv_cache_bytes(run) or 0
    predicted = run.prediction.memory if run.prediction else None
    program_bytes = predicted.program_bytes if predicted else PROGRAM_BYTES
    if weights and weights.requested_bytes is None and weights.resident_bytes < weights_bytes:
        taken = (
            weights.resident_bytes + weights.window_bytes + BoardMemory.of(run.before).reserve_bytes
        )
        program_bytes = max(0, run.before.memory_available_bytes - taken - kv_bytes)
    return MemoryNeed(
        name=run.model.name,
        weights_bytes=run.model.size_bytes or weights_bytes,
        kv_bytes=kv_bytes,
        program_bytes=program_bytes,
        context_tokens=1,
        bytes_per_token=weights_bytes,
    )


def _point(run: Run, curve: MemoryCurve) -> MemoryPoint:
    weights = streamed_weights(run.trace)
    is_requested = weights is not None and weights.requested_bytes is not None
    free = run.before.memory_available_bytes
    return MemoryPoint(
        run=run,
        mode=STREAMED if weights else MAPPED,
        free_bytes=curve.free_bytes(weights.held_bytes) if weights and is_requested else free,
        token_s=median(step.duration_s / step.output_tokens for step in decoding(run)),
        is_requested=is_requested,
    )


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
    points = [point for series in shown for point in series.points]
    unit = time_unit(point.token_s for point in points)
    sizes = [point.free_bytes for point in points]
    low = min([*sizes, *(series.curve.free_bytes(0) for series in shown)])
    high = max([*sizes, *(int(BEYOND * series.curve.enough_bytes) for series in shown)])
    rules = _rules(points, low, high)
    high = max([high, *(int(rule["mb"] * 1e6) for rule in rules)])
    names = [series.name(mode) for series in shown for mode in series.modes]
    title = "free memory before the run (MB)"
    is_log = max(sizes) > LOGARITHMIC_FROM * min(sizes)
    x = axis("mb", title, zero=False, nice=False, padding=8, is_log=is_log, ticks=8, form=COUNT)
    y = axis("time", f"time per token ({unit.name})", zero=True, ticks=6)
    key = lines_key("line", names)
    dashes = {"domain": [False, True], "range": [[1, 0], [6, 4]]}
    lines = Plot(rows="curves", x=x, y=y, key=key).marks(
        "line",
        {"strokeWidth": 2},
        {
            "order": channel("mb:Q"),
            "strokeDash": channel("is_dashed:N", {"legend": None, "scale": dashes}),
        },
    )
    marks = Plot(rows="points", x=x, y=y, key=key).points(
        size=90,
        said=(
            ("line:N", "weights"),
            ("mb:Q", "free memory (MB)", ",.1f"),
            ("time:Q", f"{unit.name} per token, median", ",.4~g"),
            ("run:N", "run"),
        ),
    )
    texts = [
        Plot(rows="boards", x=x, y={"value": HEIGHT_PIXELS - 10 - TEXT_LINE_PIXELS * number}).texts(
            {"align": each["align"], "dx": 5 if each["align"] == "left" else -5},
            where=f"datum.number == {number}",
        )
        for number, each in enumerate(rules)
    ]
    return drawn(
        NAME,
        TITLE,
        sentence,
        (guide("boards", {"x": x}, "!datum.is_beyond"), lines, marks, *texts),
        {
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
        },
        key=key,
    )


def _sentence(series: MemorySeries) -> str:
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


def _curve(series: MemorySeries, low: int, high: int, unit: TimeUnit) -> Rows:
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


def _rules(points: Sequence[MemoryPoint], low: int, high: int) -> Rows:
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


def _basis(shown: Sequence[MemorySeries]) -> str:
    if len(shown) > 1:
        basis = "Lines: predicted from weights read per token, storage rate, and compute time."
    else:
        (curve,) = (series.curve for series in shown)
        basis = (
            f"Lines: predicted from {words.size(curve.need.bytes_per_token)} of weights and "
            f"storage at {words.size(curve.storage.bytes_per_s)}/s."
        )
    if any(point.is_requested for series in shown for point in series.points):
        basis += " Runs with --resident are drawn at the free memory that would keep as much."
    return basis
