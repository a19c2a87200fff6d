"""Resident memory over time, beside what was free on the board, or split into its parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from armload.analysis.run import Run
from armload.analysis.streaming import (
    ResidentParts,
    kv_cache_bytes,
    resident_parts,
    streamed_weights,
    weights_at,
)
from armload.engines.trace import Trace
from armload.report import formatting as words
from armload.report.cells import Cell, grouped
from armload.report.chart import COUNT, Layer, Plot, axis, channel, guide, kinds_key, lines_key
from armload.report.drawing import COLOURS, Rows, legend_line
from armload.report.figures.figure import Figure, drawn, drawn_as_lines, thinned
from armload.report.settings import BOARD

NAME = "memory"
TITLE = "Memory over time"
_DASHED = "Dashed: free memory before the run."

MOST_STEPS = 200
"""Of a line."""

FAR_ABOVE = 5.0
"""A rule that is so many times higher than all lines would press them to the ground."""

APART_FROM = 0.07
"""Rules that are closer, as a share of the highest, would write over one another."""

LOGARITHMIC_FROM = 20.0
"""Runs whose lengths differ by so much share no linear scale."""

LOCKED, UNLOCKED, STREAMED = "locked", "resident, not locked", "streamed (at most)"
KV, OTHER = "KV cache", "other"

_PARTS = {
    LOCKED: ("locked_bytes", COLOURS[0]),
    UNLOCKED: ("unlocked_bytes", COLOURS[5]),
    STREAMED: ("streamed_bytes", COLOURS[1]),
    KV: ("kv_bytes", COLOURS[2]),
    OTHER: ("other_bytes", COLOURS[6]),
}
"""From the bottom to the top."""


def memory(cells: Sequence[Cell]) -> Figure | None:
    """Draw the resident memory of each cell's typical run; none without output tokens."""
    timed = [cell for cell in cells if cell.typical]
    if not timed:
        return None
    shown, left_out = drawn_as_lines(timed)
    names = [legend_line(cell.doubted_label) for cell in shown]
    rows = [row for cell in shown for row in _line(cell)]
    most = max(row["mb"] for row in rows)
    rules = [rule for rule in _rules(shown) if rule["mb"] <= FAR_ABOVE * most]
    ends = [row["seconds"] for row in rows if row["last"]]
    title = "time since the program's start (s)"
    is_log = max(ends) > LOGARITHMIC_FROM * min(ends) > 0
    plot = Plot(
        rows="steps",
        x=axis("seconds", title, zero=True, nice=False, is_log=is_log, ticks=8),
        y=axis("mb", "resident memory (MB)", zero=True, ticks=6, form=COUNT),
        key=lines_key("cell", names),
    )
    marks = plot.points(size=80, where="datum.last")
    return _figure(_sentence(timed) + left_out, plot, [plot.line(), marks], rows, rules)


def _sentence(cells: Sequence[Cell]) -> str:
    most = max(cells, key=lambda cell: cell.max_rss_bytes or _peak(cell))
    peak = most.max_rss_bytes or _peak(most)
    free = _free(most)
    sentence = (
        f"The most memory was used by {most.doubted_label}: "
        if len(cells) > 1
        else "At its peak, the program used "
    )
    if peak > free:
        return (
            f"{sentence}{words.size(peak)}, more than the {words.size(free)} that were free before."
        )
    share = f"{peak / free:.0%}"
    return f"{sentence}{words.size(peak)}, {share} of the {words.size(free)} that were free before."


def _shown(cell: Cell) -> Run:
    return cell.typical or cell.runs[0]


def _peak(cell: Cell) -> int:
    return max((step.rss_bytes for step in _shown(cell).steps), default=0)


def _free(cell: Cell) -> int:
    return _shown(cell).before.memory_available_bytes


def _figure(sentence: str, plot: Plot, layers: Sequence[Layer], rows: Rows, rules: Rows) -> Figure:
    """Return layers with a rule, and its text, for each row of ``rules``."""
    if rules:
        text = Plot(rows="boards", x={"value": 0}, y=plot.y)
        look = {"align": "left", "dx": 4, "dy": -7}
        layers = [guide("boards", {"y": plot.y}), *layers, text.texts(look)]
    return drawn(
        NAME,
        TITLE,
        sentence,
        layers,
        {"steps": rows, "boards": rules},
        note=_DASHED if rules else "",
        key=plot.key,
    )


