"""Which cell is the fastest, and which may be as fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from armload.analysis.statistics import ratio_of_runs, ratio_of_tokens
from armload.report.cells import Cell, Estimate, grouped

Measure = Literal["decode", "prefill"]


def rate_of(cell: Cell, measure: Measure = "decode") -> Estimate | None:
    """Return a cell's tokens per second."""
    return cell.decode_tps if measure == "decode" else cell.prefill_tps


def tps_of(cell: Cell, measure: Measure = "decode") -> float:
    """Return a cell's median tokens per second, 0 where there is none."""
    rate = rate_of(cell, measure)
    return rate.value if rate else 0.0


def fastest(cells: Iterable[Cell], measure: Measure = "decode") -> Cell | None:
    """Return the valid cell with the highest rate; none where none is valid."""
    rated = [cell for cell in cells if cell.is_valid and rate_of(cell, measure)]
    return max(rated, key=lambda cell: tps_of(cell, measure), default=None)


def as_fast_as(best: Cell, cells: Iterable[Cell], measure: Measure = "decode") -> list[Cell]:
    """Return the other valid cells that may be as fast, with 95% confidence."""
    return [
        cell
        for cell in cells
        if cell is not best
        and cell.is_valid
        and rate_of(cell, measure)
        and not _slower_for_sure(cell, best, measure)
    ]


def fastest_of_each(cells: Sequence[Cell], most: int) -> list[Cell]:
    """Return all cells, or of too many the fastest of each series, at most so many."""
    if len(cells) <= most:
        return list(cells)
    series = grouped(cells, lambda cell: cell.series).values()
    best = [fastest(group) or max(group, key=tps_of) for group in series]
    kept = sorted(best, key=tps_of, reverse=True)[:most]
    return [cell for cell in cells if cell in kept]


def _slower_for_sure(cell: Cell, best: Cell, measure: Measure) -> bool:
    if measure == "decode" and cell.rows_s and best.rows_s:
        return ratio_of_tokens(best.rows_s, cell.rows_s).low > 1
    return ratio_of_runs(_rates(cell, measure), _rates(best, measure)).low > 1


def _rates(cell: Cell, measure: Measure) -> list[float]:
    rates = [each.decode_tps if measure == "decode" else each.prefill_tps for each in cell.figures]
    return [rate for rate in rates if rate]
