"""How much a load's requests show, although those that queue together are alike.

Near saturation a queue remembers for many service times. What it forgets in is estimated from the
utilisation, whose error is small, and not from the latencies: in a lucky sample they look both
lower and more independent than they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from armload.analysis.load.latency import queue_s
from armload.analysis.load.quantiles import QueueWaits, highest, lowest, share_interval
from armload.analysis.load.records import LoadPoint, RateVerdict
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.statistics import TAIL, Interval, long_run_variance
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Stability = Literal["stable", "overloaded", "undecided"]

SUSTAINED_FROM = 0.90
"""Share of the requests that must be within all objectives."""

FEWEST_TO_REFUTE = 5.0
"""Independent observations; fewer show nothing."""

FEWEST_SATURATED = 20
"""Answers while all slots are busy; fewer do not show how fast a service can be."""

_SURE, _RATHER, _NEAR = 1.645, 0.5, 0.05
"""Standard errors, and a share of the capacity. Of loads at 95% of it, at most 5% are called
overloaded; at 100%, three of ten."""

DEVIATIONS = 1.75
"""Standard errors that are added to the utilisation: where it is underestimated, so is all that
follows from it."""

_CAUTION = 1.6
"""Where slots are not known, what the queue remembers is estimated from the latencies, badly."""

FEWEST_RETURNS = 5
"""Times that the backlog must fall from its upper quarter to its lower to be called stable."""

_AT_LEAST, _CONSTANT = 2.0, 0.7
"""Requests that are alike in any queue; and the share of a queue's memory that remains where all
take the same time. Fitted to simulated queues."""

_MOST_LOADED = 0.995
_SELDOM_FULL = 0.8
_LEAST_SERVICE_TIMES = 20.0


class SteadyState(Value):
    """Whether a point of an open loop reached a steady state, and how long its queue remembers.

    Attributes:
        stability: ``stable``: answers keep up; ``overloaded``: the backlog grows;
            ``undecided``: the requests are too few to tell.
        length_s: from the first measured request to the last.
        service_s: mean time of a request in a slot; from its sending where slots are not known.
        correlation_s: the length that counts as one independent observation.
        remembered: requests that come while the queue remembers how long it was; none where slots
            are not known.
        open_at_end: requests without an answer when the last one came.
        most_per_s: requests/s that are answered while all slots are busy, with 95% confidence;
            none where they seldom were.
    """

    stability: Stability
    length_s: float
    service_s: float
    correlation_s: float
    remembered: float | None = None
    open_at_end: int
    most_per_s: Interval | None = None

    @property
    def independent(self) -> float:
        """How many independent observations the point is worth."""
        return self.length_s / self.correlation_s if self.correlation_s > 0 else 0.0


def steady_state(
    point: LoadPoint, records: Sequence[EndedRequest], slots: int | None
) -> SteadyState | None:
    """Return what a point of an open loop shows; none of a stage, and of too few requests.

    Args:
        records: after the warm-up, in the order of their schedule.
        slots: of the server; none where they are not known.
    """
    served = [record for record in records if record.outcome != "cancelled"]
    if point.rate is None or point.stage is not None or len(served) < 2:
        return None
    times = ServedTimes.of(served, tells_slots=slots is not None)
    return steady(times, point.rate, slots)


def judged(
    severities: Sequence[float],
    independent: float,
    stability: Stability | None,
    waits: QueueWaits | None = None,
    level: float = TAIL,
) -> RateVerdict:
    """Say whether a rate is sustained, with a probability of error.

    Args:
        severities: how much of its objectives each request took.
        independent: observations that they are worth.
        stability: of the backlog; none in a closed loop.
        waits: that the requests' excess over their objectives is made of; none where that is not
            known.
    """
    failed = sum(each == math.inf for each in severities)
    if stability == "overloaded" or failed > max(FEWEST_TO_REFUTE, len(severities) / 2):
        return "not sustained"
    if highest(severities, SUSTAINED_FROM, independent, level, waits) <= 1:
        return "sustained"
    if lowest(severities, SUSTAINED_FROM, independent, TAIL, waits) > 1:
        return "not sustained"
    # Few observations are enough where hardly any request was within the objectives.
    share = share_interval([each <= 1 for each in severities], independent)
    missed = independent >= FEWEST_TO_REFUTE and share is not None and share.high < SUSTAINED_FROM
    return "not sustained" if missed else "undecided"


def waits_in(
    margins_s: Sequence[float], waits_s: Sequence[float], remembered: float | None
) -> QueueWaits | None:
    """Return what requests' excess over their objectives owes to a queue; none if not known."""
    if remembered is None:
        return None
    return QueueWaits(
        waits_s=waits_s,
        own_s=[-margin_s - wait_s for margin_s, wait_s in zip(margins_s, waits_s, strict=True)],
        remembered=remembered,
    )


