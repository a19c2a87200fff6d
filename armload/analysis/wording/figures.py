"""Numbers within sentences."""

from __future__ import annotations

_IN_FULL_FROM = 999.5
"""What would be written as 1e+03."""


def three_figures(value: float) -> str:
    """Write a positive number with three figures, a large one in full: ``0.0123``, ``2,346``."""
    return f"{value:,.0f}" if value >= _IN_FULL_FROM else f"{value:.3g}"


def seconds(value: float) -> str:
    """Write a time with three figures, in milliseconds below one second."""
    # The unit is chosen after rounding: 0.9996 s is 1 s, not 1,000 ms.
    rounded = float(f"{value:.2e}")
    return f"{three_figures(value)} s" if rounded >= 1 else f"{three_figures(1000 * value)} ms"
