"""Whatever a service answers: no error, no hang, no memory, and nothing wrong that looks right."""

from __future__ import annotations

import pytest

from tests.hostile_answers import HABITS, faults_of, hostile_answer

_SLOW = ("trickle", "silent", "continues", "late done")


@pytest.mark.parametrize("seed", [n for n, habit in enumerate(HABITS) if habit not in _SLOW])
def test_each_habit_of_a_service_is_seen_through(seed: int) -> None:
    assert faults_of(hostile_answer(seed)) == []


@pytest.mark.exhaustive(covers=["armload/serving", "armload/analysis/load"])
@pytest.mark.parametrize("first", range(1000, 1300, 50))
def test_answers_by_chance_are_seen_through(first: int) -> None:
    found = {seed: faults_of(hostile_answer(seed)) for seed in range(first, first + 50)}
    assert {seed: faults for seed, faults in found.items() if faults} == {}