def _line(cell: Cell) -> Rows:
    run = _shown(cell)
    start_ns = run.trace.start_ns if run.trace else run.steps[0].start_ns
    final = len(run.steps) - 1
    rows = [
        {
            "cell": legend_line(cell.doubted_label),
            "seconds": (step.end_ns - start_ns) / 1e9,
            "mb": step.rss_bytes / 1e6,
            "last": number == final,
        }
        for number, step in enumerate(run.steps)
    ]
    return thinned(rows, MOST_STEPS)


def _rules(cells: Sequence[Cell]) -> Rows:
    """Return what was free on each board; boards that had about the same share one rule."""
    free = {
        board: max(map(_free, group))
        for board, group in grouped(cells, lambda cell: cell.settings[BOARD]).items()
    }
    together: list[list[str]] = []
    for board in sorted(free, key=lambda name: free[name], reverse=True):
        if together and free[together[-1][0]] - free[board] < APART_FROM * max(free.values()):
            together[-1].append(board)
        else:
            together.append([board])
    rows: Rows = []
    for first, *others in together:
        more = f" and {len(others)} more" if others else ""
        where = f", {first}{more}" if len(together) > 1 else ""
        rows.append({"mb": free[first] / 1e6, "text": f"free{where}: {words.size(free[first])}"})
    return rows


def memory_parts(cells: Sequence[Cell]) -> Figure | None:
    """Draw the parts for one cell; none for several, and without streamed weights."""
    run = cells[0].typical if len(cells) == 1 else None
    if run is None or run.trace is None or streamed_weights(run.trace) is None:
        return None
    rows = _parts_rows(run, run.trace)
    sentence = _parts_sentence(run, run.trace)
    most = max(step.rss_bytes for step in run.steps) / 1e6
    free = run.before.memory_available_bytes
    rules = [{"mb": free / 1e6, "text": f"free: {words.size(free)}"}]
    if free / 1e6 > FAR_ABOVE * most:
        rules = []
    title = "time since the program's start (s)"
    looks = {name: (colour,) for name, (_, colour) in _PARTS.items()}
    plot = Plot(
        rows="steps",
        x=axis("seconds", title, nice=False, zero=False, ticks=8),
        y=axis("mb", "resident memory (MB)", ticks=6, form=COUNT),
        key=kinds_key("part", looks, rows),
    )
    stacked = {"y": {**plot.y, "stack": "zero"}, "order": channel("order:Q")}
    areas = plot.marks("area", {"interpolate": "step-after", "opacity": 1}, stacked)
    return _figure(sentence, plot, [areas], rows, rules)


def _parts(run: Run, header: Trace, number: int) -> ResidentParts:
    step = run.steps[number]
    return resident_parts(step, weights_at(header, step), kv_cache_bytes(run) or 0)


def _parts_sentence(run: Run, header: Trace) -> str:
    most = max(range(len(run.steps)), key=lambda number: run.steps[number].rss_bytes)
    parts = _parts(run, header, most)
    named = [
        f"{words.size(getattr(parts, field))} {name}"
        for name, (field, _) in _PARTS.items()
        if getattr(parts, field)
    ]
    free = run.before.memory_available_bytes
    without_kv = "" if kv_cache_bytes(run) else " The KV cache, of unknown size, is part of other."
    return (
        f"At its peak, the program used {words.size(run.steps[most].rss_bytes)} of the "
        f"{words.size(free)} that were free before: {', '.join(named)}.{without_kv}"
    )


def _parts_rows(run: Run, header: Trace) -> Rows:
    rows: Rows = []
    for number in thinned(range(len(run.steps)), MOST_STEPS, always=_changes(run, header)):
        parts = _parts(run, header, number)
        rows += [
            {
                "part": name,
                "order": order,
                "seconds": (run.steps[number].end_ns - header.start_ns) / 1e9,
                "mb": getattr(parts, field) / 1e6,
            }
            for order, (name, (field, _)) in enumerate(_PARTS.items())
        ]
    there = {row["part"] for row in rows if row["mb"]}
    return [row for row in rows if row["part"] in there]


def _changes(run: Run, header: Trace) -> list[bool]:
    """Tell at which steps the way in which the weights are held changes, and just before."""
    held = [weights_at(header, step) for step in run.steps]
    changed = [now is not then for then, now in pairwise(held)]
    return [now or soon for now, soon in zip([False, *changed], [*changed, False], strict=True)]
