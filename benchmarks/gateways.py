"""What gateways add to a run, and what three boards behind two gateways do in the time of one.

    python benchmarks/gateways.py --model FILE.gguf [--few 6] [--many 60] [--rounds 2] [-n 50]

Boards are folders of this machine, whose engine sleeps for each token (see the module
``tests.sleeping_engine``), so that they do not compete for its cores. ``--few`` and ``--many`` are
the numbers of runs over three boards; one board does a third of each. The time of a run is the
difference of both sweeps' wall times by that of their numbers of runs, so that starting Python,
connecting and opening the boards count in neither. In each round, every kind of sweep has its turn;
the summary is of the medians over all rounds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from armload.core.progress import Silent
from armload.fleet.gateway import Gateway
from armload.fleet.gateways import Gateways
from armload.fleet.scheduler import scheduler_address
from tests.labs import Lab

GATEWAYS = {"hall": ("one", "two"), "cellar": ("three",)}
CALLS = 200

Kind = tuple[str, str]
"""By what boards are reached, and which."""


def wall_s(lab: Lab, board: str, words: Sequence[str], repeats: int) -> float:
    """Run a sweep and return how long the command took."""
    began_s = time.monotonic()
    lab.ann.types("bench", "--board", board, *words, "--repeats", str(repeats), "--new", "--json")
    return time.monotonic() - began_s


def call_s(lab: Lab) -> float:
    """Return the median time of a call of a gateway that does nothing there."""
    took_s = []
    with closing(Gateways(scheduler_address(lab.address), Silent())) as gateways:
        (worker,) = (each.address for each in gateways.workers() if "three" in each.boards)
        for _ in range(CALLS):
            began_s = time.monotonic()
            gateways.call(worker, Gateway.begun, "three", "none")
            took_s.append(time.monotonic() - began_s)
    return median(took_s)


def run_s(lab: Lab, kind: Kind, words: Sequence[str], few: int, many: int) -> float:
    """Return how long a run takes, and print it."""
    way, board = kind
    few_s, many_s = (wall_s(lab, board, words, repeats) for repeats in (few, many))
    a_run_s = (many_s - few_s) / (many - few)
    print(
        f"{way:8} {board:6} {few:3} runs {few_s:7.2f} s {many:3} runs {many_s:7.2f} s "
        f"{a_run_s:6.3f} s a run",
        flush=True,
    )
    return a_run_s


def summary(found: Mapping[Kind, Sequence[float]], a_call_s: float) -> list[str]:
    """Say what the medians of all rounds come to."""
    times = {kind: median(each) for kind, each in found.items()}
    one_s, one_by_dask_s = times["threads", "three"], times["Dask", "three"]
    lines = [f"A run on one board takes {one_s:.3f} s by threads, {one_by_dask_s:.3f} s by Dask."]
    lines += [f"Dask and the way home add {one_by_dask_s - one_s:.3f} s to a run."]
    lines += [f"A call of a gateway that does nothing takes {1000 * a_call_s:.1f} ms."]
    for way, alone_s in (("threads", one_s), ("Dask", one_by_dask_s)):
        together = alone_s / times[way, "@lab"]
        share = f"{together / 3:.0%} of three times"
        lines += [f"Three boards by {way} do {together:.2f} times as much as one: {share}."]
    return lines


def main() -> None:
    """Measure one board by threads and by Dask, and three boards by both."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=Path, required=True)
    arguments.add_argument("--few", type=int, default=6)
    arguments.add_argument("--many", type=int, default=60)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("-n", type=int, default=50)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(Path(name), GATEWAYS, sleeping=True)
        lab.start()
        try:
            engine = ("--model", str(chosen.model.absolute()), "-t", "1", "-n", str(chosen.n))
            kinds: Mapping[Kind, Sequence[str]] = {
                ("threads", "three"): engine,
                ("Dask", "three"): (*engine, "--scheduler", lab.address),
                ("threads", "@lab"): (*engine, "--share"),
                ("Dask", "@lab"): (*engine, "--share", "--scheduler", lab.address),
            }
            for (_, board), words in kinds.items():  # so that everything is there
                wall_s(lab, board, words, 3)
            found: dict[Kind, list[float]] = {kind: [] for kind in kinds}
            for _ in range(chosen.rounds):
                for kind, words in kinds.items():
                    share = 1 if kind[1] == "@lab" else 3
                    few, many = chosen.few // share, chosen.many // share
                    found[kind].append(run_s(lab, kind, words, few, many))
            print(*summary(found, call_s(lab)), sep="\n")
        finally:
            lab.stop()


if __name__ == "__main__":
    main()
