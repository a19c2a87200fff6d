"""On recorded grids the search comes near the best cell with a quarter of the runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GRIDS = sorted((ROOT / "benchmarks" / "grids").glob("*.json"))


@pytest.mark.exhaustive(covers=["armload/tuning", "benchmarks"])
@pytest.mark.parametrize("grid", GRIDS, ids=[grid.stem for grid in GRIDS])
def test_nine_of_ten_replays_reach_95_percent_of_the_best_and_more_than_random_search(
    grid: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "tune_replay.py"), str(grid)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    reached = {
        name: [int(count) for count in re.findall(rf"{name} +(\d+) of 10 reach", done.stdout)]
        for name in ("search", "random")
    }
    assert len(reached["search"]) == len(reached["random"]) == 2, done.stdout
    assert min(reached["search"]) >= 9, done.stdout
    assert all(
        search > random for search, random in zip(reached["search"], reached["random"], strict=True)
    ), done.stdout
