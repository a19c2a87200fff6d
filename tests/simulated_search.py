"""The search for the highest rate, on a simulated queue instead of a service."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from armload.analysis.load.evidence import Evidence
from armload.analysis.load.queue_model import SaturatedRun
from armload.analysis.load.rate_search import Attempt, RateSearch, probed_per_client
from armload.analysis.load.records import RateVerdict
from armload.analysis.load.steady import ServedTimes, steady, waits_in
from armload.analysis.statistics import Interval
from tests.queues import SHARED, Floats, Queue

PROMPT_SHARE = 0.2
"""Of a request's time in its slot, until the first token."""


@dataclass(frozen=True, kw_only=True)
class Found:
    sustained: float | None
    refuted: float
    spent_s: float
    rates: tuple[float, ...]


def search(queue: Queue, limit_s: float, budget_s: float, generator: np.random.Generator) -> Found:
    """Search with an objective on the time to the first token."""
    loop, probed_s = _closed(queue, limit_s, budget_s, generator)
    found = RateSearch(loop, budget_s - probed_s)
    spent_s, rates = probed_s, []
    while (attempt := found.next()) is not None:
        verdict, evidence, took_s = _tried(queue, found, attempt, limit_s, generator)
        spent_s += took_s
        rates.append(attempt.rate)
        found.done(attempt, verdict, evidence, took_s)
    return Found(
        sustained=found.sustained, refuted=found.refuted, spent_s=spent_s, rates=tuple(rates)
    )


def highest_rate(queue: Queue, limit_s: float, generator: np.random.Generator) -> float:
    """Return the rate at which nine of ten requests have their first token in time."""
    low, high = 0.0, queue.capacity_per_s
    gaps = generator.exponential(1.0, (400, 2500 * queue.slots))
    work = queue.work(generator, gaps.shape)
    for _ in range(9):
        rate = (low + high) / 2
        served = queue.serve(np.cumsum(gaps, axis=1) / rate, work)
        first_s = _first_s(served.slot_s, served.end_s) - served.scheduled_s
        late = first_s[:, gaps.shape[1] // 3 :] > limit_s
        low, high = (rate, high) if late.mean() <= 0.1 else (low, rate)
    return (low + high) / 2


def _first_s(slot_s: Floats, end_s: Floats) -> Floats:
    return slot_s + PROMPT_SHARE * (end_s - slot_s)


def _closed(
    queue: Queue, limit_s: float, budget_s: float, generator: np.random.Generator
) -> tuple[SaturatedRun, float]:
    count = probed_per_client(queue.slots, budget_s / queue.slower) * queue.slots
    work = queue.work(generator, (count,)) * queue.slower
    free_s = [0.0] * queue.slots
    ends = []
    for each in work:
        end_s = heapq.heappop(free_s) + each
        heapq.heappush(free_s, end_s)
        ends.append(end_s)
    last_s = min(free_s)
    answered = sum(end_s <= last_s for end_s in ends)
    spread = float(work.var() / work.mean() ** 2)
    error = 1.96 * math.sqrt(max(spread, 1 / answered) / answered)
    per_s = answered / last_s
    return SaturatedRun(
        clients=queue.slots,
        per_s=Interval(low=per_s * (1 - error), high=per_s * (1 + error)),
        spread=spread,
        margins_s=tuple(limit_s - PROMPT_SHARE * each for each in work.tolist()),
    ), max(ends)


def _tried(
    queue: Queue,
    found: RateSearch,
    attempt: Attempt,
    limit_s: float,
    generator: np.random.Generator,
) -> tuple[RateVerdict, Evidence | None, float]:
    looks_s = attempt.looks_s()
    count = int(attempt.rate * looks_s[-1] + 5 * math.sqrt(attempt.rate * looks_s[-1])) + 10
    scheduled_s = np.cumsum(generator.exponential(1 / attempt.rate, count))
    work = queue.work(generator, (count,)) * queue.slower
    slot_s, end_s = _served(queue, scheduled_s, work)
    evidence = None
    for number, now_s in enumerate(looks_s):
        evidence = _seen(queue, attempt, scheduled_s, slot_s, end_s, limit_s, now_s)
        if evidence is not None and (verdict := found.look(attempt, number, evidence)) is not None:
            return verdict, evidence, now_s
    return "undecided", evidence, looks_s[-1]


def _seen(
    queue: Queue,
    attempt: Attempt,
    scheduled_s: Floats,
    slot_s: Floats,
    end_s: Floats,
    limit_s: float,
    now_s: float,
) -> Evidence | None:
    measured = (scheduled_s >= attempt.warmup_s) & (scheduled_s <= now_s)
    due_s, begun_s, ends_s = scheduled_s[measured], slot_s[measured], end_s[measured]
    is_open = ends_s > now_s
    if (~is_open).sum() < 2:
        return None
    known = int(is_open.argmax()) if is_open.any() else len(due_s)
    first_s = (_first_s(begun_s, ends_s) - due_s)[:known]
    if known < 2:
        return None
    times = ServedTimes.model_construct(
        scheduled_s=tuple(due_s.tolist()),
        slot_s=tuple(np.where(is_open, np.inf, begun_s).tolist()),
        end_s=tuple(np.where(is_open, np.inf, ends_s).tolist()),
    )
    found = steady(times, attempt.rate, queue.slots)
    margins_s = (limit_s - first_s).tolist()
    return Evidence(
        severities=(first_s / limit_s).tolist(),
        margins_s=margins_s,
        waits=waits_in(margins_s, (begun_s - due_s)[:known].tolist(), found.remembered),
        steady=found,
    )


def _served(queue: Queue, scheduled_s: Floats, work: Floats) -> tuple[Floats, Floats]:
    if queue.service == "batch" and queue.slots > 1:
        return _batch(scheduled_s.tolist(), work.tolist(), queue.slots)
    free_s = [0.0] * queue.slots
    starts, ends = [], []
    for due_s, takes_s in zip(scheduled_s.tolist(), work.tolist(), strict=True):
        start_s = max(due_s, free_s[0])
        heapq.heapreplace(free_s, start_s + takes_s)
        starts.append(start_s)
        ends.append(start_s + takes_s)
    return np.array(starts), np.array(ends)


def _batch(scheduled_s: list[float], work: list[float], slots: int) -> tuple[Floats, Floats]:
    # Work is done at the same pace for all in a batch, so the order of their ends is known.
    done, now_s, begun, count = 0.0, 0.0, 0, len(work)
    starts, ends = [0.0] * count, [0.0] * count
    batch: list[tuple[float, int]] = []
    arrived = 0
    while arrived < count or batch:
        pace = SHARED + (1 - SHARED) * len(batch) / slots
        leaves_s = now_s + (batch[0][0] - done) * pace if batch else math.inf
        comes_s = scheduled_s[arrived] if arrived < count else math.inf
        if leaves_s <= comes_s:
            done = batch[0][0]
            now_s = leaves_s
            ends[heapq.heappop(batch)[1]] = now_s
        else:
            done += (comes_s - now_s) / pace
            now_s = comes_s
            arrived += 1
        if begun < arrived and len(batch) < slots:
            starts[begun] = now_s
            heapq.heappush(batch, (done + work[begun], begun))
            begun += 1
    return np.array(starts), np.array(ends)
