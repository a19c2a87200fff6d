"""How near the search of ``tune`` comes to the best cell of a recorded grid, beside random search.

    python benchmarks/tune_replay.py [GRID.json ...] [--replays 10] [--share 0.25]

Every trial takes one of the cell's recorded runs, each only once until none is left; the shortest
trials see the first half of its tokens. A trial of any length counts as a run. A quarter of two
runs of each cell may be used, however many were recorded. Random search takes the runs of that many
random cells, or of all cells again and again, and chooses the lowest cost. What a cell is worth is
the median of its runs.

Without a grid it replays both that lie in ``grids/``; ``tune_grid.py`` writes others.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armload.tuning.search import Search
from armload.tuning.space import Choice, Parameter, Setting, Space
from armload.tuning.trial import Outcome, Trial

GRIDS = Path(__file__).parent / "grids"
OBJECTIVES = ("decode", "prefill")
NEAR = 0.95
RUNGS = 2

Key = tuple[tuple[str, Choice], ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A recorded grid.

    Attributes:
        runs: of each cell, with times or how they failed.
        defaults: all cores, and what llama.cpp does on its own.
    """

    space: Space
    runs: dict[Key, list[dict[str, Any]]]

    @property
    def total(self) -> int:
        """How many runs were recorded."""
        return sum(map(len, self.runs.values()))


class Replay:
    """Gives the outcomes of trials from a grid's runs.

    Args:
        objective: whose cost it gives.
        seed: for which of a cell's runs comes first.
    """

    def __init__(self, grid: Grid, objective: str, seed: int) -> None:
        self._grid, self._objective = grid, objective
        self._generator = random.Random(seed)
        self._left: dict[Key, list[dict[str, Any]]] = {}

    def outcome(self, trial: Trial) -> Outcome:
        """Return what a run of the cell gave."""
        left = self._left.setdefault(trial.setting.key, [])
        if not left:
            runs = self._grid.runs[trial.setting.key]
            left += self._generator.sample(runs, len(runs))
        run = left.pop()
        if "failed" in run:
            return Outcome(status="failed", reason=run["failed"])
        if self._objective == "prefill":
            return Outcome(status="measured", cost=run["prefill_s_per_token"])
        times = run["token_s"]
        if trial.rung == 0:
            times = times[: len(times) // 2]
        return Outcome(status="measured", cost=statistics.median(times), samples=tuple(times))


def read(path: Path) -> Grid:
    """Read a grid."""
    content = json.loads(path.read_text())
    parameters = tuple(Parameter.model_validate(each) for each in content["parameters"])
    defaults = {
        "threads": max(content["plan"]["threads"]),
        "kv_type": "f16",
        "flash_attention": "on",
        "micro_batch": max(content["plan"]["micro_batch"]),
        "engine_args": "",
    }
    return Grid(
        space=Space(parameters=parameters, defaults=Setting(choices=defaults)),
        runs={Setting(choices=cell["choices"]).key: cell["runs"] for cell in content["cells"]},
    )


def speeds_of(grid: Grid, objective: str) -> dict[Key, float]:
    """Return each cell's speed as a share of the best cell's; 0 for one that fails."""
    costs = {}
    for key, runs in grid.runs.items():
        if objective == "prefill":
            each = [run["prefill_s_per_token"] for run in runs if "failed" not in run]
        else:
            each = [statistics.median(run["token_s"]) for run in runs if "failed" not in run]
        if len(each) == len(runs):
            costs[key] = statistics.median(each)
    best = min(costs.values())
    return {key: best / costs[key] if key in costs else 0.0 for key in grid.runs}


def searched(grid: Grid, objective: str, seed: int, budget: int) -> tuple[Setting, int, float]:
    """Return what the search found, after how many trials, and its own time for each of them."""
    replay = Replay(grid, objective, seed)
    search = Search(grid.space, seed=seed, most_trials=budget, rungs=RUNGS)
    start, trials = time.perf_counter(), 0
    while (trial := search.ask()) is not None:
        search.tell(trial, replay.outcome(trial))
        trials += 1
    leader = search.state.leader
    assert leader is not None
    return leader.setting, trials, (time.perf_counter() - start) / trials


def by_chance(grid: Grid, objective: str, seed: int, budget: int) -> Setting:
    """Return what random search found."""
    replay, generator = Replay(grid, objective, seed), random.Random(f"cells {seed}")
    cells: list[Key] = []
    while len(cells) < budget:
        cells += generator.sample(list(grid.runs), len(grid.runs))
    tried = [Setting(choices=dict(key)) for key in cells[:budget]]
    outcomes = [
        (replay.outcome(Trial(number=number, setting=setting, rung=1)).cost, setting)
        for number, setting in enumerate(tried)
    ]
    _, found = min(
        ((cost, setting) for cost, setting in outcomes if cost is not None),
        key=lambda pair: pair[0],
    )
    return found


def line(name: str, shares: Sequence[float]) -> str:
    """Write how near replays came to the best cell."""
    near = sum(share >= NEAR for share in shares)
    return (
        f"  {name:7} {near} of {len(shares)} reach {NEAR:.0%} of the best speed; "
        f"median {statistics.median(shares):.3f}, lowest {min(shares):.3f}"
    )


def main() -> None:
    """Replay every grid for both objectives."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("grids", type=Path, nargs="*")
    arguments.add_argument("--replays", type=int, default=10)
    arguments.add_argument("--share", type=float, default=0.25)
    chosen = arguments.parse_args()
    for path in chosen.grids or sorted(GRIDS.glob("*.json")):
        grid = read(path)
        budget = int(min(grid.total, 2 * len(grid.runs)) * chosen.share)
        print(f"{path.name}: {len(grid.runs)} cells, {grid.total} runs, {budget} may be used")
        for objective in OBJECTIVES:
            speeds = speeds_of(grid, objective)
            found = [searched(grid, objective, seed, budget) for seed in range(chosen.replays)]
            random_ones = [
                speeds[by_chance(grid, objective, seed, budget).key]
                for seed in range(chosen.replays)
            ]
            near = sum(speed >= NEAR for speed in speeds.values())
            print(f" {objective}: {near} cells reach {NEAR:.0%} of the best cell's speed")
            print(line("search", [speeds[setting.key] for setting, _, _ in found]))
            print(line("random", random_ones))
            trials = [trials for _, trials, _ in found]
            own_s = statistics.median(own_s for _, _, own_s in found)
            print(f"  trials {min(trials)} to {max(trials)}; own time for each {own_s:.3f} s")


if __name__ == "__main__":
    main()
