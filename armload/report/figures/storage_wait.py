"""Time per output token, split into waiting for storage and computing."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.latency import Waits, decoding
from armload.report import formatting as words
from armload.report.cells import Cell, fastest_of_each
from armload.report.chart import COUNT, Plot, axis, in_panels, kinds_key
from armload.report.drawing import COLOURS, Rows, panel_label
from armload.report.figures.figure import MOST_PANELS, Figure, TimeUnit, drawn, time_unit

NAME = "storage-wait"
TITLE = "Waiting for storage"

COMPUTING, WAITING = "computing", "waiting for storage"

NOTHING_BELOW = 0.005
"""Share of the time that would be written as 0%."""

MOST_BARS = 120
"""Of more tokens, a bar is the mean of several in a row."""

Labelled = tuple[str, Waits]


def storage_wait(cells: Sequence[Cell]) -> Figure | None:
    """Draw runs that read weights from storage for their tokens; none without such a run."""
    reading = [
        cell
        for cell in cells
        if cell.typical and decoding(cell.typical) and Waits(run=cell.typical).is_noticeable
    ]
    if not reading:
        return None
    shown = [
        (cell.doubted_label, Waits(run=cell.typical))
        for cell in fastest_of_each(reading, MOST_PANELS)
        if cell.typical
    ]
    sentence = _sentence(shown)
    if len(shown) < len(reading):
        sentence += f" Shown: {len(shown)} of {len(reading)}, the fastest of each kind."
    means = [waits.token_s for _, waits in shown]
    unit = time_unit(means)
    rows = [row for label, waits in shown for row in _rows(label, waits, unit)]
    key = kinds_key("part", {COMPUTING: (COLOURS[0],), WAITING: (COLOURS[1],)}, rows)
    ticks = 5 if len(shown) > 1 else 10
    plot = Plot(
        rows="tokens",
        x=axis("first", "output token", nice=False, zero=False, ticks=ticks, form=COUNT),
        y=axis("low", f"time per token ({unit.name})", ticks=4),
        key=key,
    )
    bars = plot.marks(
        "rect",
        {},
        {"x2": {"field": "end"}, "y2": {"field": "high"}},
        said=(
            ("tokens:N", "output tokens"),
            ("part:N", "what"),
            ("time:Q", f"{unit.name} per token", ".4~g"),
        ),
    )
    return drawn(
        NAME,
        TITLE,
        sentence,
        in_panels([bars], [label for label, _ in shown], means),
        {"tokens": rows},
        key=key,
    )


def _sentence(shown: Sequence[Labelled]) -> str:
    label, most = max(shown, key=lambda each: each[1].share)
    if len(shown) == 1 and most.share < NOTHING_BELOW:
        return "No token waited for storage: reading overlapped with compute."
    if len(shown) == 1:
        estimated = "" if most.is_measured else ", estimated from what was read"
        return (
            f"Of {words.seconds(most.token_s)} per token (mean), {words.seconds(most.waited_s)} or "
            f"{most.share:.0%} were spent waiting for storage{estimated}."
        )
    least_label, least = min(shown, key=lambda each: each[1].share)
    estimates = [label for label, waits in shown if not waits.is_measured]
    estimated = f" Estimated from what was read: {'; '.join(estimates)}." if estimates else ""
    return (
        f"Waiting for storage took {least.share:.0%} of the time with {least_label}, "
        f"{most.share:.0%} with {label}.{estimated}"
    )


def _rows(label: str, waits: Waits, unit: TimeUnit) -> Rows:
    rows: Rows = []
    together = -(-len(waits.steps_s) // MOST_BARS)
    first = 2  # the prompt's last step gives the first output token
    for begin in range(0, len(waits.steps_s), together):
        steps = waits.steps_s[begin : begin + together]
        tokens = sum(count for _, _, count in steps)
        computed_s = sum(computed for computed, _, _ in steps) / tokens
        token_s = sum(duration for _, duration, _ in steps) / tokens
        last = first + tokens - 1
        parts = ((COMPUTING, 0.0, computed_s), (WAITING, computed_s, token_s))
        rows += [
            {
                "cell": panel_label(label),
                "part": part,
                "first": first - 0.5,
                "end": last + 0.5,
                "tokens": str(first) if first == last else f"{first} to {last}",
                "low": low_s * unit.per_s,
                "high": high_s * unit.per_s,
                "time": (high_s - low_s) * unit.per_s,
            }
            for part, low_s, high_s in parts
        ]
        first = last + 1
    return rows
