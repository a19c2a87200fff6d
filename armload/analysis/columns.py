"""What the trace's columns say of a step: waiting for storage, core frequency, share of the CPU."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from armload.analysis.summary import generating
from armload.boards.conditions import Conditions
from armload.core.cpu_sets import cpu_numbers
from armload.engines.trace import Step, Trace, wall_time_s

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


LOWER_FREQUENCY = 0.95
"""Share of the highest frequency below which a core, or a device, counts as slowed down."""


def is_lowered(frequency: float, highest: float) -> bool:
    """Tell whether a frequency counts as lowered beside the highest one; 0 is unknown."""
    return 0 < frequency < LOWER_FREQUENCY * highest


@dataclass(frozen=True, kw_only=True)
class Cores:
    """The cores of a run.

    Attributes:
        reporting: numbers of those whose frequencies a step holds, in its order.
        allowed: numbers of those that the program could use; none for all.
    """

    reporting: tuple[int, ...]
    allowed: frozenset[int] | None

    def khz(self, step: Step) -> int:
        """Return the frequency of the fastest core that the program could use; 0 for unknown."""
        return max(step.cpu_khz, default=0) if self.allowed is None else self.of(self.allowed, step)

    def of(self, cores: Collection[int], step: Step) -> int:
        """Return the frequency of the fastest of some cores; 0 where none of them reports one."""
        known = zip(self.reporting, step.cpu_khz, strict=False)
        return max((khz for number, khz in known if number in cores), default=0)


ANY = Cores(reporting=(), allowed=None)
"""Where nothing is known of them."""


def cores_of(header: Trace | None, before: Conditions, cpus: str | None) -> Cores:
    """Return the cores of a run.

    An older trace does not say whose frequencies it holds. They are those of the first cores that
    report one: of as many as the program could use, because musl counts the cores so.

    Args:
        cpus: the cores that the program was to be kept to; none for all.
    """
    reporting = tuple(
        sorted(
            core
            for cluster in before.clusters
            if cluster.khz is not None or cluster.max_khz is not None
            for core in cluster.cores
        )
    )
    allowed = cpus
    if header is not None and header.khz_cores is not None:
        reporting = cpu_numbers(header.khz_cores) if header.khz_cores else ()
        allowed = header.allowed_cores or cpus
    return Cores(
        reporting=reporting,
        allowed=None if allowed is None else frozenset(cpu_numbers(allowed)),
    )


def without_storage(steps: Sequence[Step]) -> list[Step]:
    """Return the generating steps that read no storage: others are slow for another reason."""
    return _quiet(generating(steps))


def prompt_without_storage(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that read the prompt and no storage, of a run that did no more."""
    return [] if generating(steps) else _quiet(steps)


def _quiet(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not step.read_bytes and not step.major_faults]


def busy_share(steps: Sequence[Step], threads: int) -> float:
    """Return the share of the wall time of some steps that the threads ran, on average.

    Args:
        steps: with some wall time.
    """
    wall_s = wall_time_s(steps)
    return sum(step.cpu_ns for step in steps) / 1e9 / (wall_s * threads)


def switches_per_token(steps: Sequence[Step]) -> float:
    """Return how many times per token a thread had to give way; at least one step."""
    switches = sum(step.involuntary_switches or 0 for step in steps)
    return switches / sum(step.output_tokens for step in steps)
