"""Numbers within sentences."""

from __future__ import annotations

_IN_FULL_FROM = 999.5
"""What would be written as 1e+03."""


def up_to_three_figures(value: float) -> str:
    """Write a positive number with three figures, a large one in full: ``0.0123``, ``2,346``."""
    return f"{value:,.0f}" if value >= _IN_FULL_FROM else f"{value:.3g}"
