"""How the times per token are distributed: the share of tokens that took no longer."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from armload.report import formatting as words
from armload.report.cells import Cell
from armload.report.chart import PERCENT, Plot, axis, guide, lines_key
from armload.report.drawing import Rows, legend_line
from armload.report.figures.figure import Figure, drawn, drawn_as_lines, thinned, time_unit

NAME = "distribution"
TITLE = "Distribution of the time per token"

MOST_STEPS = 200
"""Of a line."""

LOGARITHMIC_FROM = 20.0
"""Times that differ by so much share no linear scale."""


def distribution(cells: Sequence[Cell]) -> Figure | None:
    """Draw the share of output tokens that took no longer; none without output tokens."""
    timed = [cell for cell in cells if cell.rows_s]
    if not timed:
        return None
    shown, left_out = drawn_as_lines(timed)
    times_s = [time for cell in shown for row in cell.rows_s for time in row]
    unit = time_unit(times_s)
    names = [
        legend_line(f"{cell.doubted_label}: median {words.seconds(cell.median_s)}")
        for cell in shown
    ]
    rows: Rows = []
    medians: Rows = []
    for name, cell in zip(names, shown, strict=True):
        times = sorted(time * unit.per_s for row in cell.rows_s for time in row)
        rows.append({"cell": name, "time": times[0], "share": 0.0})
        rows += [
            {"cell": name, "time": times[place], "share": (place + 1) / len(times)}
            for place in thinned(range(len(times)), MOST_STEPS)
        ]
        medians.append({"cell": name, "time": median(times), "share": 0.5})
    title = f"time per token ({unit.name})"
    is_log = max(times_s) > LOGARITHMIC_FROM * min(times_s)
    x = axis("time", title, zero=False, nice=False, padding=12, is_log=is_log, ticks=8)
    y = axis("share", "share of tokens that took no longer", domain=(0, 1), form=PERCENT, ticks=5)
    key = lines_key("cell", names)
    return drawn(
        NAME,
        TITLE,
        _sentence(timed) + left_out,
        (
            guide("medians", {"y": y}),
            Plot(rows="tokens", x=x, y=y, key=key).line(is_step=True, order="share"),
            Plot(rows="medians", x=x, y=y, key=key).points(size=90),
        ),
        {"tokens": rows, "medians": medians},
        note="Dashed: the medians.",
        key=key,
    )


def _sentence(cells: Sequence[Cell]) -> str:
    valid = [cell for cell in cells if cell.is_valid] or list(cells)
    if len(cells) > 1 and not any(cell.is_valid for cell in cells):
        return "No run is valid, so none is named as the fastest or the steadiest."
    steady = min(valid, key=_tail)
    first = min(valid, key=lambda cell: cell.median_s or 0.0)
    whose = f"Fastest is {first.doubted_label}: " if len(cells) > 1 else ""
    sentence = (
        f"{whose}half of the tokens took "
        f"{words.seconds(first.median_s)} or less, 99% of them "
        f"{words.seconds(first.value('token_p99_s'))} or less, the slowest "
        f"{words.seconds(first.value('token_max_s'))}."
    )
    if len(cells) > 1:
        steadiest = (
            "It is also the steadiest:"
            if steady is first
            else f"Steadiest is {steady.doubted_label}:"
        )
        sentence += (
            f" {steadiest} 99% of its tokens take at most {_tail(steady):.2f} times the median."
        )
    return sentence[0].upper() + sentence[1:]


def _tail(cell: Cell) -> float:
    middle, slow = cell.median_s, cell.value("token_p99_s")
    return slow / middle if middle and slow else float("inf")
