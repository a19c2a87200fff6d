"""How sure an accuracy, and the difference of two, can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.analysis.statistics import Interval, Z
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DRAWS = 2000
"""Resamples of a bootstrap."""

_SEED = 20260101


class Accuracy(Value):
    """How many questions were answered correctly.

    Attributes:
        correct, questions: counts.
        interval: of the share, by Wilson.
    """

    correct: int
    questions: int
    interval: Interval

    @property
    def share(self) -> float:
        """Of the questions that were answered correctly, from 0 to 1."""
        return self.correct / self.questions


class McNemar(Value):
    """An exact test of whether two systems differ on the same questions.

    Attributes:
        only_a, only_b: questions that one of them alone answered correctly.
        p_value: two-sided.
    """

    only_a: int
    only_b: int
    p_value: float


class Difference(Value):
    """By how much A's share of correct answers exceeds B's, from -1 to 1, with its interval."""

    difference: float
    interval: Interval


def accuracy_of(correct: Sequence[bool]) -> Accuracy:
    """Return the accuracy over at least one question."""
    count, questions = sum(correct), len(correct)
    return Accuracy(correct=count, questions=questions, interval=wilson(count, questions))


def wilson(correct: float, questions: float, deviations: float = Z) -> Interval:
    """Return the score interval of a share (Wilson 1927), for at least one question.

    It stays within 0 and 1 and holds for few questions, too, unlike the usual standard error.

    Args:
        deviations: half its width in standard deviations.
    """
    z2 = deviations**2
    share = correct / questions
    middle = share + z2 / (2 * questions)
    half = math.sqrt(z2 * (share * (1 - share) / questions + z2 / (4 * questions**2)))
    scale = 1 + z2 / questions
    # At both ends the formula gives exactly 0 and 1; arithmetic misses them by a hair.
    low = 0.0 if correct == 0 else (middle - half) / scale
    high = 1.0 if correct == questions else (middle + half) / scale
    return Interval(low=low, high=high)


def mcnemar(a: Sequence[bool], b: Sequence[bool]) -> McNemar:
    """Compare two systems, question by question.

    Without a difference, a question that only one of them gets right is as likely A's as B's, so
    the p-value is that of a fair coin (McNemar 1947, in its exact form).

    Args:
        a, b: whether each question was answered correctly, in the same order.
    """
    only_a = sum(one and not other for one, other in zip(a, b, strict=True))
    only_b = sum(other and not one for one, other in zip(a, b, strict=True))
    tosses = only_a + only_b
    tail = sum(math.comb(tosses, heads) for heads in range(min(only_a, only_b) + 1))
    return McNemar(only_a=only_a, only_b=only_b, p_value=min(1.0, 2 * tail / 2**tosses))


def difference_of(a: Sequence[bool], b: Sequence[bool]) -> Difference:
    """Return the difference of two shares, with a score interval for pairs.

    The interval is Newcombe's tenth (Statistics in Medicine 17, 1998, 2635-2650): both shares'
    Wilson intervals, combined by their correlation. It has a width even where both systems answer
    every question alike, and stays within -1 and 1.

    Args:
        a, b: whether each question was answered correctly, in the same order.
    """
    of_a, of_b = accuracy_of(a), accuracy_of(b)
    difference = (of_a.correct - of_b.correct) / of_a.questions
    phi = _correlation(a, b)
    below = _combined(of_a.share - of_a.interval.low, of_b.interval.high - of_b.share, phi)
    above = _combined(of_a.interval.high - of_a.share, of_b.share - of_b.interval.low, phi)
    return Difference(
        difference=difference,
        interval=Interval(low=max(-1.0, difference - below), high=min(1.0, difference + above)),
    )


def _combined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one**2 - 2 * phi * one * other + other**2))


def _correlation(a: Sequence[bool], b: Sequence[bool]) -> float:
    """Return the correlation of two rows of answers, corrected for continuity if positive."""
    questions = len(a)
    both = sum(one and other for one, other in zip(a, b, strict=True))
    right_a, right_b = sum(a), sum(b)
    # both * neither - only_a * only_b
    raw = both * (questions - right_a - right_b + both) - (right_a - both) * (right_b - both)
    product = max(0.0, raw - questions / 2) if raw > 0 else raw
    margins = right_a * (questions - right_a) * right_b * (questions - right_b)
    return product / math.sqrt(margins) if margins else 0.0


def drawn_counts(questions: int) -> npt.NDArray[np.float64]:
    """Return resamples of questions: a row for each, with how often it has each question.

    Equal numbers of questions give equal rows, so that whatever is computed from the same
    questions is paired. The counts are whole: sums of equal ones cancel out exactly.
    """
    import numpy as np

    even = np.full(questions, 1 / questions)
    drawn = np.random.default_rng(_SEED).multinomial(questions, even, DRAWS)
    return drawn.astype(float)
