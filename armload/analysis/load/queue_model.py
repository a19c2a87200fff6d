"""What the theory of queues expects of a rate: how many requests miss an objective, and how sure.

It chooses which rates a search tries, not what is said of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from armload.analysis.load.quantiles import (
    DEGREES,
    FEWEST_BEYOND,
    FEWEST_INDEPENDENT,
    FEWEST_SAMPLES_BEYOND,
    reach_above,
    share_effect,
)
from armload.analysis.load.steady import (
    DEVIATIONS,
    SUSTAINED_FROM,
    correlation_s,
    remembered_requests,
)
from armload.analysis.statistics import Interval, t_quantile
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MISSED_UP_TO = 1 - SUSTAINED_FROM

_PER_S_DOUBT = 0.4
"""Share of its 95% interval by which the saturated rate may be lower than it seems."""

_ENOUGH, _ENOUGH_UNKNOWN = 1.2, 2.5
"""Times the fewest independent observations that a rate must give, since they are only expected."""

_LEAST_LOAD, _MOST_LOAD, _LOADS = 0.05, 0.97, 93
_LEAST_WARMUP, _MOST_WARMUP = 10.0, 0.2
_REMEMBERED = 2.0

_MODEL_ERROR = 0.3
"""Standard deviation of the logarithm of how many times as long requests wait as expected."""


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
    def service_s(self) -> float:
        """How long a request takes while all slots are busy."""
        return self.clients / self.per_s.middle


class Counted(Value):
    """Requests of which it is known how many missed an objective."""

    requests: float = 0.0
    missed: float = 0.0
    independent: float = 0.0


class QueueModel:
    """A queue with some slots, of which more is known the longer a search lasts."""

    def __init__(self, loop: SaturatedRun) -> None:
        import numpy as np

        self._clients = loop.clients
        self._per_s = loop.per_s
        self._spread = loop.spread
        self._margins_s: Floats = np.asarray(loop.margins_s)
        self._queueing = 1.0
        self._enough = _ENOUGH if loop.knows_slots else _ENOUGH_UNKNOWN

    def highest_rate(
        self, length_s: float, level: float, luck: float, before: Counted
    ) -> float | None:
        """Return the highest rate that would be shown to be sustained; none if none would.

        Args:
            length_s: of the rate, with its warm-up.
            level: probability of error.
            luck: standard errors that it is to be better than one that is shown in half of the
                cases.
            before: requests at higher rates, which count as well.
        """
        doubt = 1 - _PER_S_DOUBT * self._per_s.relative_error
        # A low rate has few requests, so that it may not be shown although a higher one is.
        for step in range(_LOADS):
            load = _MOST_LOAD - step * (_MOST_LOAD - _LEAST_LOAD) / (_LOADS - 1)
            missed = self._missed(load, self._queueing)
            if missed >= MISSED_UP_TO:
                continue
            rate = load * self.per_s
            requests = rate * (length_s - self.warmup_s(rate, length_s))
            expected = Counted(
                requests=before.requests + requests,
                missed=before.missed + missed * requests,
                independent=before.independent + self.independent(rate, requests) / self._enough,
            )
            if self.shows(rate, expected, level, luck):
                return rate * doubt
        return None

    def shows(self, rate: float, found: Counted, level: float, luck: float) -> bool:
        """Return whether requests would show that a rate is sustained.

        Args:
            luck: standard errors by which they must be better than that.
        """
        beyond = MISSED_UP_TO * found.independent
        if (
            found.independent < FEWEST_INDEPENDENT
            or beyond < FEWEST_BEYOND
            or MISSED_UP_TO * found.requests < FEWEST_SAMPLES_BEYOND
        ):
            return False
        errors = (t_quantile(1 - level, DEGREES) + luck) * self.error(rate, found.requests)
        reach = reach_above(errors, SUSTAINED_FROM, found.independent)
        return found.missed <= found.requests * MISSED_UP_TO * math.exp(-reach)

    def error(self, rate: float, requests: float) -> float:
        """Return the standard error of the share of requests that miss an objective."""
        load = self._cautious(rate, requests)
        queue_s = self._remembers_s(load) - self.service_s
        remembered = remembered_requests(rate, queue_s, self._spread)
        effect = share_effect(SUSTAINED_FROM, remembered, self._waiting(self._load(rate)))
        return math.sqrt(SUSTAINED_FROM * MISSED_UP_TO * effect / requests)

    def independent(self, rate: float, requests: float) -> float:
        """Return how many independent observations requests are worth."""
        return requests / rate / self._remembers_s(self._cautious(rate, requests))

    def warmup_s(self, rate: float, length_s: float) -> float:
        """Return how long a rate is to warm up of a length."""
        remembered_s = _REMEMBERED * self._remembers_s(self._load(rate))
        return min(max(_LEAST_WARMUP * self.service_s, remembered_s), _MOST_WARMUP * length_s)

    @property
    def service_s(self) -> float:
        return self._clients / self.per_s

    def learn(self, rate: float, margins_s: Sequence[float], per_s: Interval | None) -> None:
        """Take how long requests waited at a rate.

        Args:
            margins_s: by which they were within the objectives.
            per_s: requests/s while all slots were busy.
        """
        import numpy as np

        if per_s is not None:
            self._per_s = _both(self._per_s, per_s)
        margins = sorted(each for each in margins_s if math.isfinite(each))
        if not margins:
            return
        lowest_s = margins[int(MISSED_UP_TO * len(margins))]
        usual = sorted(self._margins_s)
        if lowest_s > usual[int(MISSED_UP_TO * len(usual))]:
            # In the closed loop, requests took longer than they do at a rate.
            self._margins_s = np.asarray(margins_s)
        load = self._load(rate)
        found = (
            6
            * _highest(
                lambda share: self._missed(load, math.exp(6 * share - 3), lowest_s) <= MISSED_UP_TO
            )
            - 3
        )
        # What a few requests show counts less than what is expected.
        chance = self.error(rate, len(margins_s)) / MISSED_UP_TO / 2
        self._queueing = math.exp(found * _MODEL_ERROR**2 / (_MODEL_ERROR**2 + chance**2))

    def _missed(self, load: float, queueing: float, from_s: float = 0.0) -> float:
        """Return the share of requests that wait longer than their margin, less ``from_s``.

        That requests wait at all, and how long, is Sakasegawa's approximation of the queue of
        several slots ("An Approximation Formula", 1977), with exponential waits.
        """
        import numpy as np

        waits = self._waiting(load)
        mean_s = queueing * (1 + self._spread) / 2 / self.per_s / (1 - load)
        spare_s = self._margins_s - from_s
        late = np.where(spare_s < 0, 1.0, waits * np.exp(-np.maximum(0.0, spare_s) / mean_s))
        return float(late.mean())

    def _waiting(self, load: float) -> float:
        """Return the share of requests that wait at all."""
        return math.pow(load, math.sqrt(2 * (self._clients + 1)) - 1)

    def _remembers_s(self, load: float) -> float:
        return correlation_s(load, self._clients, self.service_s, self._spread)

    def _load(self, rate: float) -> float:
        return min(rate / self.per_s, _MOST_LOAD)

    def _cautious(self, rate: float, requests: float) -> float:
        return self._load(rate * (1 + DEVIATIONS * math.sqrt(self._spread / max(1.0, requests))))

    @property
    def per_s(self) -> float:
        """Requests/s while all slots are busy."""
        return self._per_s.middle


def _both(one: Interval, other: Interval) -> Interval:
    """Return what two independent intervals of the same figure show together."""
    errors = [max(each.relative_error, 1e-6) for each in (one, other)]
    weights = [1 / error**2 for error in errors]
    middle = sum(map(operator.mul, weights, (one.middle, other.middle))) / sum(weights)
    error = 1 / math.sqrt(sum(weights))
    return Interval(low=middle * (1 - error), high=middle * (1 + error))


def _highest(holds: Callable[[float], bool]) -> float:
    """Return up to where something holds, between 0 and the highest load that is tried."""
    low, high = 0.0, _MOST_LOAD
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
