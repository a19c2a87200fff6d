"""A trial of a configuration, what became of it, and measuring it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from armload.core.values import Value
from armload.engines.job import SweepPoint
from armload.tuning.space import Feasibility, Setting

Status = Literal["measured", "failed", "violates"]
"""``violates``: it was measured, and breaks a constraint, so it cannot win."""


class Trial(Value):
    """What to measure next.

    Attributes:
        number: in the order in which trials were asked for, from 0.
        setting: that is tried.
        rung: how long: 0 is the cheapest, and every rung above is longer.
    """

    number: int
    setting: Setting
    rung: int


class Outcome(Value):
    """How a trial ended.

    Attributes:
        status: whether it was measured, and may win.
        cost: what is to be small, such as seconds per token; none where nothing was measured.
        samples: costs of its parts, such as single tokens, from which its interval is computed;
            none for a trial that gives one figure.
        reason: why it failed, or which constraint it breaks.
        disturbance: what else slowed it down, such as other programs on the board.
        evidence: ids of its runs, evaluations or loads.
        took_s: how long the whole trial took, the board's preparation included.
    """

    status: Status
    cost: float | None = None
    samples: tuple[float, ...] = ()
    reason: str = ""
    disturbance: str = ""
    evidence: tuple[str, ...] = ()
    took_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrialAttempt:
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

    def prior(self, setting: Setting) -> Feasibility:
        """Say what is expected of a setting."""

    def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
        """Measure a setting."""
