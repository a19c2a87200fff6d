"""Intervals and tests of accuracies: published values, exact enumeration, coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from armload.analysis.accuracy import accuracy_of, difference_of, mcnemar, wilson


@pytest.mark.parametrize(
    ("correct", "questions", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_values_of_newcombe_1998(
    correct: int, questions: int, low: float, high: float
) -> None:
    found = wilson(correct, questions)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    mirrored = wilson(questions - correct, questions)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))


@pytest.mark.parametrize("questions", [20, 200, 1319])
def test_wilson_covers_the_truth_in_about_95_of_100_draws(questions: int) -> None:
    intervals = [wilson(correct, questions) for correct in range(questions + 1)]
    low = np.array([each.low for each in intervals])
    high = np.array([each.high for each in intervals])
    generator = np.random.default_rng(1)
    truths = generator.uniform(0.02, 0.98, 40_000)
    drawn = generator.binomial(questions, truths)
    covered = np.mean((low[drawn] <= truths) & (truths <= high[drawn]))
    assert 0.945 < covered < 0.96


def test_an_accuracy_has_its_counts() -> None:
    found = accuracy_of([True, False, True, True])
    assert (found.correct, found.questions, found.share) == (3, 4, 0.75)
    assert found.interval == wilson(3, 4)


def answers(both: int, only_a: int, only_b: int, neither: int) -> tuple[list[bool], list[bool]]:
    a = [True] * (both + only_a) + [False] * (only_b + neither)
    b = [True] * both + [False] * only_a + [True] * only_b + [False] * neither
    return a, b


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (0, 6), (3, 3), (2, 7), (9, 1)])
def test_mcnemar_agrees_with_all_outcomes_counted(only_a: int, only_b: int) -> None:
    tosses = only_a + only_b
    outcomes = [sum(each) for each in itertools.product((0, 1), repeat=tosses)]
    extreme = sum(abs(2 * heads - tosses) >= abs(only_a - only_b) for heads in outcomes)
    found = mcnemar(*answers(5, only_a, only_b, 4))
    assert (found.only_a, found.only_b) == (only_a, only_b)
    assert found.p_value == pytest.approx(extreme / len(outcomes))


def test_mcnemar_gives_the_textbook_value_and_ignores_what_both_do() -> None:
    assert mcnemar(*answers(0, 5, 15, 0)).p_value == pytest.approx(0.041389, abs=1e-6)
    assert mcnemar(*answers(700, 15, 5, 300)).p_value == pytest.approx(0.041389, abs=1e-6)
    assert mcnemar(*answers(0, 0, 3000, 0)).p_value < 1e-300


def test_the_bootstrap_agrees_with_all_resamples_counted() -> None:
    a, b = answers(1, 3, 1, 1)
    each = np.array(a, dtype=int) - np.array(b, dtype=int)
    exact = [each[list(chosen)].mean() for chosen in itertools.product(range(6), repeat=6)]
    low, high = np.quantile(exact, [0.025, 0.975])
    found = difference_of(a, b)
    assert found.difference == pytest.approx(1 / 3)
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))


def test_the_bootstrap_is_paired_and_the_same_each_time() -> None:
    a, b = answers(500, 60, 40, 400)
    found = difference_of(a, b)
    deviation = math.sqrt((100 - 400 / 1000) / 1000) / math.sqrt(1000)
    assert found.interval.low == pytest.approx(0.02 - 1.96 * deviation, abs=0.002)
    assert found.interval.high == pytest.approx(0.02 + 1.96 * deviation, abs=0.002)
    assert difference_of(a, b) == found
