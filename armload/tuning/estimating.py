"""What trials tell of each configuration, and how the search stands.

A trial's cost is off by what differs from run to run, and by the spread of its own samples. The
first is estimated from all settings that were tried more than once, so that a setting that was
tried once has an interval, too. Costs count by their logarithms: noise is relative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from armload.analysis.statistics import RUN_TO_RUN, Interval, Z, own_doubt
from armload.core.values import Value
from armload.tuning.record import Violation
from armload.tuning.space import Setting
from armload.tuning.trial import Outcome, Trial

_OFFSET_FROM = 2
"""Settings that must have been tried on two rungs before these count as different. A setting that
leads by luck costs more in its next trial, and all others would seem to cost as much more."""

_ASSUMED_TRIALS = 4
"""How much the assumed variation from run to run weighs beside what repeats show."""


@dataclass(frozen=True, kw_only=True)
class MeasuredChoice:
    """A trial that gave a cost.

    Attributes:
        rung: of the trial.
        log_cost: natural logarithm of the cost.
        own_variance: of the logarithm, by the trial's own samples; 0 where it has none.
    """

    rung: int
    log_cost: float
    own_variance: float


@dataclass(kw_only=True)
class Tried:
    """All that is known of a setting.

    Attributes:
        order: how many settings were tried before it.
        violates, failed: why it cannot win; empty where it may.
    """

    setting: Setting
    order: int
    measured: list[MeasuredChoice] = field(default_factory=list)
    violates: str = ""
    failed: str = ""

    @property
    def may_win(self) -> bool:
        """Whether nothing speaks against it."""
        return not (self.violates or self.failed)

    @property
    def rung(self) -> int:
        """The highest on which it was measured."""
        return max(each.rung for each in self.measured)

    def add(self, trial: Trial, outcome: Outcome) -> None:
        """Take in a trial.

        Raises:
            ValueError: it was measured, and its cost is not a positive number.
        """
        if outcome.status == "failed":
            self.failed = outcome.reason or "failed"
        if outcome.status == "violates":
            self.violates = outcome.reason or "violates a constraint"
        if outcome.cost is None or outcome.status == "failed":
            return
        if not (outcome.cost > 0 and math.isfinite(outcome.cost)):
            raise ValueError(f"trial {trial.number}: a cost of {outcome.cost} is not positive")
        spread = math.log(own_doubt(outcome.samples)) / Z if len(outcome.samples) > 1 else 0.0
        self.measured.append(
            MeasuredChoice(
                rung=trial.rung, log_cost=math.log(outcome.cost), own_variance=spread * spread
            )
        )


class ChoiceEstimate(Value):
    """A setting's cost.

    Attributes:
        cost: on the highest rung that any setting has reached.
        interval: where the cost lies with 95% confidence.
        trials: how many it was estimated from.
        rung: the highest of them.
    """

    setting: Setting
    cost: float
    interval: Interval
    trials: int
    rung: int

    @property
    def log_error(self) -> float:
        """Standard error of the cost's logarithm."""
        return math.log(self.interval.high / self.interval.low) / (2 * Z)


def estimates_of(tried: Iterable[Tried]) -> list[ChoiceEstimate]:
    """Estimate the cost of every setting that was measured."""
    known = [each for each in tried if each.measured]
    if not known:
        return []
    offsets = _offsets(known)
    between = _variance_between_runs(known, offsets)
    return [_estimate(each, offsets, between) for each in known]


def _estimate(one: Tried, offsets: Mapping[int, float], between: float) -> ChoiceEstimate:
    weights = [1 / (between + each.own_variance) for each in one.measured]
    costs = _corrected(one.measured, offsets)
    middle = sum(w * c for w, c in zip(weights, costs, strict=True)) / sum(weights)
    reach = Z / math.sqrt(sum(weights))
    return ChoiceEstimate(
        setting=one.setting,
        cost=math.exp(middle),
        interval=Interval(low=math.exp(middle - reach), high=math.exp(middle + reach)),
        trials=len(one.measured),
        rung=one.rung,
    )


def _corrected(measured: Sequence[MeasuredChoice], offsets: Mapping[int, float]) -> list[float]:
    return [each.log_cost - offsets[each.rung] for each in measured]


def _offsets(known: Sequence[Tried]) -> dict[int, float]:
    # A short trial has a shorter context and colder caches than a long one. How much that changes
    # the cost shows in the settings that were tried on both.
    top = max(each.rung for each in known)
    offsets = {}
    for rung in range(top + 1):
        changes = [
            _mean_on(each, rung) - _mean_on(each, top)
            for each in known
            if each.rung == top and any(one.rung == rung for one in each.measured)
        ]
        offsets[rung] = median(changes) if len(changes) >= _OFFSET_FROM else 0.0
    return offsets


def _mean_on(one: Tried, rung: int) -> float:
    costs = [each.log_cost for each in one.measured if each.rung == rung]
    return sum(costs) / len(costs)


def _variance_between_runs(known: Sequence[Tried], offsets: Mapping[int, float]) -> float:
    assumed = (math.log1p(RUN_TO_RUN) / Z) ** 2
    total, degrees = _ASSUMED_TRIALS * assumed, float(_ASSUMED_TRIALS)
    for each in known:
        count = len(each.measured)
        costs = _corrected(each.measured, offsets)
        middle = sum(costs) / count
        own = sum(one.own_variance for one in each.measured) / count
        total += sum((cost - middle) ** 2 for cost in costs) - (count - 1) * own
        degrees += count - 1
    return max(total / degrees, assumed / _ASSUMED_TRIALS)


MARGIN = 0.02
"""Settings whose costs differ by less are equally good: no trial is spent on telling them apart."""

Ended = Literal["separated", "equal", "all tried", "trials used", "nothing works"]
"""Why a search has ended.

``separated``: no rival may be faster than the leader by more than the margin, and new settings
have stopped bringing better ones. ``all tried``: likewise, and there are no new settings.
``equal``: some may be faster, but many trials have not shown it. ``trials used``: no more are
allowed. ``nothing works``: no setting may win.
"""


class SearchState(Value):
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

    leader: ChoiceEstimate | None
    rivals: tuple[ChoiceEstimate, ...]
    violation: Violation | None
    ended: Ended | None


def leader_of(able: Sequence[ChoiceEstimate]) -> ChoiceEstimate | None:
    """Return the lowest cost on the highest rung that was reached."""
    top = max((each.rung for each in able), default=0)
    reached = [each for each in able if each.rung == top]
    return min(reached, key=lambda each: each.cost, default=None)


def rivals_of(leader: ChoiceEstimate, able: Sequence[ChoiceEstimate]) -> list[ChoiceEstimate]:
    """Return what may be faster by more than the margin, with 95% confidence each.

    The most promising come first: those with the lowest bound of how many times as slow they are.
    """
    bounds = [
        (_lowest_ratio(each, leader), each) for each in able if each.setting != leader.setting
    ]
    open_ones = [(bound, each) for bound, each in bounds if bound < -math.log1p(MARGIN)]
    return [each for _, each in sorted(open_ones, key=lambda pair: pair[0])]


def _lowest_ratio(one: ChoiceEstimate, leader: ChoiceEstimate) -> float:
    error = math.hypot(one.log_error, leader.log_error)
    return math.log(one.cost / leader.cost) - Z * error
