"""How much a load's requests show, although those that queue together are alike.

Near saturation a queue remembers for many service times. What it forgets in is estimated from the
utilisation, whose error is small, and not from the latencies: in a lucky sample they look both
lower and more independent than they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pvariance
from typing import Literal

from armload.analysis.load.latency import queue_s
from armload.analysis.load.records import LoadPoint, RequestRecord
from armload.analysis.statistics import Interval, long_run_variance
from armload.core.values import Value

Stability = Literal["stable", "overloaded", "undecided"]

FEWEST_SATURATED = 20
"""Answers while all slots are busy; fewer do not show how fast a service can be."""

_SURE, _RATHER = 1.645, 0.8
"""Standard errors. Between 98% and 100% of the capacity, more than 5% of loads are called
overloaded, and at 100% a fifth."""

_DEVIATIONS = 1.5
"""Standard errors that are added to the utilisation: where it is underestimated, so is all that
follows from it."""

_CAUTION = 1.6
"""Where slots are not known, what the queue remembers is estimated from the latencies, badly."""

FEWEST_RETURNS = 5
"""Times that the backlog must fall from its upper quarter to its lower to be called stable."""

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
        open_at_end: requests without an answer when the last one came.
        most_per_s: requests/s that are answered while all slots are busy, with 95% confidence;
            none where they seldom were.
    """

    stability: Stability
    length_s: float
    service_s: float
    correlation_s: float
    open_at_end: int
    most_per_s: Interval | None = None

    @property
    def independent(self) -> float:
        """How many independent observations the point is worth."""
        return self.length_s / self.correlation_s if self.correlation_s > 0 else 0.0


def steady_state(
    point: LoadPoint, records: Sequence[RequestRecord], slots: int | None
) -> SteadyState | None:
    """Return what a point of an open loop shows; none of too few requests.

    Args:
        records: after the warm-up, in the order of their schedule.
        slots: of the server; none where they are not known.
    """
    served = [record for record in records if record.outcome != "cancelled"]
    if point.rate is None or len(served) < 2:
        return None
    times = ServedTimes.of(served, tells_slots=slots is not None)
    return steady(times, point.rate, slots)


