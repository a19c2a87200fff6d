"""What reports leave in the cache."""

from __future__ import annotations

from armload.core.cache import Kind, items_of


def report_kinds() -> tuple[Kind, ...]:
    """Return the charting libraries that pages carry."""
    return (
        Kind(
            name="vega",
            what="the pages' charting libraries",
            again="a second",
            items=items_of("vega"),
        ),
    )
