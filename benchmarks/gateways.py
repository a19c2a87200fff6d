"""What Dask adds to a run, and what three boards behind two gateways do in the time of one.

    python benchmarks/gateways.py --model FILE.gguf [--few 6] [--many 36] [-n 50]

Boards are folders of this machine, whose engine sleeps for each token (see the module
``tests.sleeping_engine``), so that they do not compete for its cores. The time of a run is the
difference of two sweeps' wall times by that of their numbers of runs, so that starting Python,
connecting and opening the boards count in neither.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.labs import Lab

GATEWAYS = {"hall": ("one", "two"), "cellar": ("three",)}


def wall_s(lab: Lab, board: str, words: Sequence[str], repeats: int) -> float:
    """Run a sweep and return how long the command took."""
    began_s = time.monotonic()
    lab.ann.types("bench", "--board", board, *words, "--repeats", str(repeats), "--new", "--json")
    return time.monotonic() - began_s


def main() -> None:
    """Measure one board by threads and by Dask, and three boards by both."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=Path, required=True)
    arguments.add_argument("--few", type=int, default=6)
    arguments.add_argument("--many", type=int, default=36)
    arguments.add_argument("-n", type=int, default=50)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(Path(name), GATEWAYS, sleeping=True)
        lab.start()
        try:
            engine = ("--model", str(chosen.model.absolute()), "-t", "1", "-n", str(chosen.n))
            ways = {
                ("threads", "three"): engine,
                ("Dask", "three"): (*engine, "--scheduler", lab.address),
                ("threads", "@lab"): (*engine, "--share"),
                ("Dask", "@lab"): (*engine, "--share", "--scheduler", lab.address),
            }
            for (way, board), words in ways.items():  # so that everything is there
                wall_s(lab, board, words, 3)
                print(f"ready: {way} {board}", flush=True)
            for (way, board), words in ways.items():
                few_s, many_s = (wall_s(lab, board, words, n) for n in (chosen.few, chosen.many))
                a_run_s = (many_s - few_s) / (chosen.many - chosen.few)
                print(f"{way:8} {board:6} {few_s:7.2f} s {many_s:7.2f} s {a_run_s:6.3f} s a run")
        finally:
            lab.stop()


if __name__ == "__main__":
    main()
