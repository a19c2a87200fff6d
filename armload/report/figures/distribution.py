"""How the times per token are distributed: the share of tokens that took no longer."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from armload.report import formatting as words
from armload.report.cells import Cell
from armload.report.chart import PERCENT, Plot, axis, guide, lines_key
from armload.report.drawing import Rows, legend_line
from armload.report.figures.figure import Figure, drawn, lines_figure, thinned, time_unit

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
    return lines_figure(_sentence(timed), timed, _drawn)


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


def _drawn(cells: Sequence[Cell], sentence: str) -> Figure:
    times_s = [time for cell in cells for row in cell.rows_s for time in row]
    unit = time_unit(times_s)
    names = [_name(cell) for cell in cells]
    rows: Rows = []
    medians: Rows = []
    for name, cell in zip(names, cells, strict=True):
        rows += _line(name, cell, unit.per_s)
        medians.append({"cell": name, "time": _median(cell) * unit.per_s, "share": 0.5})
    title = f"time per token ({unit.name})"
    is_log = max(times_s) > LOGARITHMIC_FROM * min(times_s)
    x = axis("time", title, zero=False, nice=False, padding=12, is_log=is_log, ticks=8)
    y = axis("share", "share of tokens that took no longer", domain=(0, 1), form=PERCENT, ticks=5)
    key = lines_key("cell", names)
    return drawn(
        NAME,
        TITLE,
        sentence,
        (
            guide("medians", {"y": y}),
            Plot(rows="tokens", x=x, y=y, key=key).line(is_step=True, order="share"),
            Plot(rows="medians", x=x, y=y, key=key).points(size=90),
        ),
        {"tokens": rows, "medians": medians},
        note="Dashed: the medians.",
        key=key,
    )


def _name(cell: Cell) -> str:
    return legend_line(f"{cell.doubted_label}: median {words.seconds(cell.median_s)}")


def _median(cell: Cell) -> float:
    return median(_pooled(cell))


def _pooled(cell: Cell) -> list[float]:
    return sorted(time for row in cell.rows_s for time in row)


def _line(name: str, cell: Cell, per_s: float) -> Rows:
    times = _pooled(cell)
    rows = [
        {"cell": name, "time": time * per_s, "share": number / len(times)}
        for number, time in enumerate(times, 1)
    ]
    ends = [number in (0, len(rows) - 1) for number in range(len(rows))]
    start = {"cell": name, "time": times[0] * per_s, "share": 0.0}
    return [start, *thinned(rows, MOST_STEPS, always=ends)]
