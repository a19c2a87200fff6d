"""Numbers within sentences."""

from __future__ import annotations

from armload.analysis.statistics import Ratio
from armload.core.values import three_figures


def times(ratio: float) -> str:
    """Write a ratio: ``0.693×``, ``1.031×``, ``56.3×``."""
    return f"{_ratio(ratio)}×"


def times_interval(low: float, high: float) -> str:
    """Write between which bounds a ratio lies: ``0.560–1.146``."""
    return f"{_ratio(low)}–{_ratio(high)}"


def as_long(ratio: Ratio) -> str:
    """Write how many times as long something takes: ``1.031× as long (95% CI 1.010–1.052)``."""
    return f"{times(ratio.ratio)} as long (95% CI {times_interval(ratio.low, ratio.high)})"


def _ratio(ratio: float) -> str:
    # Near 1 a thousandth counts.
    return f"{ratio:.3f}" if 0.1 <= ratio < 2 else three_figures(ratio)
