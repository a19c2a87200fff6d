"""Multiple choice by likelihood, as lm-evaluation-harness computes it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from armload.evaluation.question import LETTERS, Question
from armload.evaluation.results import grade_choices


def asked(*choices: str, right: str = "A") -> Question:
    return Question(id="1", fields={}, expected=right, choices=choices)


def test_the_norm_divides_by_the_characters_of_the_choice_without_the_delimiter() -> None:
    # Per character -1.65 and -1.7; with the delimiter -1.1 and -0.85.
    found = grade_choices(asked("no", "I", right="A"), [-3.3, -1.7])
    assert (found.chosen, found.chosen_norm) == ("B", "A")
    assert (found.acc, found.acc_norm) == (False, True)


def test_characters_are_counted_not_bytes() -> None:
    found = grade_choices(asked("ää", "abc"), [-2.0, -2.9])
    assert found.chosen_norm == "B"


def test_of_equal_choices_the_first_counts() -> None:
    found = grade_choices(asked("ab", "cd", right="B"), [-2.0, -2.0])
    assert (found.chosen, found.chosen_norm, found.acc) == ("A", "A", False)


def test_an_impossible_choice_is_never_chosen() -> None:
    assert grade_choices(asked("ab", "cd"), [-math.inf, -900.0]).chosen == "B"


def test_it_agrees_with_the_harness_formula_on_random_figures() -> None:
    generator = np.random.default_rng(1)
    for _ in range(500):
        count = int(generator.integers(2, 6))
        choices = tuple("x" * int(length) for length in generator.integers(1, 9, count))
        sums = np.round(-generator.exponential(4, count), 1)
        found = grade_choices(asked(*choices), sums.tolist())
        lengths = np.array([float(len(choice)) for choice in choices])
        assert found.chosen == LETTERS[np.argmax(sums)]
        assert found.chosen_norm == LETTERS[np.argmax(sums / lengths)]


def test_a_missing_likelihood_is_refused() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        grade_choices(asked("ab", "cd"), [-1.0])
