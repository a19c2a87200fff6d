"""How often what is said of a load is true, on simulated queues whose truth is known.

    python benchmarks/load_statistics.py [intervals overload search compare] [--seeds N]
        [--services exponential log-normal constant batch]

Each part prints its cells and what is pooled. The seeds are fixed; those of the tests are others.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the tests' queues

from armload.analysis.load.comparison import REPEATS, ratio_of_repeats
from armload.analysis.load.quantiles import QueueWaits, distribution
from armload.analysis.load.steady import ServedTimes, SteadyState, steady
from tests.queues import SERVICES, Floats, Queue, Served, Service
from tests.simulated_search import highest_rate, search

SLOTS = (1, 2, 4, 8)
BUDGETS_S = (300.0, 1000.0, 3000.0)
"""In service times, since a service time is 1 s; a sixth of each is warm-up."""

WARM_UP = 1 / 6
LOADS = (0.5, 0.7, 0.8, 0.9, 0.95)
OVERLOADS = (1.0, 1.05, 1.2)
SHARES = (0.5, 0.9, 0.99)
STABILITIES = ("stable", "undecided", "overloaded")
LIMITS_S = {1: (4.0, 7.0, 20.0), 2: (2.0, 3.5, 10.0), 4: (1.0, 1.5, 5.0), 8: (0.7, 1.0, 3.0)}
"""Of the time to the first token."""

AT_ONCE = 250
"""Seeds that are simulated together: more would need more memory."""

FEWEST_GIVEN = 100
"""Intervals of a cell, of fewer of which the coverage is not judged by itself."""

NOISE = 0.1
"""Of the same request on the same service, for the comparisons."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["intervals", "overload", "search", "compare"])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--services", nargs="+", choices=SERVICES, default=SERVICES)
    chosen = parser.parse_args()
    parts = {"intervals": intervals, "overload": overload, "search": searches, "compare": compared}
    for part in chosen.parts:
        print(f"\n== {part}, {chosen.seeds} seeds a cell")
        parts[part](chosen.services, chosen.seeds)


def measured(
    served: Served, row: int, rate: float, budget_s: float, slots: int
) -> tuple[SteadyState, QueueWaits | None, list[float]]:
    """Return what is said of one seed within a budget, and its latencies."""
    first, last = np.searchsorted(served.scheduled_s[row], [WARM_UP * budget_s, budget_s])
    due_s, slot_s, end_s = (
        column[row, first:last] for column in (served.scheduled_s, served.slot_s, served.end_s)
    )
    # Arrays, which a validated value would turn into tuples.
    times: Any = {"scheduled_s": due_s, "slot_s": slot_s, "end_s": end_s}
    found = steady(ServedTimes.model_construct(**times), rate, slots)
    waits = None
    if found.remembered is not None:
        own_s = end_s - slot_s
        waits = QueueWaits(waits_s=slot_s - due_s, own_s=own_s, remembered=found.remembered)
    return found, waits, (end_s - due_s).tolist()


def _interval_cell(cell: tuple[Service, int, float, int]) -> list[tuple[str, list[float]]]:
    service, slots, load, seeds = cell
    generator = np.random.default_rng([27, SERVICES.index(service), slots, round(100 * load)])
    queue = Queue(service=service, slots=slots)
    rate = load * slots
    truth = _truth(queue, rate, generator)
    held: dict[tuple[float, float], list[bool]] = defaultdict(list)
    widths: dict[tuple[float, float], list[float]] = defaultdict(list)
    values: dict[tuple[float, float], list[float]] = defaultdict(list)
    for _ in range(0, seeds, AT_ONCE):
        served = queue.loaded(rate, BUDGETS_S[-1], generator, min(AT_ONCE, seeds))
        for budget_s, row in itertools.product(BUDGETS_S, range(len(served.end_s))):
            found, waits, latencies = measured(served, row, rate, budget_s, slots)
            known = distribution(latencies, found.independent, waits)
            assert known is not None
            for share, each in zip(SHARES, (known.median, known.p90, known.p99), strict=True):
                key = budget_s, share
                values[key].append(each.value_s)
                if each.low_s is not None and each.high_s is not None:
                    held[key].append(each.low_s <= truth[share] <= each.high_s)
                    widths[key].append(each.high_s - each.low_s)
    rows = []
    for key in itertools.product(BUDGETS_S, SHARES):
        low, high = np.quantile(values[key], [0.025, 0.975])
        oracle = float(high - low)
        name = f"{service:11} {slots} {load:4.0%} {key[0]:4.0f} p{key[1] * 100:.0f}"
        wide = median(widths[key]) / oracle if widths[key] and oracle > 0 else 0.0
        counts = [float(sum(held[key])), float(len(held[key])), float(len(values[key])), wide]
        rows.append((name, counts))
    return rows


