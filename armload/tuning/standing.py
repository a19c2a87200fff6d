"""How a search stands: who leads, who may be faster, and whether it has ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from armload.core.values import Value
from armload.tuning.estimating import Estimate, Z
from armload.tuning.record import Violation

MARGIN = 0.02
"""Settings whose costs differ by less are equally good: no trial is spent on telling them apart."""

Ended = Literal["separated", "equal", "all tried", "trials used", "nothing works"]
"""Why a search has ended.

``separated``: no rival may be faster than the leader by more than the margin, and new settings
have stopped bringing better ones. ``all tried``: likewise, and there are no new settings.
``equal``: some may be faster, but many trials have not shown it. ``trials used``: no more are
allowed. ``nothing works``: no setting may win.
"""


class Standing(Value):
    """How a search stands.

    Attributes:
        leader: the lowest cost of the settings that may win, among those on the highest rung that
            any of them has reached; none while there is none.
        rivals: those that may be faster than the leader by more than the margin, the most
            promising first.
        violation: the fastest setting that breaks a constraint; none where none is faster than the
            leader.
        ended: why it has; none while it goes on.
    """

    leader: Estimate | None
    rivals: tuple[Estimate, ...]
    violation: Violation | None
    ended: Ended | None


def leader_of(able: Sequence[Estimate]) -> Estimate | None:
    """Return the lowest cost on the highest rung that was reached."""
    top = max((each.rung for each in able), default=0)
    reached = [each for each in able if each.rung == top]
    return min(reached, key=lambda each: each.cost, default=None)


def rivals_of(leader: Estimate, able: Sequence[Estimate]) -> list[Estimate]:
    """Return what may be faster by more than the margin, with 95% confidence each.

    The most promising come first: those with the lowest bound of how many times as slow they are.
    """
    bounds = [
        (_lowest_ratio(each, leader), each) for each in able if each.setting != leader.setting
    ]
    open_ones = [(bound, each) for bound, each in bounds if bound < -math.log1p(MARGIN)]
    return [each for _, each in sorted(open_ones, key=lambda pair: pair[0])]


def _lowest_ratio(one: Estimate, leader: Estimate) -> float:
    error = math.hypot(one.log_error, leader.log_error)
    return math.log(one.cost / leader.cost) - Z * error
