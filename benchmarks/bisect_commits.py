"""Searches of ``bisect`` for a slow commit among real builds of llama.cpp on this machine.

    python benchmarks/bisect_commits.py [--commits 40] [--slower 6,15,0] [--model smollm2] [-n 32]

Makes a git repository of llama.cpp for each slowdown, of so many commits from the pinned source,
one of which, drawn by lot, makes every decode step wait for so many percent of the median time per
token that a run takes. Then ``bisect`` searches, with its default of 5%. Run it while
nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from typed import armload, typed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the tests' repository

from tests.llama_commits import LlamaRepository


def token_s(folder: Path, how: list[str]) -> float:
    """Return the median time per token of a run of the pinned source."""
    words = ("bench", *how, "--repeats", "1", "--new", "--json")
    run: dict[str, Any] = json.loads(armload(folder, *words))
    return float(run["summary"]["token_s"]["p50"])


def search(folder: Path, how: list[str], commits: int, slower: float, seed: int) -> None:
    """Search in a repository of its own, and print what came of it."""
    slow = random.Random(seed).randrange(1, commits) if slower else None
    delay_us = round(slower * token_s(folder, how) * 1e6) if slower else 0
    lab = LlamaRepository(folder / f"llama.cpp-{seed}", commits, slow=slow, delay_us=delay_us)
    ends = ("--source", str(lab.folder), "--good", lab.commits[0], "--bad", "main")
    began_s = time.monotonic()
    done = typed(folder, "bisect", *how, *ends, "--json")
    took_min = (time.monotonic() - began_s) / 60
    print(f"{commits} commits, {slower:.0%} ({delay_us} us a token): ", end="")
    if done.returncode:
        print(f"status {done.returncode}, {took_min:.1f} min: {done.stderr.strip()[-400:]}")
        return
    found = json.loads(done.stdout)["found"]
    builds = len({each["commit"] for each in found["judged"]} | {lab.commits[0], lab.commits[-1]})
    numbers = [lab.commits.index(each) for each in found["commits"]]
    ratio = found["ratio"]
    print(
        f"slow from {slow}, found {numbers}, {builds} builds, {found['runs']} runs, "
        f"{took_min:.1f} min, ratio {json.dumps(ratio)}, confirmed {found['is_confirmed']}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=40)
    parser.add_argument("--slower", default="6,15,0", help="percent, of one search each")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("-n", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "boards").mkdir()
        own = f"extends: this-machine\nworkdir: {folder / 'board'}\n"
        (folder / "boards" / "own.yaml").write_text(own)
        how = ["--board", "own", "--model", given.model, "-n", str(given.n), "--threads", "1"]
        for number, percent in enumerate(given.slower.split(",")):
            search(folder, how, given.commits, float(percent) / 100, given.seed + number)


if __name__ == "__main__":
    main()
