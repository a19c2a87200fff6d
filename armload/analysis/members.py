"""What the members of a group did during a run, on the clock of its steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from armload.analysis.summary import generating
from armload.core.values import Value
from armload.engines.trace import Step, Trace

LEAST_SAMPLES = 3
"""Samples within a time from which a member's CPU time in it is known: they are a second apart."""


class ClockDifference(Value):
    """How to convert between a member's time since its boot and the clock of the run's steps.

    Attributes:
        ahead_s: what to subtract from the member's.
        error_s: it is known within this, to either side.
    """

    ahead_s: float
    error_s: float


class MemberSample(Value):
    """A member at one moment of a run.

    Attributes:
        at_s: on the clock of the run's steps.
        cpu_s: that its RPC server has had so far.
        celsius: of its hottest sensor; none where it has none.
    """

    at_s: float
    cpu_s: float
    celsius: float | None = None


def cpu_between(samples: Sequence[MemberSample], from_s: float, to_s: float) -> float | None:
    """Return the CPU time of a server between two moments; none where samples do not tell."""
    within = [sample for sample in samples if from_s <= sample.at_s <= to_s]
    if len(within) < LEAST_SAMPLES:
        return None
    return _cpu_at(samples, to_s) - _cpu_at(samples, from_s)


def _cpu_at(samples: Sequence[MemberSample], at_s: float) -> float:
    after = bisect_left(samples, at_s, key=lambda sample: sample.at_s)
    if after in (0, len(samples)):
        return samples[0 if after == 0 else -1].cpu_s
    one, other = samples[after - 1], samples[after]
    share = (at_s - one.at_s) / (other.at_s - one.at_s)
    return one.cpu_s + share * (other.cpu_s - one.cpu_s)


class NodeActivity(Value):
    """What a board that computed its part of every step did in a token's time.

    Attributes:
        computing_s: median of the time that it computed, without exchanging parts and waiting.
        cpu_share: of that time, that its threads had a CPU.
    """

    computing_s: float
    cpu_share: float

    @classmethod
    def of(cls, header: Trace | None, steps: Sequence[Step]) -> NodeActivity | None:
        """Return it from a board's own trace; none where that says nothing of others."""
        shared = [step for step in generating(steps) if step.sync_ns is not None]
        computed = [(step, step.duration_s - (step.sync_ns or 0) / 1e9) for step in shared]
        shares = [
            step.cpu_ns / 1e9 / (computing_s * header.threads)
            for step, computing_s in computed
            if header is not None and header.threads and computing_s > 0
        ]
        if not shares:
            return None
        computing_s = median(time_s for _, time_s in computed)
        return cls(computing_s=computing_s, cpu_share=min(1.0, median(shares)))


class ServerLoad(Value):
    """What computed for a group on a member.

    Attributes:
        board: the member.
        threads: that it computed with.
        samples: of its CPU time.
        node: what it did by its own trace; none where it wrote none.
    """

    board: str
    threads: int
    samples: tuple[MemberSample, ...]
    node: NodeActivity | None = None


def computed_s(server: ServerLoad, from_s: float, to_s: float) -> float | None:
    """Return how long a server computed between two moments; none where samples do not tell."""
    cpu_s = cpu_between(server.samples, from_s, to_s)
    return None if cpu_s is None else cpu_s / server.threads
