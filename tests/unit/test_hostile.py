"""What hubs, tools, meters, boards and people's files may hold is taken for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.generator import impatient, tries
from tests.hostile.tries import outcome

SEED = 20261128


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_ENDPOINT", "")  # restored at the end
    with impatient():
        yield


def failures(seed: int, root: Path, each: int) -> list[str]:
    found = []
    for area, one in tries(seed, root, each):
        what, detail = outcome(one)
        if what != "right":
            found.append(f"{area}: {one.name}: {what}: {detail}")
    return found


def test_some_hostile_tries_of_each_area_do_no_harm(tmp_path: Path) -> None:
    assert failures(SEED, tmp_path, 8) == []


@pytest.mark.exhaustive(
    covers=["armload/boards", "armload/core", "armload/models", "deploy/board", "tests/hostile"]
)
def test_no_hostile_try_does_harm(tmp_path: Path) -> None:
    assert failures(SEED + 1, tmp_path, 70) == []


def test_a_seed_makes_the_same_tries(tmp_path: Path) -> None:
    first, second = (
        [(area, one.name, one.right) for area, one in tries(SEED, tmp_path, 40) if area != "probe"]
        for _ in range(2)
    )
    assert first == second
    assert len(first) == 6 * 40
