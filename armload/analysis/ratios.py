"""Numbers within sentences."""

from __future__ import annotations

from armload.analysis.statistics import Ratio

_IN_FULL_FROM = 999.5
"""What would be written as 1e+03."""


def up_to_three_figures(value: float) -> str:
    """Write a positive number with three figures, a large one in full: ``0.0123``, ``2,346``."""
    return f"{value:,.0f}" if value >= _IN_FULL_FROM else f"{value:.3g}"


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
    return f"{ratio:.3f}" if 0.1 <= ratio < 2 else up_to_three_figures(ratio)
