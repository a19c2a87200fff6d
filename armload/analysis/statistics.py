"""How sure a median, and the ratio of two, can be: bootstrap intervals.

Every interval is drawn with the same seed, so the same samples always give the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Any, Literal

from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""Of every interval."""

TAIL = (1 - CONFIDENCE) / 2
"""Probability that the true value lies below an interval, or above it."""

Z = NormalDist().inv_cdf(1 - TAIL)
"""Standard deviations on each side of the mean that hold 95% of a normal distribution."""

FEWEST_TOKENS = 8
"""The spread of fewer cannot be estimated."""

FEWEST_RUNS = 4
"""Of each side. All of four lie by chance below all of four others in 1 of 35 draws; of three
and three in 1 of 10, so three could not be told apart with 95% confidence by any method."""

RUN_TO_RUN = 0.05
"""Assumed variation between repeated runs, where no repeats show it."""

COSINES = 8
"""Degrees of freedom of a long-run variance."""

_QUARTERS = 4
_FEWEST_TOKENS_A_QUARTER = 8

_SEED = 20260101
_DRAWS = 2000
_MOST_DRAWN = 2048
"""Samples that blocks are drawn from, 2,000 times: an evaluation has a million tokens."""

_MOST_SUMMED = 1024
_LONGEST_TREND = 256
_DETECTION = 0.8


class Interval(Value):
    """Where the true value lies with 95% confidence."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def relative_error(self) -> float:
        """Half of its width, as a share of its middle."""
        return (self.high - self.low) / (self.high + self.low)


RatioFinding = Literal["faster", "slower", "not significant"]


class Ratio(Value):
    """How many times as long B takes as A.

    Attributes:
        ratio: of the medians.
        low, high: its confidence interval.
        unit: what was drawn from: whole ``runs``; or ``tokens``, where the runs are too few, or
            ``requests`` of a load: then the interval is widened by what differs from run to
            run. ``none``: there is but one figure each, and that allowance is all of the
            interval; of fewer than four tokens it holds 1 in any case.
    """

    ratio: float
    low: float
    high: float
    unit: Literal["runs", "tokens", "requests", "none"]

    @property
    def finding(self) -> RatioFinding:
        """What the interval says of B."""
        if self.low > 1:
            return "slower"
        return "faster" if self.high < 1 else "not significant"


def percentile_interval(drawn: Floats, tail: float = TAIL) -> Interval:
    """Return the interval of resampled figures, without a tail on each side."""
    import numpy as np

    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high))


def median_interval(times: Sequence[float]) -> Interval | None:
    """Return the interval of a run's median time per token; none for fewer than 8 tokens.

    Neighbouring tokens are alike, so blocks of them are drawn, not single ones (circular block
    bootstrap, Politis and Romano 1992). That tokens get slower as the context grows is no doubt
    about the median: a straight trend (Theil and Sen) is taken out first.
    """
    import numpy as np

    if len(times) < FEWEST_TOKENS:
        return None
    samples = np.asarray(times, dtype=float)
    middle = float(np.median(samples))
    samples = _condensed(samples)
    flat = samples - _trend(samples)
    found = percentile_interval(np.median(flat[_blocks(len(flat))], axis=1))
    shift = middle - float(np.median(flat))
    return Interval(low=found.low + shift, high=found.high + shift)


def interval_of_runs(figures: Sequence[float]) -> Interval | None:
    """Return the interval of the median over repeated runs; none for fewer than 4."""
    import numpy as np

    if len(figures) < FEWEST_RUNS:
        return None
    drawn = _drawn_medians(np.asarray(figures, dtype=float), np.random.default_rng(_SEED))
    return percentile_interval(drawn, _expanded_tail(len(figures)))


def interval_of_few(figures: Sequence[float], rows_s: Iterable[Sequence[float]] = ()) -> Interval:
    """Return the interval of the median over any number of runs, one of them included.

    Fewer than four runs say nothing of what differs between runs: then the interval is as far as
    that usually goes, as in a comparison, and wider by what a run itself leaves in doubt.

    Args:
        figures: one positive figure per run, at least one.
        rows_s: the times of each run's tokens, which tell that.
    """
    interval = interval_of_runs(figures)
    if interval is not None:
        return interval
    usual = ratio_of_runs([1.0], figures)
    own = max(map(own_doubt, rows_s), default=1.0)
    return Interval(low=usual.low / own, high=usual.high * own)


def runs_for_precision(figures: Sequence[float], share: float) -> int:
    """Return about how many runs it takes to know their median within a share of it."""
    found = interval_of_runs(figures)
    return FEWEST_RUNS if found is None else _count_to_know(len(figures), found, share)


def ratio_of_runs(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Compare two sides of which each run gave one figure, such as seconds to the first token.

    Args:
        a: one positive figure per run, at least one.
    """
    import numpy as np

    one, other = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    ratio = float(np.median(other) / np.median(one))
    if min(len(a), len(b)) < FEWEST_RUNS:
        allowance = _allowance(one, other)
        return Ratio(ratio=ratio, low=ratio / allowance, high=ratio * allowance, unit="none")
    generator = np.random.default_rng(_SEED)
    drawn = _drawn_medians(other, generator) / _drawn_medians(one, generator)
    found = percentile_interval(drawn, _expanded_tail(min(len(a), len(b))))
    return Ratio(ratio=ratio, low=found.low, high=found.high, unit="runs")


