"""Simulated queues whose true figures are known, many at a time.

Requests come at random, wait in one line for a slot, and leave. The mean service time is 1 s where
all slots are busy, so a load of 0.7 is a rate of 0.7 times the slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Service = Literal["exponential", "log-normal", "constant", "batch"]
SERVICES: tuple[Service, ...] = ("exponential", "log-normal", "constant", "batch")

SIGMA = 0.8
"""Of the log-normal service times."""

SHARED = 0.7
"""Of a batch server's step: what it takes however many requests are in it, as for one that reads
all weights in each step."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What became of requests; a row for each seed, times in seconds."""

    scheduled_s: Floats
    slot_s: Floats
    end_s: Floats


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A service.

    Attributes:
        service: how its service times are distributed; of a ``batch`` server the lengths of
            answers are exponential, and its steps take longer the more requests are in them.
        slower: how many times as long each request takes.
    """

    service: Service
    slots: int
    slower: float = 1.0

    @property
    def capacity_per_s(self) -> float:
        return self.slots / self.slower

    def work(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        match self.service:
            case "log-normal":
                return generator.lognormal(-(SIGMA**2) / 2, SIGMA, shape)
            case "constant":
                return np.ones(shape)
            case _:
                return generator.exponential(1.0, shape)

    def serve(self, scheduled_s: Floats, work: Floats) -> Served:
        """Serve requests that come at given times, in order, and have given lengths."""
        taken = work * self.slower
        serve = _batches if self.service == "batch" else _slots
        slot_s, end_s = serve(scheduled_s, taken, self.slots)
        return Served(scheduled_s=scheduled_s, slot_s=slot_s, end_s=end_s)

    def loaded(
        self, rate: float, length_s: float, generator: np.random.Generator, seeds: int
    ) -> Served:
        """Put the service under load for at least so long, from when it is empty."""
        count = int(rate * length_s + 6 * (rate * length_s) ** 0.5) + 10
        gaps = generator.exponential(1 / rate, (seeds, count))
        return self.serve(np.cumsum(gaps, axis=1), self.work(generator, (seeds, count)))


def _slots(scheduled_s: Floats, work: Floats, slots: int) -> tuple[Floats, Floats]:
    seeds, count = scheduled_s.shape
    free_s = np.zeros((seeds, slots))
    rows = np.arange(seeds)
    starts, ends = np.empty((count, seeds)), np.empty((count, seeds))
    come, takes = np.ascontiguousarray(scheduled_s.T), np.ascontiguousarray(work.T)
    for number in range(count):
        slot = free_s.argmin(axis=1)
        start_s = np.maximum(come[number], free_s[rows, slot])
        end_s = start_s + takes[number]
        free_s[rows, slot] = end_s
        starts[number], ends[number] = start_s, end_s
    return starts.T.copy(), ends.T.copy()


def _batches(scheduled_s: Floats, work: Floats, slots: int) -> tuple[Floats, Floats]:
    seeds, count = scheduled_s.shape
    come = np.concatenate([scheduled_s, np.full((seeds, 1), np.inf)], axis=1)
    left = np.full((seeds, slots), np.inf)
    whose = np.zeros((seeds, slots), dtype=int)
    now_s = np.zeros(seeds)
    begun, arrived, done = (np.zeros(seeds, dtype=int) for _ in range(3))
    starts, ends = np.empty((seeds, count)), np.empty((seeds, count))
    rows = np.arange(seeds)
    while True:
        active = np.isfinite(left).sum(axis=1)
        # All slots busy, a request takes as long as its work; alone, the shared part of a step
        # is all its own.
        pace_s = (SHARED + (1 - SHARED) * active / slots) if slots > 1 else np.ones(seeds)
        slot = left.argmin(axis=1)
        leaves_s = now_s + left[rows, slot] * pace_s
        comes_s = come[rows, arrived]
        next_s = np.minimum(leaves_s, comes_s)
        live = np.isfinite(next_s)
        if not live.any():
            return starts, ends
        passed = np.where(live, (next_s - now_s) / pace_s, 0.0)
        left -= passed[:, None]
        now_s = np.where(live, next_s, now_s)
        leaving = live & (leaves_s <= comes_s)
        at = rows[leaving]
        ends[at, whose[at, slot[at]]] = now_s[at]
        left[at, slot[at]] = np.inf
        done[at] += 1
        arrived[live & ~leaving] += 1
        waiting = np.flatnonzero((begun < arrived) & (np.isinf(left).any(axis=1)))
        if waiting.size:
            free = np.isinf(left[waiting]).argmax(axis=1)
            number = begun[waiting]
            left[waiting, free] = work[waiting, number]
            whose[waiting, free] = number
            starts[waiting, number] = now_s[waiting]
            begun[waiting] += 1
