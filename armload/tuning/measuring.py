"""What a search measures settings with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from armload.engines.job import Place
from armload.tuning.prior import Prior
from armload.tuning.space import Setting
from armload.tuning.trial import Outcome


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What one measurement of a setting gave.

    Attributes:
        outcome: of the measurement alone; constraints are looked at later.
        text: that was written, where it can be compared with that of other settings; else none.
        max_rss_bytes: peak resident memory; none where it was not measured.
    """

    outcome: Outcome
    text: str | None = None
    max_rss_bytes: int | None = None


class Measurer(Protocol):
    """Measures settings on a board, each time for one figure."""

    @property
    def rungs(self) -> int:
        """How many lengths of a measurement there are."""

    def prior(self, setting: Setting) -> Prior:
        """Say what is expected of a setting."""

    def measure(self, setting: Setting, rung: int, place: Place) -> Attempt:
        """Measure a setting.

        Raises:
            ConnectError, BusyError: the board does not answer any more, or is in use.
            KeyboardInterrupt: after what is there was kept.
        """
