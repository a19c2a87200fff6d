"""Intervals and tests of accuracies: published values, exact enumeration, coverage."""

from __future__ import annotations

import itertools

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


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((0, 54, 0, 0), 0.9061, 1),
        ((54, 0, 0, 0), -0.0664, 0.0664),
    ],
)
def test_a_difference_has_the_interval_of_newcombe_1998(
    table: tuple[int, int, int, int], low: float, high: float
) -> None:
    a, b = answers(*table)
    found = difference_of(a, b)
    assert found.difference == pytest.approx((table[1] - table[2]) / sum(table))
    assert (round(found.interval.low, 4), round(found.interval.high, 4)) == (low, high)
    mirrored = difference_of(b, a)
    assert (mirrored.interval.low, mirrored.interval.high) == pytest.approx((-high, -low), abs=1e-4)


def test_equal_answers_leave_a_difference_uncertain() -> None:
    for agreeing in (10, 6, 1):
        for right in range(agreeing + 1):
            found = difference_of(*answers(right, 0, 0, agreeing - right)).interval
            assert found.low < 0 < found.high
    all_differ = difference_of(*answers(0, 6, 0, 0)).interval
    assert all_differ.low < 0.6
    assert all_differ.high == 1


@pytest.mark.parametrize("questions", [6, 10, 20, 50, 200])
def test_the_interval_of_a_difference_covers_the_truth(questions: int) -> None:
    """Over systems from nearly always wrong to nearly always right, unrelated to nearly equal."""
    generator = np.random.default_rng(2)
    covered = []
    for _ in range(4000):
        share_a, share_b = generator.uniform(0.02, 0.98, 2)
        most = min(share_a, share_b)
        least = max(0.0, share_a + share_b - 1)
        both = share_a * share_b + generator.uniform(0, 0.98) * (most - share_a * share_b)
        assert both >= least
        cells = [both, share_a - both, share_b - both, 1 - share_a - share_b + both]
        counts = generator.multinomial(questions, np.clip(cells, 0, 1))
        found = difference_of(*answers(*counts.tolist())).interval
        covered.append(found.low <= share_a - share_b <= found.high)
    assert 0.94 < np.mean(covered) < 0.99
