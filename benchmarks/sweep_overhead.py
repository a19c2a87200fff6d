"""What a sweep adds to the engine's own time, per run, when everything is on the board.

    python benchmarks/sweep_overhead.py [--board this-machine] [--model demo] [--runs 12]

The first, unmeasured command sees to it that the board is up and holds everything. Then a sweep of
two cells runs; from its wall time those of the engine's processes, start to last token, are taken.
The remainder, Python's start and the connecting included, is divided by the runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from armload.core.workspace import runs_folder
from armload.runs import store

ARMLOAD = str(Path(sys.executable).parent / "armload")


def main() -> None:
    """Run the sweep and print its parts."""
    parser = argparse.ArgumentParser(description="Measure what a sweep adds.")
    parser.add_argument("--board", default="this-machine")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--runs", type=int, default=12)
    chosen = parser.parse_args()
    bench = [ARMLOAD, "bench", "--board", chosen.board, "--model", chosen.model, "--json"]
    subprocess.run([*bench, "-n", "4"], check=True, capture_output=True)
    start = time.perf_counter()
    done = subprocess.run(
        [*bench, "-n", "4,8", "--repeats", str(chosen.runs // 2), "--new"],
        check=True,
        capture_output=True,
        text=True,
    )
    whole_s = time.perf_counter() - start
    ids = [run for cell in json.loads(done.stdout)["cells"] for run in cell["runs"]]
    runs = [store.load(runs_folder() / each) for each in ids]
    engine_s = sum(run.summary.wall_s or 0.0 for run in runs)
    print(f"{'whole command':28} {whole_s:7.3f} s, {len(runs)} runs")
    print(f"{'the engine, all runs':28} {engine_s:7.3f} s")
    print(f"{'armload adds, per run':28} {(whole_s - engine_s) / len(runs):7.3f} s")


if __name__ == "__main__":
    main()
