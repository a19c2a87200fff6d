"""What is said of simulated queues is true as often as it says, on seeds of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from armload.analysis.load.comparison import ratio_of_repeats
from armload.analysis.load.latency import phases_of
from armload.analysis.load.quantiles import FEWEST_INDEPENDENT, QueueWaits, quantile
from armload.analysis.load.records import RequestRecord, ServerTimings
from armload.analysis.load.steady import ServedTimes, SteadyState, judged, steady
from armload.analysis.statistics import long_run_variance
from tests.queues import Queue, Served, Service

often = pytest.mark.exhaustive(covers=["armload/analysis/load"])

SEEDS = 60
WARM_UP_S = 150.0


def served(service: Service, slots: int, load: float, length_s: float, seeds: int) -> Served:
    generator = np.random.default_rng([31_337, slots, round(100 * load)])
    return Queue(service=service, slots=slots).loaded(
        load * slots, WARM_UP_S + length_s, generator, seeds
    )


def times(of: Served, row: int, length_s: float, *, tells_slots: bool = True) -> ServedTimes:
    taken = (of.scheduled_s[row] >= WARM_UP_S) & (of.scheduled_s[row] < WARM_UP_S + length_s)
    columns = (of.scheduled_s, of.slot_s, of.end_s)
    due_s, slot_s, end_s = (tuple(column[row][taken].tolist()) for column in columns)
    return ServedTimes(scheduled_s=due_s, slot_s=slot_s if tells_slots else None, end_s=end_s)


def states(
    service: Service, slots: int, load: float, length_s: float, *, tells_slots: bool = True
) -> list[SteadyState]:
    found = served(service, slots, load, length_s, SEEDS)
    return [
        steady(
            times(found, row, length_s, tells_slots=tells_slots),
            load * slots,
            slots if tells_slots else None,
        )
        for row in range(SEEDS)
    ]


def waits(of: ServedTimes, state: SteadyState) -> QueueWaits | None:
    if state.remembered is None or of.slot_s is None:
        return None
    due_s, slot_s, end_s = map(np.asarray, (of.scheduled_s, of.slot_s, of.end_s))
    return QueueWaits(
        waits_s=(slot_s - due_s).tolist(),
        own_s=(end_s - slot_s).tolist(),
        remembered=state.remembered,
    )


@pytest.mark.parametrize("tells_slots", [True, False])
@pytest.mark.parametrize(
    ("service", "slots"), [("exponential", 4), pytest.param("batch", 8, marks=often)]
)
def test_a_queue_above_its_capacity_is_overloaded_and_one_far_below_is_not(
    service: Service, slots: int, *, tells_slots: bool
) -> None:
    above = states(service, slots, 1.1, 1000.0, tells_slots=tells_slots)
    below = states(service, slots, 0.8, 1000.0, tells_slots=tells_slots)
    # Of 60 at 95%, fewer than 52 are right in 1 of 300 cases.
    assert sum(each.stability == "overloaded" for each in above) >= 52
    assert sum(each.stability == "stable" for each in below) >= 52
    assert not any(each.stability == "overloaded" for each in below)
    assert min(each.open_at_end for each in above) > max(2, slots // 2)


def test_five_percent_too_much_are_called_so_where_answers_are_enough() -> None:
    # The rate of 2,600 exponential answers is known within 2%.
    above = states("exponential", 1, 1.05, 2600.0)
    below = states("exponential", 1, 0.95, 2600.0)
    assert sum(each.stability == "overloaded" for each in above) >= 52
    assert not any(each.stability == "overloaded" for each in below)


def test_a_few_requests_near_the_capacity_are_undecided() -> None:
    found = states("exponential", 1, 0.95, 150.0)
    assert sum(each.stability == "undecided" for each in found) > SEEDS / 3
    assert all(each.independent < FEWEST_INDEPENDENT for each in found)


def test_what_is_answered_while_all_slots_are_busy_encloses_the_capacity() -> None:
    known = [each.most_per_s for each in states("exponential", 2, 0.9, 600.0)]
    held = [each.low <= 2.0 <= each.high for each in known if each is not None]
    assert len(held) == SEEDS
    assert sum(held) >= 52


def test_a_queue_forgets_the_more_slowly_the_fuller_it_is() -> None:
    worth = [
        float(np.median([each.independent for each in states("exponential", 1, load, 1000.0)]))
        for load in (0.5, 0.7, 0.9)
    ]
    # (1 + load) / (1 - load)^2 + 1 service times are 7, 20 and 191.
    assert 90 < worth[0] < 145
    assert 25 < worth[1] < 51
    assert worth[2] < 6


@pytest.mark.parametrize(
    ("service", "slots", "load"),
    [
        ("exponential", 1, 0.5),
        ("log-normal", 4, 0.7),
        ("constant", 2, 0.8),
        pytest.param("batch", 8, 0.8, marks=often),
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    service: Service, slots: int, load: float
) -> None:
    found = served(service, slots, load, 1000.0, 3 * SEEDS)
    latencies = (found.end_s - found.scheduled_s)[:, int(WARM_UP_S * load * slots) :]
    held, given = 0, 0
    for share in (0.5, 0.9):
        truth = float(np.quantile(latencies, share))
        for row in range(2 * SEEDS):
            known = times(found, row, 1000.0)
            state = steady(known, load * slots, slots)
            own = np.asarray(known.end_s) - np.asarray(known.scheduled_s)
            each = quantile(own.tolist(), share, state.independent, waits(known, state))
            if each.low_s is not None and each.high_s is not None:
                given += 1
                held += each.low_s <= truth <= each.high_s
    # Of 240 at 95%, fewer than 92% are right in 1 of 50 cases, and fewer than 90% in 1 of 1,000.
    assert given >= 0.8 * 4 * SEEDS
    assert held / given >= 0.90


def test_what_waits_explain_of_a_percentile_is_what_neighbours_share() -> None:
    own_s, waits_s = [1.0] * 1000, [0.0] * 900 + [5.0] * 100
    explained = QueueWaits(waits_s=waits_s, own_s=own_s, remembered=100.0).effect(0.9)
    generator = np.random.default_rng(3)
    longer = generator.exponential(50.0, 1000).tolist()
    hardly = QueueWaits(waits_s=waits_s, own_s=longer, remembered=100.0).effect(0.9)
    assert explained > 100.0
    assert 1.0 <= hardly < 10.0


@pytest.mark.parametrize(("slower", "fewest", "most"), [(1.0, 0, 8), (1.1, 48, SEEDS)])
def test_repeats_find_a_slower_service_and_seldom_a_difference_from_itself(
    slower: float, fewest: int, most: int
) -> None:
    generator = np.random.default_rng(4_242)
    shape = (SEEDS * 5, 200)
    due_s = np.cumsum(generator.exponential(1 / 0.7, shape), axis=1)
    work = generator.exponential(1.0, shape)
    sides = [
        Queue(service="exponential", slots=1, slower=factor).serve(
            due_s, work * generator.lognormal(0, 0.1, shape)
        )
        for factor in (1.0, slower)
    ]
    a, b = ((each.end_s - each.scheduled_s)[:, 30:].tolist() for each in sides)
    different = 0
    for seed in range(SEEDS):
        rows = range(5 * seed, 5 * seed + 5)
        found = ratio_of_repeats([list(zip(a[row], b[row], strict=True)) for row in rows])
        assert found is not None
        different += found.finding != "not significant"
    # Of 60 at 5%, more than 8 differ in 1 of 500 cases; of 60 at 90%, fewer than 48 in 1 of 200.
    assert fewest <= different <= most


def test_a_long_run_variance_counts_what_neighbours_share() -> None:
    generator = np.random.default_rng(11)
    alone = [long_run_variance(generator.normal(size=500)) for _ in range(200)]
    assert float(np.mean(alone)) == pytest.approx(1.0, rel=0.15)
    repeated = [long_run_variance(np.repeat(generator.normal(size=100), 5)) for _ in range(200)]
    assert float(np.mean(repeated)) == pytest.approx(5.0, rel=0.15)


@pytest.mark.parametrize(
    ("severities", "independent", "verdict"),
    [
        ([0.5] * 200, 100, "sustained"),
        ([0.5] * 20, 20, "undecided"),
        ([1.5] * 20, 10, "not sustained"),
        ([1.5] * 3, 3, "undecided"),
        ([math.inf] * 10, 0.1, "not sustained"),
    ],
)
def test_a_rate_is_judged_by_as_many_requests_as_that_takes(
    severities: list[float], independent: float, verdict: str
) -> None:
    assert judged(severities, independent, "stable") == verdict
    assert judged(severities, independent, "overloaded") == "not sustained"


def test_the_time_before_a_header_is_a_queue_only_where_the_server_says_so() -> None:
    record = RequestRecord(
        number=0, scheduled_s=0.0, sent_s=0.1, header_s=3.1, end_s=4.0, outcome="ok", status=200
    )
    unknown = phases_of(record)
    known = phases_of(record.model_copy(update={"timings": ServerTimings(prompt_ms=1.0)}))
    assert unknown is not None
    assert known is not None
    assert unknown.queued_s == 0.0
    assert known.queued_s == pytest.approx(3.0)