def ratio_of_tokens(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Ratio:
    """Compare two sides by the time of every output token.

    A side's figure is the median over its runs of each run's median, over those tokens that all
    runs have. With at least four runs a side, runs are drawn. With fewer, blocks of token
    numbers are drawn, the same ones on both sides, which takes the growing context out; what
    changed in the course of a run may as well differ from one run to the next, and widens the
    interval. Fewer than eight tokens are too few to draw from: then the interval reaches from the
    quickest token of one side to the slowest of the other, since all of four or more lie by
    chance below all others as rarely as four runs do.

    Args:
        a: one row of times in order per run, at least one row, none of them empty.
    """
    import numpy as np

    drift = max(map(_drift, (*a, *b)))
    length = min(len(row) for row in (*a, *b))
    one = np.array([row[:length] for row in a], dtype=float)
    other = np.array([row[:length] for row in b], dtype=float)
    one_each, other_each = np.median(one, axis=1), np.median(other, axis=1)
    of_runs = ratio_of_runs(one_each.tolist(), other_each.tolist())
    if of_runs.unit == "runs":
        return of_runs
    allowance = max(_allowance(one_each, other_each), drift)
    if length < FEWEST_TOKENS:
        low = float(other.min() / one.max()) / allowance
        high = float(other.max() / one.min()) * allowance
        if length < FEWEST_RUNS:
            low, high = min(low, 1.0), max(high, 1.0)
        unit: Literal["tokens", "none"] = "none" if length < FEWEST_RUNS else "tokens"
        return Ratio(ratio=of_runs.ratio, low=low, high=high, unit=unit)
    one, other = _condensed(one), _condensed(other)
    positions = _blocks(one.shape[1])
    found = percentile_interval(_medians_at(other, positions) / _medians_at(one, positions))
    return Ratio(
        ratio=of_runs.ratio,
        low=found.low / allowance,
        high=found.high * allowance,
        unit="tokens",
    )


def lower_bound(ratio: Ratio, runs: int, tail: float) -> float:
    """Return what the true ratio lies below with a given probability, for a small one.

    Resampling cannot tell: it never leaves the range of the samples, and all of four runs are
    slower by chance than all of four others in 1 of 70 draws. So the interval reaches as much
    farther as one from Student's t would; where an allowance stands in for the variation between
    runs, as one from the normal distribution. The interval over requests is one from Student's t
    and a constant allowance.

    Args:
        runs: on the side that has fewer.
        tail: the probability; ``TAIL`` gives the interval's own bound.
    """
    if ratio.unit == "requests":
        farther = t_quantile(1 - tail, COSINES) / t_quantile(1 - TAIL, COSINES)
        own = ratio.low * (1 + RUN_TO_RUN) / ratio.ratio
        return ratio.ratio * math.pow(own, farther) / (1 + RUN_TO_RUN)
    if ratio.unit == "runs":
        farther = t_quantile(1 - tail, runs - 1) / t_quantile(1 - TAIL, runs - 1)
    else:
        farther = NormalDist().inv_cdf(1 - tail) / Z
    return ratio.ratio * math.pow(ratio.low / ratio.ratio, farther)


def surely_above(limit: float, lower_bounds: Sequence[Callable[[float], float]]) -> list[int]:
    """Return which figures lie above a limit, with ``TAIL`` as the probability of any error.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979).

    Args:
        lower_bounds: of each figure, what it lies below with a given probability.
    """
    left, found = list(range(len(lower_bounds))), list[int]()
    while left:
        above = [each for each in left if lower_bounds[each](TAIL / len(left)) > limit]
        if not above:
            break
        found += above
        left = [each for each in left if each not in above]
    return sorted(found)


def own_doubt(times: Sequence[float]) -> float:
    """Return how many times as high or low a run's median may lie, by its own tokens alone."""
    known = median_interval(times)
    middle = median(times)
    low, high = (known.low, known.high) if known else (min(times), max(times))
    if low <= 0:  # the trend that was taken out is steep
        low = min(times)
    return max(high / middle, middle / low)


def spread_of(runs: Sequence[float]) -> float:
    """Return the relative spread of repeated runs: standard deviation over mean."""
    import numpy as np

    return float(np.std(runs, ddof=1) / np.mean(runs)) if len(runs) > 1 else 0.0


def runs_to_detect(share: float, spread: float) -> int:
    """Return how many runs a side it takes to see a difference four times out of five.

    From the normal approximation of a median's error, sqrt(pi / 2) times that of a mean.

    Args:
        share: the difference, 0.03 for 3%.
        spread: of repeated runs, as ``spread_of`` gives it.
    """
    width = Z + NormalDist().inv_cdf(_DETECTION)
    return max(FEWEST_RUNS, math.ceil(math.pi * (spread * width / math.log1p(share)) ** 2))


def tokens_for_precision(times: Sequence[float], share: float) -> int:
    """Return about how many tokens it takes to know their median within a share of it."""
    found = median_interval(times)
    return FEWEST_TOKENS if found is None else _count_to_know(len(times), found, share)


def _count_to_know(count: int, found: Interval, share: float) -> int:
    return max(count, math.ceil(count * (found.relative_error / share) ** 2))


def long_run_variance(samples: Sequence[float] | Floats, cosines: int = COSINES) -> float:
    """Return the variance of the samples' mean, times their count, though neighbours are alike.

    It is the mean square of the projections on some slow cosines, and has as many degrees of
    freedom. It needs no length of blocks, and what remains of the dependence costs
    less than with batch means (Lazarus, Lewis, Stock and Watson, "HAR Inference: Recommendations
    for Practice", 2018).
    """
    import numpy as np

    values = np.asarray(samples, dtype=float)
    count = len(values)
    # Over a thousandth of the samples, the slow cosines hardly change.
    edges = np.linspace(0, count, min(count, _MOST_SUMMED) + 1).astype(int)
    sums = np.add.reduceat(values, edges[:-1])
    phases = np.pi / 2 / count * (edges[:-1] + edges[1:])
    waves = np.cos(np.arange(1, cosines + 1)[:, None] * phases) @ sums
    return float((waves**2).sum()) * 2 / count / cosines


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t with whole degrees of freedom, for 0.5 or more.

    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4, give the
    probability of -t to t as a finite sum in the angle whose tangent is t / sqrt(degrees).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _t_central(angle, degrees) < 2 * probability - 1:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(low)


def _t_central(angle: float, degrees: int) -> float:
    odd = degrees % 2
    total, term = 0.0, math.cos(angle) if odd else 1.0
    for factor in range(2 + odd, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (factor - 1) / factor
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def _expanded_tail(runs: int) -> float:
    # A bootstrap of few samples is too narrow: it lacks Student's t and n / (n - 1). Hesterberg,
    # "What Teachers Should Know About the Bootstrap" (2015), section 4.3, puts them back so.
    t = t_quantile(1 - TAIL, runs - 1)
    return NormalDist().cdf(-math.sqrt(runs / (runs - 1)) * t)


def _allowance(a: Floats, b: Floats) -> float:
    seen = max(float(max(side) / min(side)) for side in (a, b))
    return max(1 + RUN_TO_RUN, seen)


def _drift(times: Sequence[float]) -> float:
    """Return how many times as slow as its quickest quarter a run's slowest one was."""
    import numpy as np

    if len(times) < _QUARTERS * _FEWEST_TOKENS_A_QUARTER:
        return 1.0
    samples = np.asarray(times, dtype=float)
    flat = samples - _trend(samples) + np.median(samples)
    quarters = [float(np.median(each)) for each in np.array_split(flat, _QUARTERS)]
    return max(quarters) / min(quarters) if min(quarters) > 0 else math.inf


def _drawn_medians(runs: Floats, generator: np.random.Generator) -> Floats:
    import numpy as np

    drawn: Floats = np.median(runs[generator.integers(0, len(runs), (_DRAWS, len(runs)))], axis=1)
    return drawn


def _medians_at(rows: Floats, positions: npt.NDArray[Any]) -> Floats:
    import numpy as np

    each = np.stack([np.median(row[positions], axis=1) for row in rows])
    drawn: Floats = np.median(each, axis=0)
    return drawn


def _condensed(rows: Floats) -> Floats:
    """Return the medians of neighbours along the last axis, where there are too many to draw from.

    An odd number of neighbours is taken: then half of their medians lie below the median of all.
    """
    import numpy as np

    size = math.ceil(rows.shape[-1] / _MOST_DRAWN) // 2 * 2 + 1
    if size == 1:
        return rows
    count = rows.shape[-1] // size
    found: Floats = np.median(
        rows[..., : count * size].reshape(*rows.shape[:-1], count, size), axis=-1
    )
    return found


def _blocks(length: int) -> npt.NDArray[Any]:
    """Draw rows of token numbers, in blocks of the square root of their count, end to end."""
    import numpy as np

    block = math.ceil(math.sqrt(length))
    starts = np.random.default_rng(_SEED).integers(0, length, (_DRAWS, -(-length // block)))
    rows = (starts[:, :, None] + np.arange(block)) % length
    taken: npt.NDArray[Any] = rows.reshape(_DRAWS, -1)[:, :length]
    return taken


def _trend(samples: Floats) -> Floats:
    import numpy as np

    taken = np.unique(np.linspace(0, len(samples) - 1, _LONGEST_TREND).round().astype(int))
    first, second = np.triu_indices(len(taken), k=1)
    rises = samples[taken[second]] - samples[taken[first]]
    slope = float(np.median(rises / (taken[second] - taken[first])))
    places: Floats = slope * (np.arange(len(samples)) - (len(samples) - 1) / 2) + np.median(samples)
    return places
