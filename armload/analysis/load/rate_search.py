"""The decisions of a search for the highest rate that a service sustains.

A rate counts as sustained if its backlog does not grow, and the 90th percentile of how much of its
objective each request takes is surely not above 1. Rates are tried upwards: once one is sustained,
a higher one is tried with the same probability of error, since only the first that is too high can
be an error (a fixed sequence of tests). Each time a rate is not shown to be sustained, a lower one
gets a part of the probability that is left. Which rates are tried follows from a model of a queue;
what is said of them does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from armload.analysis.load.latency import e2e_s, margin_s, severity
from armload.analysis.load.quantiles import (
    DEGREES,
    FEWEST_BEYOND,
    FEWEST_INDEPENDENT,
    Waits,
    reach_above,
    share_effect,
)
from armload.analysis.load.records import Objectives, RateVerdict, RequestRecord
from armload.analysis.load.steady import (
    DEVIATIONS,
    SUSTAINED_FROM,
    ServedTimes,
    SteadyState,
    correlation_s,
    judged,
    remembered_requests,
    steady,
    waits_in,
)
from armload.analysis.statistics import CONFIDENCE, Interval, t_quantile
from armload.core.values import Value

BUDGET_SERVICE_TIMES = 3000.0
"""In which a search ends, if no time is given."""

_PROBED, _PROBED_SHARE = 600.0, 0.1
"""Requests of the closed loop, and the share of the search's time that it may take: more would show
little more than how fast a service is, and fewer not even that."""

_LEVELS = (0.8, 0.15, 0.05)
"""Of the probability of error, for the first rates that are tried upwards, and each time that the
search has to go down."""

_LOOKS: tuple[tuple[float, float], ...] = ((0.3, 0.1), (0.6, 0.3), (1.0, 0.8))
"""At which share of a rate's time it is judged, with which share of its probability of error. They
add up to more than 1, since each look has the requests of those before: of means of 30%, 60% and
100% of independent samples one or more err with 0.97 of the whole probability."""

_SPENT = 0.45
"""Share of the time that is left which a rate may take, while there is none that is sustained."""

_PER_S_DOUBT = 0.4
"""Share of its 95% interval by which the saturated rate may be lower than it seems."""

_LUCK = 0.5
"""Standard errors that a rate is to be better than one that is shown in half of the cases."""

_ENOUGH, _ENOUGH_UNKNOWN = 1.2, 2.5
"""Times the fewest independent observations that a rate must give, since they are only expected."""

_WORTH_TRYING, _CLOSE, _LOWER = 1.05, 0.95, 0.88
_LEAST_LOAD = 0.05
_FEWEST_REQUESTS = 20.0
_LEAST_LEFT = 0.08
_HOPELESS = (1.3, 1.1, 1.0)
"""90th percentiles at which a rate is given up, at each look."""

_LEAST_WARMUP, _MOST_WARMUP = 10.0, 0.2
_REMEMBERED = 2.0
_TRIED_UP_TO = 0.97


class SaturatedRun(Value):
    """A closed loop with as many clients as a service has slots.

    Attributes:
        clients: that each had one request in the service.
        knows_slots: there are as many slots, and the service tells when a request begins in one.
        per_s: requests/s that were answered, with 95% confidence.
        spread: variance of a request's time, over the square of its mean.
        margins_s: seconds by which each request was within the objectives on the time to its first
            token and to its end; minus infinity if it failed or missed another objective.
    """

    clients: int
    knows_slots: bool = True
    per_s: Interval
    spread: float
    margins_s: tuple[float, ...]

    @property
    def middle_per_s(self) -> float:
        return (self.per_s.low + self.per_s.high) / 2

    @property
    def service_s(self) -> float:
        """How long a request takes while all slots are busy."""
        return self.clients / self.middle_per_s


def probed_per_client(clients: int, service_times: float) -> int:
    """Return how many requests each client sends in the closed loop of a search of that length."""
    return max(1, int(min(_PROBED / clients, _PROBED_SHARE * service_times)))


def saturated(
    records: Sequence[RequestRecord],
    clients: int,
    objectives: Objectives | None,
    *,
    knows_slots: bool,
) -> SaturatedRun:
    """Return what a closed loop shows; at least one of its requests succeeded."""
    ok = [record for record in records if record.outcome == "ok"]
    seconds = max(record.end_s for record in records) - min(r.scheduled_s for r in records)
    # At the end, clients wait for the last answers without a request of their own.
    last_begun_s = max(record.scheduled_s for record in records)
    full_s = last_begun_s - min(record.scheduled_s for record in records)
    answered = sum(record.end_s <= last_begun_s for record in ok)
    if answered < clients or full_s <= 0:
        answered, full_s = len(ok), seconds
    times = [e2e_s(record) for record in ok]
    spread = pvariance(times) / fmean(times) ** 2
    per_s = answered / full_s
    error = 1.96 * math.sqrt(max(spread, 1 / answered) / answered)
    return SaturatedRun(
        clients=clients,
        knows_slots=knows_slots,
        per_s=Interval(low=per_s * max(0.05, 1 - error), high=per_s * (1 + error)),
        spread=spread,
        margins_s=tuple(margin_s(record, objectives) for record in ok),
    )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rate has shown by some time.

    Attributes:
        severities: of its requests after the warm-up, in order.
        margins_s: likewise.
        waits: of these requests; none where they are not known.
        steady: of the backlog.
    """

    severities: Sequence[float]
    margins_s: Sequence[float]
    waits: Waits | None
    steady: SteadyState

    def judged(self, level: float) -> RateVerdict:
        """Say whether the rate is sustained, with a probability of error on either side."""
        return judged(
            self.severities, self.steady.independent, self.steady.stability, self.waits, level
        )

    @property
    def middle(self) -> float:
        """The 90th percentile of the severities."""
        ordered = sorted(self.severities)
        return ordered[max(0, math.ceil(SUSTAINED_FROM * len(ordered)) - 1)]