def _truth(queue: Queue, rate: float, generator: np.random.Generator) -> dict[float, float]:
    served = queue.loaded(rate, 12_000 / queue.slots + 3000, generator, 400)
    latencies = (served.end_s - served.scheduled_s)[:, served.scheduled_s.shape[1] // 4 :]
    return {share: float(np.quantile(latencies, share)) for share in SHARES}


def intervals(services: Sequence[Service], seeds: int) -> None:
    cells = [(*each, seeds) for each in itertools.product(services, SLOTS, LOADS)]
    pooled: Counter[str] = Counter()
    worst: list[tuple[float, str]] = []
    missing, wide, asked = [], [], 0
    with ProcessPoolExecutor(2) as pool:
        for rows in pool.map(_interval_cell, cells):
            for name, (held, given, of_all, width) in rows:
                _, _, load, budget, share = name.split()
                coverage = held / given if given else float("nan")
                print(f"{name}: given {given / of_all:5.1%}, covers {coverage:6.1%}, {width:.2f}")
                for key in ("all", share):
                    pooled[f"{key} held"] += int(held)
                    pooled[f"{key} given"] += int(given)
                if given >= FEWEST_GIVEN:
                    worst.append((coverage, name))
                if budget == "1000" and load in ("50%", "70%") and share in ("p50", "p90"):
                    asked += 1
                    missing += [name] if given < 0.8 * of_all else []
                    wide += [name] if width > 1.5 else []
    for key in ("all", "p50", "p90", "p99"):
        print(f"pooled {key}: {pooled[f'{key} held'] / max(1, pooled[f'{key} given']):.2%}")
    below = sorted(each for each in worst if each[0] < 0.92)
    print(f"below 92%: {len(below)} of {len(worst)} cells: {below}")
    print(f"up to 70%, 1,000: of {asked}, given too seldom: {missing}; wider than 1.5: {wide}")


def _overload_cell(cell: tuple[Service, int, float, int]) -> list[str]:
    service, slots, load, seeds = cell
    generator = np.random.default_rng([28, SERVICES.index(service), slots, round(100 * load)])
    rate = load * slots
    found: Counter[tuple[float, str]] = Counter()
    for _ in range(0, seeds, AT_ONCE):
        served = Queue(service=service, slots=slots).loaded(
            rate, BUDGETS_S[-1], generator, min(AT_ONCE, seeds)
        )
        for budget_s, row in itertools.product(BUDGETS_S, range(len(served.end_s))):
            state, _, _ = measured(served, row, rate, budget_s, slots)
            found[budget_s, state.stability] += 1
    said = []
    for budget_s in BUDGETS_S:
        counts = [found[budget_s, name] for name in STABILITIES]
        shares = ", ".join(
            f"{name} {count / sum(counts):6.1%}"
            for name, count in zip(STABILITIES, counts, strict=True)
        )
        said.append(f"{service:11} {slots} {load:5.0%} {budget_s:4.0f}: {shares}")
    return said


def overload(services: Sequence[Service], seeds: int) -> None:
    cells = [(*each, seeds) for each in itertools.product(services, SLOTS, LOADS + OVERLOADS)]
    with ProcessPoolExecutor(2) as pool:
        for said in pool.map(_overload_cell, cells):
            print("\n".join(said))


def _search_cell(cell: tuple[Service, int, float, int]) -> tuple[str, list[float]]:
    warnings.simplefilter("ignore")
    service, slots, limit_s, seeds = cell
    queue = Queue(service=service, slots=slots)
    key = [29, SERVICES.index(service), slots, round(10 * limit_s)]
    true_rate = highest_rate(queue, limit_s, np.random.default_rng(key))
    shares = [
        (search(queue, limit_s, BUDGETS_S[-1], np.random.default_rng([*key, seed])).sustained or 0)
        / true_rate
        for seed in range(seeds)
    ]
    load = true_rate / queue.capacity_per_s
    return f"{service:11} {slots} {limit_s:4g} s, true load {load:.2f}", shares


def searches(services: Sequence[Service], seeds: int) -> None:
    cells = [
        (service, slots, limit_s, seeds)
        for service, slots in itertools.product(services, SLOTS)
        for limit_s in LIMITS_S[slots]
    ]
    every: list[float] = []
    with ProcessPoolExecutor(2) as pool:
        for name, shares in pool.map(_search_cell, cells):
            every += shares
            print(f"{name}: {_search_said(shares)}", flush=True)
    print(f"pooled: {_search_said(every)}")


def _search_said(shares: list[float]) -> str:
    errors = sum(share > 1 for share in shares) / len(shares)
    none = sum(share == 0 for share in shares) / len(shares)
    low, middle, high = np.quantile(shares, [0.25, 0.5, 0.75])
    return (
        f"errors {errors:.1%}, none {none:.1%}, answer {middle:.2f} ({low:.2f} to {high:.2f}) of "
        "the true rate"
    )


def _compared_cell(cell: tuple[Service, int, float, float, int]) -> tuple[str, int, int]:
    service, slots, load, slower, seeds = cell
    key = [30, SERVICES.index(service), slots, round(100 * load), round(100 * slower)]
    generator = np.random.default_rng(key)
    count = int(BUDGETS_S[0] * load * slots)
    shape = (seeds * REPEATS, count)
    due_s = np.cumsum(generator.exponential(1 / (load * slots), shape), axis=1)
    one, other = (
        Queue(service=service, slots=slots),
        Queue(service=service, slots=slots, slower=slower),
    )
    work = one.work(generator, shape)
    a, b = (
        _latencies(queue.serve(due_s, work * generator.lognormal(0, NOISE, shape)))
        for queue in (one, other)
    )
    is_slower = is_faster = 0
    for seed in range(seeds):
        rows = range(seed * REPEATS, (seed + 1) * REPEATS)
        pairs = [list(zip(a[row].tolist(), b[row].tolist(), strict=True)) for row in rows]
        found = ratio_of_repeats(pairs)
        assert found is not None
        is_slower += found.low > 1
        is_faster += found.high < 1
    return f"{service:11} {slots} {load:4.0%}", is_slower, is_faster


def _latencies(served: Served) -> Floats:
    latencies = served.end_s - served.scheduled_s
    return latencies[:, int(WARM_UP * latencies.shape[1]) :]


def compared(services: Sequence[Service], seeds: int) -> None:
    same = [(*each, 1.0, seeds) for each in itertools.product(services, SLOTS, LOADS)]
    slower = [(*each, 0.7, 1.1, seeds) for each in itertools.product(services, SLOTS)]
    different = total = 0
    with ProcessPoolExecutor(2) as pool:
        for name, up, down in pool.map(_compared_cell, same):
            different, total = different + up + down, total + seeds
            print(f"{name}, the same service: called different in {(up + down) / seeds:.1%}")
        print(f"pooled: {different / total:.2%}")
        for name, up, _ in pool.map(_compared_cell, slower):
            print(f"{name}, 10% slower: found in {up / seeds:.1%}")


if __name__ == "__main__":
    main()
