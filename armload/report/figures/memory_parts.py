"""Resident memory of a run with streamed weights over time, split into its parts."""

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
from armload.report.cells import Cell
from armload.report.drawing import COLOURS, Rows, source
from armload.report.figures.figure import Figure, drawn, thinned
from armload.report.figures.memory import FAR_ABOVE, MOST_STEPS, NAME, TITLE, free_memory_rule

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


def memory_parts(cells: Sequence[Cell]) -> Figure | None:
    """Draw the parts for one cell; none for several, and without streamed weights."""
    run = cells[0].typical if len(cells) == 1 else None
    if run is None or run.trace is None or streamed_weights(run.trace) is None:
        return None
    rows = _rows(run, run.trace)
    sentence = _sentence(run, run.trace)
    return _drawn(run, rows, sentence)


def _parts(run: Run, header: Trace, number: int) -> ResidentParts:
    step = run.steps[number]
    return resident_parts(step, weights_at(header, step), kv_cache_bytes(run) or 0)


def _sentence(run: Run, header: Trace) -> str:
    most = max(range(len(run.steps)), key=lambda number: run.steps[number].rss_bytes)
    parts = _parts(run, header, most)
    named = [
        f"{words.size(getattr(parts, field))} {name}"
        for name, (field, _) in _PARTS.items()
        if getattr(parts, field)
    ]
    free = run.before.memory_available_bytes
    without_kv = "" if kv_cache_bytes(run) else " The size of the KV cache is not known: see other."
    return (
        f"At its peak the program took {words.size(run.steps[most].rss_bytes)} of the "
        f"{words.size(free)} that were free before: {', '.join(named)}.{without_kv}"
    )


def _rows(run: Run, header: Trace) -> Rows:
    shown = thinned(
        [{"number": number} for number in range(len(run.steps))],
        MOST_STEPS,
        always=_changes(run, header),
    )
    rows: Rows = []
    for number in (row["number"] for row in shown):
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


def _drawn(run: Run, rows: Rows, sentence: str) -> Figure:
    import altair as alt

    there = {row["part"] for row in rows}
    names = [name for name in _PARTS if name in there]
    most = max(step.rss_bytes for step in run.steps) / 1e6
    free = run.before.memory_available_bytes
    rules = [{"mb": free / 1e6, "text": f"free: {words.size(free)}"}]
    if free / 1e6 > FAR_ABOVE * most:
        rules = []
    x = alt.X("seconds:Q").title("time since the program's start (s)")
    x = x.scale(nice=False, zero=False).axis(format=",.10~g", tickCount=8)
    y = alt.Y("mb:Q").title("resident memory (MB)").axis(format=",d", tickCount=6)
    areas = (
        source("steps")
        .mark_area(interpolate="step-after", opacity=1)
        .encode(
            x,
            y.stack("zero"),
            alt.Color("part:N")
            .title(None)
            .scale(domain=names, range=[_PARTS[name][1] for name in names]),
            order="order:Q",
        )
    )
    rule, text = free_memory_rule(y)
    layers = [areas, rule, text] if rules else [areas]
    return drawn(
        NAME,
        TITLE,
        sentence,
        layers,
        {"steps": rows, "boards": rules},
        note="Dashed: free memory before the run." if rules else "",
        legend_columns=len(names),
    )