def evidence_of(
    records: Sequence[RequestRecord],
    open_since_s: Sequence[float],
    rate: float,
    slots: int | None,
    objectives: Objectives,
    now_s: float,
) -> Evidence | None:
    """Return what requests show while some are still open; none of too few.

    One that is open counts as far as it has missed an objective already. Those after the first
    whose fate is unknown are left out of the latencies, or only the quick ones would count.

    Args:
        records: of those that ended, without the warm-up.
        open_since_s: when those that have not ended were scheduled.
    """
    ended = [(record.scheduled_s, record) for record in records]
    waiting = [(due_s, None) for due_s in open_since_s]
    both = sorted([*ended, *waiting], key=lambda each: each[0])
    limit_s = min(objectives.ttft_s or math.inf, objectives.e2e_s or math.inf)
    severities: list[float] = []
    margins: list[float] = []
    waits_s: list[float] = []
    for due_s, record in both:
        if record is not None:
            severities.append(severity(record, objectives))
            margins.append(margin_s(record, objectives))
            waits_s.append((record.header_s or record.end_s) - due_s)
        elif now_s - due_s > (objectives.e2e_s or math.inf):
            severities.append((now_s - due_s) / limit_s)
            margins.append(limit_s - (now_s - due_s))
            waits_s.append(now_s - due_s)
        else:
            break
    if len(severities) < 2:
        return None
    known = ServedTimes.of([record for _, record in ended], tells_slots=slots is not None)
    times = known.with_open(open_since_s)
    found = steady(times, rate, slots)
    return Evidence(
        severities=severities,
        margins_s=margins,
        waits=waits_in(margins, waits_s, found.remembered),
        steady=found,
    )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A rate to be tried.

    Attributes:
        warmup_s: excluded from the figures.
        length_s: after the warm-up, at most.
        level: probability of an error.
    """

    rate: float
    warmup_s: float
    length_s: float
    level: float

    def looks_s(self) -> tuple[float, ...]:
        """Return when it is judged, in seconds since its beginning."""
        return tuple(self.warmup_s + share * self.length_s for share, _ in _LOOKS)

    def look(self, number: int, evidence: Evidence) -> RateVerdict | None:
        """Judge the rate; none if it has to go on."""
        _, share = _LOOKS[number]
        verdict = evidence.judged(share * self.level)
        if verdict != "undecided":
            return verdict
        is_last = number == len(_LOOKS) - 1
        return "undecided" if is_last or evidence.middle > _HOPELESS[number] else None


class RateSearch:
    """A search under way.

    Attributes:
        sustained: the highest rate that is; none before there is one.
        refuted: the lowest that is not; at first the upper bound of the saturated rate.

    Args:
        budget_s: in which it ends.
    """

    def __init__(self, loop: SaturatedRun, budget_s: float) -> None:
        self._loop = loop
        self._budget_s = self._left_s = budget_s
        self._per_s = loop.per_s
        self._spread = loop.spread
        self._margins_s = loop.margins_s
        self._queueing = 1.0
        self._enough = _ENOUGH if loop.knows_slots else _ENOUGH_UNKNOWN
        self._descents = 0
        self._given_up = math.inf
        self.sustained: float | None = None
        self.refuted = loop.per_s.high

    def next(self) -> Attempt | None:
        """Return the rate to try next; none at the end."""
        if self._left_s <= max(0.0, _LEAST_LEFT * self._budget_s) or self._descents >= len(_LEVELS):
            return None
        level = _LEVELS[self._descents] * (1 - CONFIDENCE)
        left_s = self._left_s * (_SPENT if self.sustained is None else 1.0)
        rate = min(self._expected(left_s, level), _CLOSE * self.refuted)
        if self.sustained is not None:
            rate = min(rate, _CLOSE * self._given_up)
            if rate < _WORTH_TRYING * self.sustained:
                return None
        else:
            rate = min(rate, _LOWER * self._given_up)
        rate = float(f"{rate:.3g}")
        load = min(rate / self._middle_per_s, _TRIED_UP_TO)
        warmup_s = self._warmup_s(load, left_s)
        if rate * (left_s - warmup_s) < _FEWEST_REQUESTS:
            return None
        return Attempt(rate=rate, warmup_s=warmup_s, length_s=left_s - warmup_s, level=level)

    def done(
        self, attempt: Attempt, verdict: RateVerdict, evidence: Evidence | None, spent_s: float
    ) -> None:
        """Take what a rate has shown, and how long it took."""
        self._left_s -= spent_s
        if verdict == "sustained":
            self.sustained = attempt.rate
        else:
            if self.sustained is None:
                self._descents += 1
            else:
                # The sequence of tests upwards ends with the first that is not passed.
                self._descents = len(_LEVELS)
            self._given_up = min(self._given_up, attempt.rate)
            if verdict == "not sustained":
                self.refuted = min(self.refuted, attempt.rate)
        if evidence is not None:
            self._learn(attempt.rate, evidence)

    def _expected(self, length_s: float, level: float) -> float:
        """Return the highest rate that would be shown to be sustained, by the model of a queue."""
        beyond_share = 1 - SUSTAINED_FROM
        fewest = max(FEWEST_INDEPENDENT, FEWEST_BEYOND / beyond_share)
        deviations = t_quantile(1 - _LOOKS[-1][1] * level, DEGREES) + _LUCK

        def is_shown(load: float) -> bool:
            missed = self._missed(load, self._queueing)
            if missed >= beyond_share:
                return False
            rate = load * self._middle_per_s
            measured_s = length_s - self._warmup_s(load, length_s)
            # As for the requests themselves, the load is not assumed to be lower than it may be.
            doubt = 1 + DEVIATIONS * math.sqrt(self._spread / max(1.0, rate * measured_s))
            remembers_s = self._remembers_s(min(_TRIED_UP_TO, load * doubt))
            independent = measured_s / remembers_s / self._enough
            if independent < fewest:
                return False
            remembered = remembered_requests(rate, remembers_s - self._service_s, self._spread)
            effect = share_effect(SUSTAINED_FROM, remembered, self._waiting(load))
            error = math.sqrt(SUSTAINED_FROM * beyond_share * effect / (rate * measured_s))
            reach = reach_above(deviations * error, SUSTAINED_FROM, beyond_share * independent)
            return missed <= beyond_share * math.exp(-reach)

        doubt = 1 - _PER_S_DOUBT * _relative(self._per_s)
        return max(_highest(is_shown), _LEAST_LOAD) * self._middle_per_s * doubt

    def _warmup_s(self, load: float, length_s: float) -> float:
        remembered_s = _REMEMBERED * self._remembers_s(load)
        return min(max(_LEAST_WARMUP * self._service_s, remembered_s), _MOST_WARMUP * length_s)

    def _remembers_s(self, load: float) -> float:
        return correlation_s(load, self._loop.clients, self._service_s, self._spread)

    def _waiting(self, load: float) -> float:
        """Return the share of requests that wait at all."""
        return load ** (math.sqrt(2 * (self._loop.clients + 1)) - 1)

    @property
    def _service_s(self) -> float:
        return self._loop.clients / self._middle_per_s

    @property
    def _middle_per_s(self) -> float:
        return (self._per_s.low + self._per_s.high) / 2

    def _learn(self, rate: float, evidence: Evidence) -> None:
        found = evidence.steady.most_per_s
        if found is not None and _relative(found) < _relative(self._per_s):
            self._per_s = found
        load = min(rate / self._middle_per_s, _TRIED_UP_TO)
        margins = sorted(each for each in evidence.margins_s if math.isfinite(each))
        if not margins or not math.isfinite(margins[0]):
            return
        lowest_s = margins[int((1 - SUSTAINED_FROM) * len(margins))]
        usual = sorted(self._margins_s)
        if lowest_s > usual[int((1 - SUSTAINED_FROM) * len(usual))]:
            # In the closed loop, requests took longer than they do at a rate.
            self._margins_s = tuple(evidence.margins_s)
        # How many times as long requests wait as the model says.
        self._queueing = math.exp(
            _highest(
                lambda share: (
                    self._missed(load, math.exp(6 * share - 3), lowest_s) <= 1 - SUSTAINED_FROM
                )
            )
            * 6
            - 3
        )

    def _missed(self, load: float, queueing: float, from_s: float = 0.0) -> float:
        """Return the share of requests that wait longer than their margin, less ``from_s``.

        That requests wait at all, and how long, is Sakasegawa's approximation of the queue of
        several slots ("An Approximation Formula", 1977), with exponential waits.
        """
        waits = self._waiting(load)
        mean_s = queueing * (1 + self._spread) / 2 / self._middle_per_s / (1 - load)
        return fmean(
            1.0 if margin < from_s else waits * math.exp(-(margin - from_s) / mean_s)
            for margin in self._margins_s
        )


def _relative(found: Interval) -> float:
    return (found.high - found.low) / (found.high + found.low)


def _highest(holds: Callable[[float], bool]) -> float:
    """Return up to where something holds, between 0 and what is tried at most."""
    low, high = 0.0, _TRIED_UP_TO
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
