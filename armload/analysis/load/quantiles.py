"""Percentiles of latencies, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from armload.analysis.statistics import CONFIDENCE
from armload.core.values import Value

_MOST_ALIKE = 0.95
"""Beyond this the correlation of neighbours cannot be told from a trend."""


class Quantile(Value):
    """A percentile, in seconds.

    Attributes:
        value_s: such that so many of the samples are not above it.
        low_s, high_s: where that of the service lies with 95% confidence; none where there are
            too few samples to say.
    """

    value_s: float
    low_s: float | None
    high_s: float | None


class Distribution(Value):
    """Samples in short, in seconds."""

    count: int
    mean_s: float
    std_s: float
    p50: Quantile
    p90: Quantile
    p99: Quantile
    max_s: float


def distribution(samples: Sequence[float]) -> Distribution | None:
    """Summarise samples, given in the order of their requests; none of no samples."""
    if not samples:
        return None
    count = len(samples)
    mean = math.fsum(samples) / count
    spread = math.fsum((each - mean) ** 2 for each in samples) / count
    return Distribution(
        count=count,
        mean_s=mean,
        std_s=math.sqrt(spread),
        p50=quantile(samples, 0.5),
        p90=quantile(samples, 0.9),
        p99=quantile(samples, 0.99),
        max_s=max(samples),
    )


def quantile(samples: Sequence[float], share: float) -> Quantile:
    """Return a percentile with its interval.

    The value is the smallest sample that a share of the samples is not above. The interval has
    no assumption on the distribution: it lies between the samples whose ranks a binomial
    count would reach, as for independent samples. Requests that queue are alike, so as many
    independent ones are assumed as have the same variance (Woodruff, "Confidence Intervals for
    Medians and Other Position Measures", 1952, with the design effect of an autocorrelation).

    Args:
        samples: in the order of their requests, at least one.
        share: 0.5 for the median.
    """
    ordered = sorted(samples)
    count = len(ordered)
    value = ordered[max(0, math.ceil(share * count) - 1)]
    below = [each <= value for each in samples]
    independent = max(1, round(count / design_effect(below)))
    low, high = _ranks(independent, share)
    scale = count / independent
    return Quantile(
        value_s=value,
        low_s=None if low is None else ordered[max(0, math.ceil(low * scale) - 1)],
        high_s=None if high is None else ordered[min(count, math.ceil(high * scale)) - 1],
    )


def design_effect(below: Sequence[bool]) -> float:
    """Return by how much a share's variance exceeds that of independent samples.

    It is that of a series whose correlation falls by the same factor with each step.

    Args:
        below: whether each sample counts into the share, in the order of their requests.
    """
    share = sum(below) / len(below)
    variance = share * (1 - share)
    if variance == 0 or len(below) < 3:
        return 1.0
    together = math.fsum((a - share) * (b - share) for a, b in pairwise(below)) / (len(below) - 1)
    alike = min(_MOST_ALIKE, max(0.0, together / variance))
    return (1 + alike) / (1 - alike)


@lru_cache(maxsize=256)
def _ranks(count: int, share: float) -> tuple[int | None, int | None]:
    # The samples of rank low and high (from 1) enclose the percentile unless fewer than low, or
    # at least high, of the samples are below it.
    tail = (1 - CONFIDENCE) / 2
    below = 0.0
    low = high = None
    for successes in range(count + 1):
        log_probability = (
            math.lgamma(count + 1)
            - math.lgamma(successes + 1)
            - math.lgamma(count - successes + 1)
            + successes * math.log(share)
            + (count - successes) * math.log1p(-share)
        )
        below += math.exp(log_probability)  # P(at most so many samples are below it)
        if below <= tail:
            low = successes + 1
        if below >= 1 - tail and successes < count:
            high = successes + 1
            break
    return low, high
