"""Percentiles of latencies, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from armload.analysis.accuracy import wilson
from armload.analysis.statistics import (
    CONFIDENCE,
    COSINES,
    Interval,
    long_run_variance,
    t_quantile,
)
from armload.core.values import Value

FEWEST_INDEPENDENT = 16.0
"""Independent observations, of fewer of which there is no interval..."""

FEWEST_BEYOND = 2.2
"""...nor of fewer beyond the percentile..."""

FEWEST_SAMPLES_BEYOND = 8
"""...nor of fewer samples there, dependent or not."""

_FROM_RANKS = 0.7
"""Share of the tail up to which an upper bound is read from the samples' ranks. Beyond, the
samples are too few, and the tail is taken to be exponential, as that of a queue is."""

WIDENED, _LOW_WIDENED = 7.0, 0.5
"""By how much a bound is widened, divided by the observations beyond the percentile: in a sample
with too little congestion its variance is too low as well. Fitted to simulated queues."""


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
"""Percentiles that are always computed."""


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
    def p50(self) -> Quantile:
        return self.percentiles["p50"]

    @property
    def p99(self) -> Quantile:
        return self.percentiles["p99"]


def distribution(
    samples: Sequence[float], independent: float, chosen: Sequence[float] = ()
) -> Distribution | None:
    """Summarise samples, given in the order of their requests; none of no samples.

    Args:
        independent: how many independent observations they are worth.
        chosen: percentiles besides the usual ones.
    """
    if not samples:
        return None
    count = len(samples)
    mean = math.fsum(samples) / count
    spread = math.fsum((each - mean) ** 2 for each in samples) / count
    return Distribution(
        count=count,
        mean_s=mean,
        std_s=math.sqrt(spread),
        percentiles={
            percentile_name(each): quantile(samples, each / 100, independent)
            for each in sorted({*USUAL, *chosen})
        },
        max_s=max(samples),
    )


def quantile(samples: Sequence[float], share: float, independent: float) -> Quantile:
    """Return a percentile with its interval.

    The value is the smallest sample that a share of the samples is not above. The share of the
    samples that lie below the service's own percentile is that share but for an error that is
    estimated from the samples' long-run variance; the interval lies between the samples of those
    ranks (Woodruff, "Confidence Intervals for Medians and Other Position Measures", 1952).

    Args:
        samples: in the order of their requests, at least one.
        share: 0.5 for the median.
        independent: how many independent observations the samples are worth.
    """
    found = _Tail(samples, share, independent)
    level = (1 - CONFIDENCE) / 2
    if not found.is_enough:
        return Quantile(value_s=found.value, low_s=None, high_s=None)
    return Quantile(value_s=found.value, low_s=found.low(level), high_s=found.high(level))


def highest(samples: Sequence[float], share: float, independent: float, level: float) -> float:
    """Return what a percentile exceeds with the probability ``level``; infinity if none can say."""
    found = _Tail(samples, share, independent)
    return found.high(level) if found.is_enough and math.isfinite(found.value) else math.inf


def lowest(samples: Sequence[float], share: float, independent: float, level: float) -> float:
    """Return what a percentile is below with the probability ``level``; 0 if none can say."""
    found = _Tail(samples, share, independent)
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
    return wilson(share * worth, worth, t_quantile((1 + CONFIDENCE) / 2, COSINES))


class _Tail:
    """The bounds of one percentile of a series."""

    def __init__(self, samples: Sequence[float], share: float, independent: float) -> None:
        import numpy as np

        self._ordered = sorted(samples)
        self._share = share
        self.value = self._ordered[max(0, math.ceil(share * len(samples)) - 1)]
        self._beyond = (1 - share) * min(independent, float(len(samples)))
        self.is_enough = (
            independent >= FEWEST_INDEPENDENT
            and self._beyond >= FEWEST_BEYOND
            and (1 - share) * len(samples) >= FEWEST_SAMPLES_BEYOND
        )
        if self.is_enough:
            below = np.asarray(samples, dtype=float) <= self.value
            variance = long_run_variance(below.astype(float))
            # The cosines may miss what little variance independent samples have.
            self._error = math.sqrt(max(variance, share * (1 - share) / 2) / len(samples))

    def low(self, level: float) -> float | None:
        widened = 1 + _LOW_WIDENED / self._beyond
        rank = self._share - t_quantile(1 - level, COSINES) * self._error * widened
        place = math.floor(rank * len(self._ordered)) - 1
        return self._ordered[place] if place >= 0 else None

    def high(self, level: float) -> float:
        widened = 1 + WIDENED / self._beyond
        reach = t_quantile(1 - level, COSINES) * self._error * widened
        if reach <= _FROM_RANKS * (1 - self._share):
            place = math.ceil((self._share + reach) * len(self._ordered)) - 1
            return self._ordered[min(place, len(self._ordered) - 1)]
        above = [each - self.value for each in self._ordered if each > self.value]
        excess = math.fsum(above) / len(above) if above else 0.0
        return self.value + excess * reach / (1 - self._share)