class ServedTimes(Value):
    """When requests were scheduled, began in a slot, and ended; each in the schedule's order."""

    scheduled_s: tuple[float, ...]
    slot_s: tuple[float, ...] | None
    end_s: tuple[float, ...]

    @classmethod
    def of(cls, records: Sequence[RequestRecord], *, tells_slots: bool) -> ServedTimes:
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
    """Return what the times of at least two requests show.

    Args:
        rate: at which they were to come.
    """
    first_s, last_s = times.scheduled_s[0], times.scheduled_s[-1]
    length_s = last_s - first_s
    known = slots if times.slot_s is not None else None
    begun_s = times.scheduled_s if times.slot_s is None else times.slot_s
    services = [end_s - slot_s for slot_s, end_s in zip(begun_s, times.end_s, strict=True)]
    service_s = fmean(services)
    spread = pvariance(services, service_s) / service_s**2 if service_s > 0 else 0.0
    pieces = _counts(times, begun_s)
    full_from = known or max(1, _level(pieces, 0.1, (first_s + last_s) / 2, last_s))
    full = _answered_while_full(pieces, full_from, first_s, last_s)
    most = _most_per_s(full, spread)
    recurs = _returns(pieces, first_s, last_s) >= FEWEST_RETURNS
    if known is not None and length_s >= _LEAST_SERVICE_TIMES * service_s:
        recurs = full.share < _SELDOM_FULL
    open_at_end = sum(end_s > last_s for end_s in times.end_s)
    return SteadyState(
        stability=_stability(full, rate, spread, open_at_end, length_s, recurs=recurs),
        length_s=length_s,
        service_s=service_s,
        correlation_s=_correlation_s(times, rate, known, service_s, spread, length_s, most),
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


def _counts(times: ServedTimes, begun_s: Sequence[float]) -> list[tuple[float, float, int, bool]]:
    """Return how many requests were in a service, from when until when, and if one left then."""
    changes = sorted([(at_s, 1) for at_s in begun_s] + [(end_s, -1) for end_s in times.end_s])
    count, pieces = 0, []
    for (at_s, by), (next_s, next_by) in pairwise(changes):
        count += by
        pieces.append((at_s, next_s, count, next_by < 0))
    return pieces


def _answered_while_full(
    pieces: Sequence[tuple[float, float, int, bool]], level: int, first_s: float, last_s: float
) -> _Full:
    answered, seconds, late_s = 0, 0.0, 0.0
    middle_s = (first_s + last_s) / 2
    for from_s, next_s, count, leaves in pieces:
        until_s = min(next_s, last_s)
        # A slot that one request leaves is taken by the next at the same moment.
        if count >= level and until_s > from_s:
            seconds += until_s - from_s
            late_s += max(0.0, until_s - max(from_s, middle_s))
            answered += leaves and next_s <= last_s
    half_s = last_s - middle_s
    return _Full(seconds=seconds, answered=answered, share=late_s / half_s if half_s > 0 else 0.0)


def _level(
    pieces: Sequence[tuple[float, float, int, bool]], share: float, from_s: float, to_s: float
) -> int:
    """Return the number of requests in a service that is not exceeded for a share of a time."""
    seconds: dict[int, float] = {}
    for begun_s, next_s, count, _ in pieces:
        length_s = min(next_s, to_s) - max(begun_s, from_s)
        if length_s > 0:
            seconds[count] = seconds.get(count, 0.0) + length_s
    left_s = sum(seconds.values()) * share
    for level in sorted(seconds):
        left_s -= seconds[level]
        if left_s <= 0:
            return level
    return 0


def _returns(
    pieces: Sequence[tuple[float, float, int, bool]], first_s: float, last_s: float
) -> int:
    """Return how often the number of requests went from its upper quarter to its lower."""
    low, high = (_level(pieces, share, first_s, last_s) for share in (0.25, 0.75))
    returns, is_high = 0, False
    for from_s, _, count, _ in pieces:
        if from_s > last_s:
            break
        if count >= max(high, low + 1):
            is_high = True
        elif count <= low and is_high:
            returns, is_high = returns + 1, False
    return returns


def _relative_error(full: _Full, spread: float) -> float:
    return math.sqrt(max(spread, 1 / full.answered) / full.answered)


def _most_per_s(full: _Full, spread: float) -> Interval | None:
    if full.answered < FEWEST_SATURATED or full.seconds <= 0:
        return None
    per_s, error = full.answered / full.seconds, _relative_error(full, spread)
    return Interval(low=per_s * max(0.0, 1 - 1.96 * error), high=per_s * (1 + 1.96 * error))


def _stability(
    full: _Full, rate: float, spread: float, open_at_end: int, length_s: float, *, recurs: bool
) -> Stability:
    if full.answered >= FEWEST_SATURATED and full.seconds > 0:
        per_s, error = full.answered / full.seconds, _relative_error(full, spread)
        grown = (rate - per_s) * length_s / 2
        if per_s * (1 + _RATHER * error) < rate and open_at_end > grown:
            return "overloaded"
        if per_s * (1 - _SURE * error) > rate:
            return "stable"
    return "stable" if recurs else "undecided"


def _correlation_s(
    times: ServedTimes,
    rate: float,
    slots: int | None,
    service_s: float,
    spread: float,
    length_s: float,
    most_per_s: Interval | None,
) -> float:
    """Return the integrated autocorrelation time of a queue.

    That of the number in an M/M/1 queue is (1 + load) / (1 - load)^2 service times (Morse, 1955);
    in heavy traffic it grows with the variance of service times, and falls with the slots.
    """
    count = len(times.end_s)
    if slots is None:
        latencies = [end - due for end, due in zip(times.end_s, times.scheduled_s, strict=True)]
        variance = pvariance(latencies)
        effect = long_run_variance(latencies) / variance if variance > 0 else 1.0
        return max(service_s, _CAUTION * effect * length_s / count)
    error = _DEVIATIONS * math.sqrt(spread / count)
    load = min(_MOST_LOADED, rate * service_s * (1 + error) / slots)
    if most_per_s is not None:
        load = min(_MOST_LOADED, max(load, 2 * rate / (most_per_s.low + most_per_s.high)))
    queues = (1 + load) / (1 - load) ** 2 * (1 + spread) / 2 / slots
    return service_s * (1 + queues)
