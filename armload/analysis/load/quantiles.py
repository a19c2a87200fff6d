"""Percentiles of latencies, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from armload.analysis.accuracy import wilson
from armload.analysis.statistics import COSINES, TAIL, Interval, long_run_variance, t_quantile
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FEWEST_INDEPENDENT = 20.0
"""Independent observations, of fewer of which there is no interval: those samples that seem long
enough by chance are those in which hardly anything queued..."""

FEWEST_BEYOND = 2.0
"""...nor of fewer beyond the percentile..."""

FEWEST_SAMPLES_BEYOND = 8
"""...nor of fewer samples there, dependent or not. An upper bound that has fewer beyond it is not
read from their ranks: the tail is taken to be exponential, as that of a queue is."""

WIDENED, _UNKNOWN_WIDENED, _UPPER_WIDENED = 0.75, 3.0, 7.0
"""By how much a bound is widened, divided by the observations beyond the percentile: in a sample
with too little congestion its variance is too low as well, most of all where nothing else is known
of that variance. An upper bound is widened at least by the third, divided by all observations.
Fitted to simulated queues, as all that follows."""

_MEMORY = ((0.5, 0.84), (0.9, 1.55), (0.99, 2.1))
"""Of each percentile: how long the waits beyond it remember, compared with the whole queue."""

_SMOOTHED = 1.5
"""A request's own time blurs which waits are beyond a percentile, so that what is left remembers
longer."""

_MOST_WAITS = 2048

_COSINES, DEGREES = 16, 60
"""Of the variance where the theory of queues says what it is at least."""


@dataclass(frozen=True, kw_only=True)
class QueueWaits:
    """What latencies owe to a queue: each is a wait and the request's own time.

    Attributes:
        waits_s: until each request began in a slot.
        own_s: the rest of each.
        remembered: requests that come while the queue remembers how long it was.
    """

    waits_s: Sequence[float] | Floats
    own_s: Sequence[float] | Floats
    remembered: float

    def effect(self, share: float) -> float:
        """Return how many times that of independent samples the variance of a share is."""
        import numpy as np

        own_s, total_s, waits_s = self._ordered
        limit_s = float(total_s[max(0, math.ceil(share * len(total_s)) - 1)])
        if not math.isfinite(limit_s):
            return share_effect(share, self.remembered, 1.0)
        # Own times that are all alike must not fall on both sides of the limit by rounding.
        left_s = limit_s - waits_s + 1e-9 * abs(limit_s)
        below = np.searchsorted(own_s, left_s, side="right") / len(own_s)
        return share_effect(share, self.remembered, float(below.var()) / (share * (1 - share)))

    @cached_property
    def _ordered(self) -> tuple[Floats, Floats, Floats]:
        """Own times and whole ones in ascending order, and enough waits for their variance."""
        import numpy as np

        waits_s, own_s = np.asarray(self.waits_s), np.asarray(self.own_s)
        apart = math.ceil(len(waits_s) / _MOST_WAITS)
        return np.sort(own_s), np.sort(waits_s + own_s), waits_s[::apart]


def share_effect(share: float, remembered: float, waiting: float) -> float:
    """Return how many times that of independent samples the variance of a share is.

    Args:
        remembered: requests that come while the queue remembers how long it was.
        waiting: how much of the variance the waits explain.
    """
    import numpy as np

    shares, memories = zip(*_MEMORY, strict=True)
    memory = max(1.0, float(np.interp(share, shares, memories)) * remembered)
    return 1 + min(1.0, _SMOOTHED * waiting) * (memory - 1)


def reach_above(errors: float, share: float, independent: float, widened: float = WIDENED) -> float:
    """Return how far a percentile's upper bound is above it, in means of what is beyond it.

    What is beyond it is known up to a factor, not a sum, where the observations are few.

    Args:
        errors: of the share of the samples below it, times how many of them are allowed for.
        independent: observations.
    """
    wider = max(widened / (1 - share), _UPPER_WIDENED) / independent
    reach = errors / (1 - share) * (1 + wider)
    return reach + reach**2 / 2


class Quantile(Value):
    """A percentile, in seconds.

    Attributes:
        value_s: such that so many of the samples are not above it.
        low_s, high_s: where that of the service lies with 95% confidence; none where there are
            too few independent samples to say.
    """

    value_s: float
    low_s: float | None
    high_s: float | None


USUAL = (50.0, 90.0, 99.0)
"""Percentiles that are always computed, the lowest first."""

SHOWN = (USUAL[0], USUAL[-1])
"""Of the usual ones, those in the tables of a load and in sentences about it."""


def percentile_name(percentile: float) -> str:
    """Return what a percentile is called: ``p50``, ``p99.9``."""
    return f"p{percentile:g}"


class Distribution(Value):
    """Samples in short, in seconds.

    Attributes:
        percentiles: ``p50``, ``p90``, ``p99``, and those that were chosen, the lowest first.
    """

    count: int
    mean_s: float
    std_s: float
    percentiles: dict[str, Quantile]
    max_s: float

    @property
    def median(self) -> Quantile:
        return self.percentiles["p50"]

    @property
    def p90(self) -> Quantile:
        return self.percentiles["p90"]

    @property
    def p99(self) -> Quantile:
        return self.percentiles["p99"]


def distribution(
    samples: Sequence[float],
    independent: float,
    waits: QueueWaits | None = None,
    chosen: Sequence[float] = (),
) -> Distribution | None:
    """Summarise samples, given in the order of their requests; none of no samples.

    Args:
        independent: how many independent observations they are worth.
        waits: that they are made of; none where that is not known.
        chosen: percentiles besides the usual ones.
    """
    import numpy as np

    if not samples:
        return None
    series = _Series(samples, independent, waits)
    values = np.asarray(samples, dtype=float)
    return Distribution(
        count=len(samples),
        mean_s=float(values.mean()),
        std_s=float(values.std()),
        percentiles={
            percentile_name(each): series.quantile(each / 100) for each in sorted({*USUAL, *chosen})
        },
        max_s=max(samples),
    )


def quantile(
    samples: Sequence[float], share: float, independent: float, waits: QueueWaits | None = None
) -> Quantile:
    """Return a percentile with its interval.

    The value is the smallest sample that a share of the samples is not above. The share of the
    samples that lie below the service's own percentile is that share but for an error, which is
    estimated from the samples' long-run variance, and from the theory of queues where the waits
    are known; the interval lies between the samples of those ranks (Woodruff, "Confidence
    Intervals for Medians and Other Position Measures", 1952).

    Args:
        samples: in the order of their requests, at least one.
        share: 0.5 for the median.
        independent: how many independent observations the samples are worth.
        waits: that they are made of; none where that is not known.
    """
    return _Series(samples, independent, waits).quantile(share)


def highest(
    samples: Sequence[float],
    share: float,
    independent: float,
    level: float,
    waits: QueueWaits | None = None,
) -> float:
    """Return what a percentile exceeds with the probability ``level``; infinity if none can say."""
    found = _Tail(_Series(samples, independent, waits), share)
    return found.high(level) if found.is_enough and math.isfinite(found.value) else math.inf


def lowest(
    samples: Sequence[float],
    share: float,
    independent: float,
    level: float,
    waits: QueueWaits | None = None,
) -> float:
    """Return what a percentile is below with the probability ``level``; 0 if none can say."""
    found = _Tail(_Series(samples, independent, waits), share)
    low = found.low(level) if found.is_enough else None
    return 0.0 if low is None else low


def share_interval(holds: Sequence[bool], independent: float) -> Interval | None:
    """Return the interval of a share: Wilson's, for as many samples as are independent.

    Args:
        holds: whether each sample counts, in the order of their requests.
        independent: how many observations they are worth at least.
    """
    count = len(holds)
    if not count or independent < 1:
        return None
    share = sum(holds) / count
    variance = share * (1 - share)
    worth = independent
    if variance > 0:
        worth = min(float(count), count * variance / max(long_run_variance(holds), 1e-12))
    worth = max(1.0, min(float(count), worth))
    return wilson(share * worth, worth, t_quantile(1 - TAIL, COSINES))


class _Series:
    def __init__(
        self, samples: Sequence[float], independent: float, waits: QueueWaits | None
    ) -> None:
        import numpy as np

        self.values: Floats = np.asarray(samples, dtype=float)
        self.ordered: Floats = np.sort(self.values)
        self.independent = min(independent, float(len(self.values)))
        self.waits = waits

    def quantile(self, share: float) -> Quantile:
        found = _Tail(self, share)
        if not found.is_enough:
            return Quantile(value_s=found.value, low_s=None, high_s=None)
        return Quantile(value_s=found.value, low_s=found.low(TAIL), high_s=found.high(TAIL))


class _Tail:
    """The bounds of one percentile of a series."""

    def __init__(self, series: _Series, share: float) -> None:
        self._ordered, count = series.ordered, len(series.ordered)
        self._share = share
        self._place = max(0, math.ceil(share * count) - 1)
        self.value = float(self._ordered[self._place])
        self._independent = series.independent
        self._beyond = (1 - share) * series.independent
        self.is_enough = (
            series.independent >= FEWEST_INDEPENDENT
            and self._beyond >= FEWEST_BEYOND
            and (1 - share) * count >= FEWEST_SAMPLES_BEYOND
        )
        if not self.is_enough:
            return
        below, alone = (series.values <= self.value).astype(float), share * (1 - share)
        if series.waits is None:
            self._degrees, self._widened = COSINES, _UNKNOWN_WIDENED
            # The cosines may miss what little variance independent samples have.
            variance = max(long_run_variance(below), alone / 2)
        else:
            self._degrees, self._widened = DEGREES, WIDENED
            variance = max(long_run_variance(below, _COSINES), alone * series.waits.effect(share))
        self._error = math.sqrt(variance / count)

    def _errors(self, level: float) -> float:
        return t_quantile(1 - level, self._degrees) * self._error

    def low(self, level: float) -> float | None:
        rank = self._share - self._errors(level) * (1 + WIDENED / self._beyond)
        place = math.floor(rank * len(self._ordered)) - 1
        return float(self._ordered[place]) if place >= 0 else None

    def high(self, level: float) -> float:
        reach = reach_above(self._errors(level), self._share, self._independent, self._widened)
        count = len(self._ordered)
        beyond = (1 - self._share) * count * math.exp(-reach)
        if beyond >= FEWEST_SAMPLES_BEYOND:
            return float(self._ordered[count - 1 - math.floor(beyond)])
        above = self._ordered[self._place + 1 :] - self.value
        return self.value + float(above.mean()) * reach
