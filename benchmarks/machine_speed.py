"""How fast this machine's CPU is while something else runs.

    python benchmarks/machine_speed.py [SECONDS]

A virtual machine's cores may be as fast as its neighbours let them be: the same loop then takes
half as long again for some seconds or minutes. What runs on an emulated board is slowed down with
it, and no forecast from an earlier moment can know.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from statistics import median, quantiles

_ROUNDS = 300_000
_PAUSE_S = 1.0


def loop_s() -> float:
    """Return the CPU time of a fixed loop; programs that take turns with it do not count."""
    began_s, total = time.thread_time(), 0
    for number in range(_ROUNDS):
        total += number
    return time.thread_time() - began_s


@contextlib.contextmanager
def sampled() -> Iterator[list[float]]:
    """Time the loop about once a second within the block; it takes some 2% of a core."""
    ended, samples = threading.Event(), [loop_s()]

    def sample() -> None:
        while not ended.wait(_PAUSE_S):
            samples.append(loop_s())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def main() -> None:
    """Sample for some time, and print how much the loop's time varies."""
    with sampled() as samples:
        time.sleep(float(sys.argv[1]) if sys.argv[1:] else 60)
    tenths = quantiles(samples, n=10)
    print(
        f"{len(samples)} samples: median {median(samples) * 1000:.1f} ms of CPU time, a tenth "
        f"below {tenths[0] * 1000:.1f}, a tenth above {tenths[-1] * 1000:.1f}, longest "
        f"{max(samples) * 1000:.1f}"
    )


if __name__ == "__main__":
    main()
