"""What is expected of a setting before it is tried."""

from __future__ import annotations

from armload.core.values import Value


class Prior(Value):
    """What a prediction says about a setting.

    Attributes:
        hopeless: why it need not be tried, such as weights that do not fit into memory; empty where
            it may be.
        cost: that is predicted; none where nothing is known.
    """

    hopeless: str = ""
    cost: float | None = None
