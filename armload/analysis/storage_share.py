"""How much of a step's time went into waiting for the storage."""

from __future__ import annotations

from collections.abc import Sequence

from armload.engines.trace import Step

SLOWEST_STORAGE_BYTES_PER_S = 50e6
FAULT_S = 200e-6
"""What one major fault waits for on a board's eMMC, at least."""

FAULT_BYTES = 128 << 10
"""What one major fault fetches of a mapped file: Linux's usual readahead window."""


def storage_rate(steps: Sequence[Step], known_bytes_per_s: int | None) -> float:
    """Return what storage gives, in bytes per second.

    Args:
        steps: with some wall time each; where the rate is not known, the quickest reading in them
            shows it.
        known_bytes_per_s: declared or measured.
    """
    seen = max((step.read_bytes or 0) / step.duration_s for step in steps)
    return known_bytes_per_s or max(SLOWEST_STORAGE_BYTES_PER_S, seen)


def storage_s(step: Step, bytes_per_s: float) -> float:
    """Return the seconds that a step waited for reading.

    That was timed where weights are streamed. Elsewhere it is estimated from the bytes that were
    read, or from the faults, where no bytes are counted.
    """
    if step.storage_wait_ns is not None:
        return step.storage_wait_ns / 1e9
    read_bytes = step.read_bytes
    if read_bytes is None:
        read_bytes = step.major_faults * FAULT_BYTES
    return max(read_bytes / bytes_per_s, step.major_faults * FAULT_S)


def compute_s(step: Step, bytes_per_s: float, threads: int) -> float:
    """Return the seconds of a step in which it did not wait for reading.

    An estimate is never below the CPU time of each thread: reading goes on while they compute.
    """
    rest = step.duration_s - storage_s(step, bytes_per_s)
    if step.storage_wait_ns is None:
        rest = max(rest, step.cpu_ns / 1e9 / threads)
    return min(max(0.0, rest), step.duration_s)
