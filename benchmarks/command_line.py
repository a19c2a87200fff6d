"""What armload adds: to a shell's prompt, and to the engine's own wall time.

    python benchmarks/command_line.py [--board virtual] [--repeats 7]

Prints medians. The board must be up and hold engine and model; the first, unmeasured bench
sees to that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent


def wall_s(words: list[str]) -> tuple[float, str]:
    """Run a command and return its wall time and standard output."""
    start = time.perf_counter()
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, done.stdout


def main() -> None:
    """Measure the commands interleaved, so that a slow moment meets all of them."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--board", default="virtual")
    arguments.add_argument("--repeats", type=int, default=7)
    chosen = arguments.parse_args()
    quick = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "armload --help": [str(BIN / "armload"), "--help"],
        "invoke --list": [str(BIN / "invoke"), "--list"],
    }
    bench = [str(BIN / "armload"), "bench", "--board", chosen.board, "-n", "16", "--json"]
    wall_s(bench)
    times: dict[str, list[float]] = {name: [] for name in quick}
    added: list[float] = []
    engine: list[float] = []
    for _ in range(chosen.repeats):
        for name, words in quick.items():
            times[name].append(wall_s(words)[0])
        took, output = wall_s(bench)
        engine_s = json.loads(output)["summary"]["wall_s"]
        engine.append(engine_s)
        added.append(took - engine_s)
    for name, samples in times.items():
        print(f"{name:16} {statistics.median(samples):6.3f} s (max {max(samples):.3f})")
    print(f"{'engine itself':16} {statistics.median(engine):6.3f} s (process start to last token)")
    print(f"{'bench adds':16} {statistics.median(added):6.3f} s (max {max(added):.3f})")


if __name__ == "__main__":
    main()
