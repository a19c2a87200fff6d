"""What a growing list of figures shows, where one may look after each and stop at any time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Literal

from armload.analysis.statistics import CONFIDENCE, Interval, Ratio

_SPENDS_FROM = 2


def rank(runs: int, error: float = 1 - CONFIDENCE) -> int:
    """Return which figure from below and from above bounds the median after so many runs.

    0 means that there is no interval yet. The number of figures below the true median is a
    random walk with equal steps, whatever their distribution. Each rank is the largest for which
    the probability that the walk has left any interval up to here stays within what may be spent
    up to here, the error times (1 - 2 / runs). So the intervals of all numbers of runs hold
    together, and one may stop at any of them: a confidence sequence for the median (Darling and
    Robbins 1967), with error spending (Lan and DeMets 1983), computed exactly instead of by an
    inequality.
    """
    return _ranks(error).after(runs)


@cache
def _ranks(error: float) -> _Ranks:
    return _Ranks(error)


class _Ranks:
    """The ranks for one error, each computed once, from those before it."""

    def __init__(self, error: float) -> None:
        self._error = error
        self._ranks = [0]
        # The probability of each number of figures below the median, never outside.
        self._walks = [1.0]

    def after(self, runs: int) -> int:
        while len(self._ranks) <= runs:
            count = len(self._ranks)
            one_more = zip([0.0, *self._walks], [*self._walks, 0.0], strict=True)
            walks = [(one + other) / 2 for one, other in one_more]
            spent = self._error * max(0.0, 1 - _SPENDS_FROM / count)
            chosen = next(
                place
                for place in range(min(self._ranks[-1] + 1, count // 2), -1, -1)
                if place == 0 or 1 - math.fsum(walks[place : count - place + 1]) <= spent
            )
            self._ranks.append(chosen)
            self._walks = [
                chance if chosen <= below <= count - chosen else 0.0
                for below, chance in enumerate(walks)
            ]
        return self._ranks[runs]


FEWEST_FIGURES = next(count for count in range(1, 100) if rank(count))
"""Of fewer runs there is no interval."""


def interval_of_figures(figures: Sequence[float], error: float = 1 - CONFIDENCE) -> Interval | None:
    """Return the interval of the median over runs; none for too few."""
    place = rank(len(figures), error)
    if place == 0:
        return None
    ranked = sorted(figures)
    return Interval(low=ranked[place - 1], high=ranked[-place])


def decide(shifts: Sequence[float], error: float) -> Literal["above", "below"] | None:
    """Return on which side of 0 the median lies; none where that is not known yet.

    Args:
        error: the probability that one of all answers to a growing list is wrong.
    """
    # Of the two ends of an interval, only one can lie on the wrong side.
    found = interval_of_figures(shifts, 2 * error)
    if found is None:
        return None
    if found.low > 0:
        return "above"
    return "below" if found.high < 0 else None


def ratio_of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return how many times as long the second of each pair takes, at any time that one stops."""
    logs = [math.log(b / a) for a, b in pairs]
    middle, found = math.exp(median(logs)), interval_of_figures(logs)
    if found is None:
        return Ratio(ratio=middle, low=0.0, high=math.inf, unit="none")
    return Ratio(ratio=middle, low=math.exp(found.low), high=math.exp(found.high), unit="runs")