class ServedTimes(Value):
    """When requests were scheduled, began in a slot, and ended; infinity where they have not."""

    scheduled_s: tuple[float, ...]
    slot_s: tuple[float, ...] | None
    end_s: tuple[float, ...]

    def with_open(self, scheduled_s: Sequence[float]) -> ServedTimes:
        """Return these with requests that have not ended."""
        never = (math.inf,) * len(scheduled_s)
        return ServedTimes(
            scheduled_s=(*self.scheduled_s, *scheduled_s),
            slot_s=None if self.slot_s is None else (*self.slot_s, *never),
            end_s=(*self.end_s, *never),
        )

    @classmethod
    def of(cls, records: Sequence[EndedRequest], *, tells_slots: bool) -> ServedTimes:
        begun = [
            record.header_s
            for record in records
            if queue_s(record) is not None and record.header_s is not None
        ]
        return cls(
            scheduled_s=tuple(record.scheduled_s for record in records),
            slot_s=tuple(begun) if tells_slots and len(begun) == len(records) else None,
            end_s=tuple(record.end_s for record in records),
        )


def steady(times: ServedTimes, rate: float, slots: int | None) -> SteadyState:
    """Return what the times of requests show of which at least two ended.

    Args:
        rate: at which they were to come.
    """
    import numpy as np

    due_s, end_s = np.asarray(times.scheduled_s), np.asarray(times.end_s)
    begun_s = due_s if times.slot_s is None else np.asarray(times.slot_s)
    known = slots if times.slot_s is not None else None
    first_s, last_s = float(due_s.min()), float(due_s.max())
    length_s = last_s - first_s
    ended = np.isfinite(end_s)
    services = end_s[ended] - begun_s[ended]
    service_s = float(services.mean())
    spread = float(services.var()) / service_s**2 if service_s > 0 else 0.0
    backlog = _Backlog(begun_s[np.isfinite(begun_s)], end_s[ended], last_s)
    full = backlog.full(known or max(1, backlog.level(0.1, since_s=backlog.middle_s)))
    if full.answered < FEWEST_SATURATED or full.seconds <= 0:
        most = None
    else:
        per_s, error = full.answered / full.seconds, _relative_error(full, spread)
        most = Interval(low=per_s * max(0.0, 1 - 1.96 * error), high=per_s * (1 + 1.96 * error))
    open_at_end = int((end_s > last_s).sum())
    # Where slots are known, a queue that grows keeps them all busy.
    if known is not None and length_s >= _LEAST_SERVICE_TIMES * service_s:
        recurs = full.share < _SELDOM_FULL
        grows = not recurs
    else:
        recurs = backlog.returns() >= FEWEST_RETURNS
        grows = open_at_end > _lag(full, rate, length_s)
    if known:
        load = rate * service_s * (1 + DEVIATIONS * math.sqrt(spread / int(ended.sum()))) / known
        if most is not None:
            load = max(load, rate / most.middle)
        remembers_s = correlation_s(load, known, service_s, spread)
        remembered = remembered_requests(rate, remembers_s - service_s, spread)
    else:
        remembers_s = max(service_s, _observed_correlation_s(end_s[ended] - due_s[ended], length_s))
        remembered = None
    return SteadyState(
        stability=_stability(full, rate, spread, recurs=recurs, grows=grows),
        length_s=length_s,
        service_s=service_s,
        correlation_s=remembers_s,
        remembered=remembered,
        open_at_end=open_at_end,
        most_per_s=most,
    )


class _Full(Value):
    """The time in which a service was full, and the requests that it answered then.

    Attributes:
        share: of the second half of the time.
    """

    seconds: float
    answered: int
    share: float


