"""What the members of a group did during a run, on the clock of its steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from armload.core.values import Value

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


class ServerLoad(Value):
    """What an RPC server of a group computed with.

    Attributes:
        board: the member that it ran on.
        threads: of the server.
        samples: of its CPU time.
    """

    board: str
    threads: int
    samples: tuple[MemberSample, ...]


def computed_s(server: ServerLoad, from_s: float, to_s: float) -> float | None:
    """Return how long a server computed between two moments; none where samples do not tell."""
    cpu_s = cpu_between(server.samples, from_s, to_s)
    return None if cpu_s is None else cpu_s / server.threads
