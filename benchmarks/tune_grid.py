"""Write a sweep as a grid that ``tune_replay.py`` replays: every run of every cell, token by token.

    python benchmarks/tune_grid.py SWEEP [SWEEP ...] PLAN.yaml FILE.json

SWEEP is a sweep's folder, and its runs lie in ``runs/`` beside its parent; of several sweeps of the
same command, each cell has the runs of all. PLAN.yaml is the plan file that they were made from:
options that list several values are what was varied.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from armload.analysis.run import Run
from armload.analysis.summary import token_times
from armload.bench.sweep import Sweep, SweepEntry
from armload.engines.plan import Plan
from armload.runs import store

ORDERED = {"threads", "micro_batch"}


def choices_of(plan: Plan) -> dict[str, str | int | None]:
    """Return a cell's choices, by the names of a plan file's options."""
    return {
        "threads": plan.threads,
        "micro_batch": plan.micro_batch_tokens,
        "kv_type": plan.kv_type,
        "flash_attention": plan.flash_attention,
        "engine_args": " ".join(plan.extra),
    }


def figures_of(run: Run) -> dict[str, Any]:
    """Return a run's times in seconds, or how it failed."""
    summary = run.summary
    if summary.prefill_s is None or not summary.prefill_tokens:
        return {"failed": run.exit.meaning.split(":")[0]}
    return {
        "prefill_s_per_token": rounded(summary.prefill_s / summary.prefill_tokens),
        "token_s": [rounded(each) for each in token_times(run.trace, run.steps)],
    }


def rounded(seconds: float) -> float:
    """Keep four figures, which is finer than a token's time differs from the next one's."""
    return float(f"{seconds:.4g}")


def grid_of(folders: Sequence[Path], plan: dict[str, Any]) -> dict[str, Any]:
    """Return the grid of whole sweeps of the same command."""
    sweep, *others = (
        Sweep.model_validate_json((folder / "sweep.json").read_bytes()) for folder in folders
    )
    assert all(other.fingerprint == sweep.fingerprint for other in others)
    runs = defaultdict(list)
    for folder in folders:
        for line in (folder / "journal.jsonl").read_text().splitlines():
            entry = SweepEntry.model_validate_json(line)
            run = store.load(folder.parent.parent / "runs" / entry.run)
            runs[entry.cell].append(figures_of(run))
    return {
        "recorded_utc": sweep.started_utc,
        "command": "armload bench --plan PLAN.yaml",
        "plan": plan,
        "parameters": [
            {"name": name, "choices": choices, "is_ordered": name in ORDERED}
            for name, choices in plan.items()
            if isinstance(choices, list)
        ],
        "cells": [
            {"choices": choices_of(cell.plan), "runs": runs[number]}
            for number, cell in enumerate(sweep.cells)
        ],
    }


def main() -> None:
    """Read sweeps and write a grid, a line for each cell."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("sweeps", type=Path, nargs="+")
    arguments.add_argument("plan", type=Path)
    arguments.add_argument("grid", type=Path)
    chosen = arguments.parse_args()
    grid = grid_of(chosen.sweeps, yaml.safe_load(chosen.plan.read_text()))
    cells = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in grid.pop("cells"))
    head = json.dumps(grid, indent=1).removesuffix("\n}")
    chosen.grid.write_text(f'{head},\n "cells": [\n{cells}\n]}}\n')
    print(f"{chosen.grid}: {chosen.grid.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