class _Backlog:
    """How many requests were in a service, or in its slots, until the last one came."""

    def __init__(self, begun_s: Floats, end_s: Floats, last_s: float) -> None:
        import numpy as np

        at_s = np.concatenate([end_s, begun_s])
        by = np.concatenate([np.full(len(end_s), -1), np.full(len(begun_s), 1)])
        order = np.argsort(at_s, kind="stable")  # a slot that is left is taken at the same moment
        at_s, by = at_s[order], by[order]
        until_s = np.append(at_s[1:], last_s)
        self._leaves = np.append(by[1:] < 0, False) & (until_s <= last_s)
        self._count = np.maximum(0, np.cumsum(by))
        self._from_s, self._until_s = at_s, np.minimum(until_s, last_s)
        self.middle_s = (float(begun_s.min()) + last_s) / 2
        self._last_s = last_s

    def full(self, level: int) -> _Full:
        import numpy as np

        is_full = (self._count >= level) & (self._until_s > self._from_s)
        seconds = (self._until_s - self._from_s)[is_full]
        late_s = (self._until_s - np.maximum(self._from_s, self.middle_s))[is_full]
        half_s = self._last_s - self.middle_s
        return _Full(
            seconds=float(seconds.sum()),
            answered=int((self._leaves & is_full).sum()),
            share=float(late_s[late_s > 0].sum()) / half_s if half_s > 0 else 0.0,
        )

    def level(self, share: float, since_s: float = -math.inf) -> int:
        """Return the number of requests that is not exceeded for a share of the time."""
        import numpy as np

        seconds = np.maximum(0.0, self._until_s - np.maximum(self._from_s, since_s))
        by_count = np.bincount(self._count, weights=seconds)
        return int(np.searchsorted(np.cumsum(by_count), share * by_count.sum()))

    def returns(self) -> int:
        """Return how often the number went from its upper quarter to its lower."""
        import numpy as np

        low, high = self.level(0.25), self.level(0.75)
        within = self._count[self._until_s > self._from_s]
        sides = np.where(within >= max(high, low + 1), 1, np.where(within <= low, -1, 0))
        sides = sides[sides != 0]
        return int((np.diff(sides) < 0).sum())


def _relative_error(full: _Full, spread: float) -> float:
    return math.sqrt(max(spread, 1 / full.answered) / full.answered)


def _lag(full: _Full, rate: float, length_s: float) -> float:
    """Return half of how many requests are open at the end if the service lags as it does."""
    return (rate - full.answered / full.seconds) * length_s / 2 if full.seconds > 0 else math.inf


def _stability(full: _Full, rate: float, spread: float, *, recurs: bool, grows: bool) -> Stability:
    if full.answered >= FEWEST_SATURATED and full.seconds > 0:
        per_s, error = full.answered / full.seconds, _relative_error(full, spread)
        rather = max(_RATHER, _SURE - _NEAR / error)
        if per_s * (1 + rather * error) < rate and grows:
            return "overloaded"
        if per_s * (1 - _SURE * error) > rate:
            return "stable"
    return "stable" if recurs else "undecided"


def correlation_s(load: float, slots: int, service_s: float, spread: float) -> float:
    """Return the integrated autocorrelation time of a queue.

    That of the number in an M/M/1 queue is (1 + load) / (1 - load)^2 service times (Morse, 1955);
    in heavy traffic it grows with the variance of service times, and falls with the slots.

    Args:
        load: share of the capacity.
        spread: variance of service times, over the square of their mean.
    """
    load = min(_MOST_LOADED, load)
    queues = (1 + load) / (1 - load) ** 2 * (1 + spread) / 2 / slots
    return service_s * (1 + queues)


def remembered_requests(rate: float, remembers_s: float, spread: float) -> float:
    """Return how many requests come while a queue remembers how long it was.

    Args:
        remembers_s: the integrated autocorrelation time of the queue alone.
        spread: of service times, as for ``correlation_s``.
    """
    return (rate * remembers_s + _AT_LEAST) * (_CONSTANT + (1 - _CONSTANT) * min(1.0, spread))


def _observed_correlation_s(latencies: Floats, length_s: float) -> float:
    variance = float(latencies.var())
    effect = long_run_variance(latencies) / variance if variance > 0 else 1.0
    return _CAUTION * effect * length_s / len(latencies)
