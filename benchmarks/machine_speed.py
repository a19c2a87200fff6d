"""How much the speed of this machine's CPU varies.

    python benchmarks/machine_speed.py [SECONDS]

The cores of a virtual machine are as fast as its neighbours let them be, and emulated boards with
them. Once a second, a fixed loop is timed, in CPU time, so that programs that take turns with it do
not count.
"""

from __future__ import annotations

import sys
import time
from statistics import median, quantiles

ROUNDS = 300_000


def loop_s() -> float:
    """Return the CPU time of the loop."""
    began_s, total = time.thread_time(), 0
    for number in range(ROUNDS):
        total += number
    return time.thread_time() - began_s


def main() -> None:
    """Time the loop for some time, and print how much it varies."""
    samples = []
    for _ in range(int(sys.argv[1]) if sys.argv[1:] else 60):
        samples.append(1000 * loop_s())
        time.sleep(1)
    tenths = quantiles(samples, n=10)
    print(
        f"{len(samples)} loops, ms of CPU time: median {median(samples):.1f}, a tenth below "
        f"{tenths[0]:.1f}, a tenth above {tenths[-1]:.1f}, longest {max(samples):.1f}"
    )


if __name__ == "__main__":
    main()
