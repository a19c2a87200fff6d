"""How simulated searches of ``bisect`` end, over the recorded times of real runs.

    python benchmarks/bisect_searches.py [--searches 500]

Each search has 40 commits, of which one drawn by lot is the first slow one, and the usual --slower
of 5%. A run takes the recorded time that follows on that of the run before it, times the slowdown
of its commit.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the tests' searches

from tests.simulated_bisection import recorded_times_s, searched

SLOWDOWNS = (0.06, 0.15, 0.0)
SHARES = (1.0, 0.5, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=500)
    searches = parser.parse_args().searches
    for share in SHARES:
        times_s = recorded_times_s(share)
        spread = statistics.stdev(map(math.log, times_s))
        for slowdown in SLOWDOWNS:
            ended = [searched(times_s, number, slowdown) for number in range(searches)]
            outcomes = Counter(each.outcome for each in ended)
            runs = statistics.median(each.runs for each in ended)
            counts = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
            print(f"runs differ by {spread:.1%}, {slowdown:.0%} slower: {counts}; {runs:.0f} runs")


if __name__ == "__main__":
    main()
