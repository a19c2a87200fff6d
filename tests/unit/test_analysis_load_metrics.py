"""The figures of a load, from records whose figures are known."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.quantiles import quantile
from armload.analysis.load.records import (
    LoadPoint,
    Objectives,
    RequestRecord,
    ServerTimings,
    read_objectives,
)
from armload.core.errors import UsageError


def record(number: int, **known: Any) -> RequestRecord:
    """Scheduled each second, sent 1 ms late; first of 5 tokens after 0.5 s, then each 0.1 s."""
    at_s = float(number)
    fields: dict[str, Any] = {
        "scheduled_s": at_s,
        "begun_s": at_s + 0.001,
        "sent_s": at_s + 0.002,
        "header_s": at_s + 0.302,
        "chunks": tuple((at_s + 0.5 + 0.1 * k, k + 1) for k in range(5)),
        "end_s": at_s + 0.9,
        "outcome": "ok",
        "prompt_tokens": 10,
        "generated_tokens": 5,
        "timings": ServerTimings(prompt_ms=1.0),
    }
    return RequestRecord(number=number, **(fields | known))


def figures(*records: RequestRecord, slo: str = "", scheduled: int | None = None) -> Metrics:
    point = LoadPoint(
        rate=1.0, requests=scheduled or len(records), started_utc="", began_client_s=0.0
    )
    return metrics_of(point, records, read_objectives(slo))


def test_a_load_that_was_ended_in_its_warmup_has_no_duration() -> None:
    cut = {"outcome": "cancelled", "sent_s": None, "chunks": (), "generated_tokens": None}
    found = figures(record(0, is_warmup=True), record(20, **cut, end_s=1.5))
    assert found.duration_s == 0.0


def test_latencies_are_as_defined() -> None:
    found = figures(*(record(number) for number in range(4)))
    assert found.from_scheduled.e2e is not None
    assert found.from_scheduled.ttft is not None
    assert found.from_sent.ttft is not None
    assert found.tpot is not None
    assert found.itl is not None
    assert found.queue is not None
    assert found.lateness is not None
    assert found.from_scheduled.e2e.median.value_s == pytest.approx(0.9)
    assert found.from_scheduled.ttft.median.value_s == pytest.approx(0.5)
    assert found.from_sent.ttft.median.value_s == pytest.approx(0.498)
    assert found.tpot.median.value_s == pytest.approx(0.1)
    assert found.itl.count == 16
    assert found.itl.mean_s == pytest.approx(0.1)
    assert found.queue.median.value_s == pytest.approx(0.3)
    assert found.lateness.max_s == pytest.approx(0.001)


def test_throughput_counts_tokens_by_the_server_over_the_duration() -> None:
    found = figures(*(record(number) for number in range(4)))
    assert found.duration_s == pytest.approx(3.9)
    assert found.total_s == pytest.approx(3.899)
    assert found.requests_per_s == pytest.approx(4 / 3.9)
    assert found.output_tokens_per_s == pytest.approx(20 / 3.9)
    assert (found.prompt_tokens, found.output_tokens) == (40, 20)
    assert found.offered_per_s == pytest.approx(1.0)
    assert found.valid


def test_a_failure_is_counted_and_gives_no_latency() -> None:
    failed = record(1, outcome="dropped", end_s=1.01, chunks=(), generated_tokens=None)
    found = figures(record(0), failed, record(2, outcome="timeout"), slo="ttft=1s")
    assert (found.requests, found.ok) == (3, 1)
    assert found.failed == {"dropped": 1, "timeout": 1}
    assert found.from_scheduled.e2e is not None
    assert found.from_scheduled.e2e.count == 1
    assert found.goodput is not None
    assert found.goodput.good == 1
    assert found.goodput.share == pytest.approx(1 / 3)


def test_requests_without_a_record_are_failures() -> None:
    found = figures(record(0), scheduled=3, slo="ttft=1s")
    assert (found.failed, found.valid) == ({"unknown": 2}, False)
    assert found.goodput is not None
    assert found.goodput.share == pytest.approx(1 / 3)
    assert "only 1 of 3 requests were recorded" in found.findings[0].sentence


def test_a_point_that_was_ended_early_is_not_valid() -> None:
    found = figures(record(0), record(1, outcome="cancelled", chunks=(), generated_tokens=None))
    assert (found.cut_short, found.valid) == (True, False)
    assert "1 of 2 requests were cancelled" in found.findings[0].sentence


def test_warm_up_is_excluded_but_for_the_total_time() -> None:
    slow = record(0, is_warmup=True, end_s=30.0)
    found = figures(slow, record(1), record(2))
    assert (found.scheduled, found.warmup, found.requests) == (3, 1, 2)
    assert found.from_scheduled.e2e is not None
    assert found.from_scheduled.e2e.max_s == pytest.approx(0.9)
    assert found.duration_s == pytest.approx(1.9)
    assert found.total_s == pytest.approx(29.999)


@pytest.mark.parametrize(
    ("known", "cut_off"),
    [
        ({"finish_reason": "limit", "limit_tokens": 500}, 1),
        ({"finish_reason": "length", "limit_tokens": 6}, 1),
        ({"finish_reason": "length", "limit_tokens": 5}, 0),
        ({"finish_reason": "stop", "limit_tokens": 500}, 0),
        ({"finish_reason": "length", "limit_tokens": 500, "generated_tokens": None}, 0),
    ],
)
def test_answers_that_the_context_has_cut_off_are_counted_and_make_a_point_invalid(
    known: dict[str, Any], cut_off: int
) -> None:
    found = figures(record(0, **known), record(1), record(2, outcome="dropped", **known))
    assert (found.ok, found.cut_off, found.valid) == (2, cut_off, not cut_off)
    if cut_off:
        assert "1 of 2 answers ended before the limit" in found.findings[0].sentence
        assert "context" in found.findings[0].sentence


@pytest.mark.parametrize(
    ("known", "context_tokens", "is_known"),
    [
        ({}, None, False),
        ({}, 2048, False),
        ({"is_truncated": True}, None, True),
        ({"prompt_tokens": 2043}, 2048, True),
    ],
)
def test_a_full_context_is_the_reason_only_where_it_is_known_to_be_full(
    known: dict[str, Any], context_tokens: int | None, *, is_known: bool
) -> None:
    cut = record(0, finish_reason="length", limit_tokens=500, **known)
    point = LoadPoint(rate=1.0, requests=1, started_utc="", began_client_s=0.0)
    (finding,) = metrics_of(point, [cut], context_tokens=context_tokens).findings
    assert ("filled the context" in finding.sentence) == is_known


def test_failures_are_counted_by_their_status() -> None:
    records = [record(n, outcome="server-error", status=n) for n in (500, 503, 503, 200)]
    found = figures(*records, record(504, outcome="http", status=404))
    assert found.failed == {
        "server-error 500": 1,
        "server-error 503": 2,
        "server-error": 1,
        "http 404": 1,
    }


def test_requests_that_this_machine_could_not_send_make_a_point_invalid() -> None:
    found = figures(record(0), record(1, outcome="client-limit", sent_s=None))
    assert (found.failed, found.valid) == ({"client-limit": 1}, False)
    assert "1 of 2 requests were not sent: this machine" in found.findings[0].sentence


def test_lines_that_are_no_events_are_counted_and_said() -> None:
    found = figures(record(0, ignored_lines=2), record(1, ignored_lines=1), record(2))
    assert found.findings[0].sentence.startswith("Ignored 3 lines in the streams of 2 answers")


def test_a_point_without_a_success_is_not_valid() -> None:
    found = figures(record(0, outcome="refused", sent_s=None, chunks=(), generated_tokens=None))
    assert (found.valid, found.from_scheduled.e2e, found.requests_per_s) == (False, None, 0.0)


@pytest.mark.parametrize(("late_s", "doubts"), [(0.005, 0), (0.024, 0), (0.026, 1)])
def test_a_client_that_is_late_makes_a_point_invalid(late_s: float, doubts: int) -> None:
    # The median time to first token is 0.5 s, of which 5% are 25 ms.
    found = figures(*(record(n, begun_s=n + late_s) for n in range(5)))
    assert (len(found.findings), found.valid) == (doubts, not doubts)
    assert all("26 ms" in each.sentence for each in found.findings)


def test_chunks_of_several_tokens_count_as_so_many_gaps() -> None:
    several = record(0, chunks=((0.5, 1), (0.8, 4), (0.9, None), (1.0, None)))
    assert list(several.gaps_s()) == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1])


def test_an_answer_of_one_token_has_no_time_per_output_token() -> None:
    found = figures(record(0, generated_tokens=1, chunks=((0.5, 1),)), slo="tpot=1ms")
    assert found.tpot is None
    assert found.goodput is not None
    assert found.goodput.good == 1


def test_an_answer_without_a_count_of_tokens_is_not_within_an_objective_per_token() -> None:
    uncounted = record(0, generated_tokens=None)
    found = figures(uncounted, record(1), slo="ttft=1s,tpot=200ms")
    assert found.goodput is not None
    assert (found.goodput.good, found.valid) == (1, False)
    assert "no token count for 1 of 2 answers" in found.findings[0].sentence
    other = figures(uncounted, record(1), slo="ttft=1s")
    assert other.goodput is not None
    assert (other.goodput.good, other.valid) == (2, True)


def test_goodput_needs_every_objective() -> None:
    records = [record(0), record(1, end_s=9.0), record(2)]
    found = figures(*records, slo="ttft=501ms,tpot=0.2s")
    assert found.goodput is not None
    assert found.goodput.good == 2
    assert found.goodput.requests_per_s == pytest.approx(2 / 9.0)
    assert figures(*records, slo="e2e=800ms").goodput.share == 0  # type: ignore[union-attr]


def test_objectives_are_read_with_their_units() -> None:
    found = read_objectives("ttft=2s, tpot=500ms,e2e=30")
    assert found == Objectives(ttft_s=2.0, tpot_s=0.5, e2e_s=30.0)
    assert str(found) == "ttft=2s,tpot=0.5s,e2e=30s"


@pytest.mark.parametrize(
    "text",
    ["ttft", "ttft=", "ttft=0", "ttft=-1s", "ttft=2m", "speed=2s", "ttft=1s,ttft=2s", ",", "=1s"],
)
def test_objectives_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--slo"):
        read_objectives(text)


def test_the_interval_of_independent_samples_is_about_that_of_a_binomial_count() -> None:
    # Of 100 independent samples, those of rank 40 and 61 (Conover, "Practical Nonparametric
    # Statistics", the sign test's table); with a variance of 8 degrees of freedom, wider.
    lows, highs = [], []
    for seed in range(50):
        samples = [float(each) for each in range(1, 101)]
        random.Random(seed).shuffle(samples)
        found = quantile(samples, 0.5, 100)
        assert found.value_s == 50.0
        lows.append(found.low_s or 0.0)
        highs.append(found.high_s or 0.0)
    assert 36 <= statistics.median(lows) <= 41
    assert 60 <= statistics.median(highs) <= 66


@pytest.mark.parametrize(
    ("count", "share", "independent", "is_given"),
    [
        (400, 0.5, 19, False),
        (400, 0.5, 21, True),
        (70, 0.9, 60, False),
        (400, 0.9, 21, True),
        (4000, 0.99, 190, False),
        (400, 0.99, 400, False),
        (900, 0.99, 300, True),
    ],
)
def test_there_is_an_interval_where_enough_observations_are_independent(
    count: int, share: float, independent: float, *, is_given: bool
) -> None:
    generator = random.Random(3)
    found = quantile([generator.expovariate(1.0) for _ in range(count)], share, independent)
    assert (found.high_s is not None) == is_given
    assert found.low_s is None or found.low_s <= found.value_s
    assert found.high_s is None or found.high_s >= found.value_s


def test_intervals_hold_the_true_percentile_as_often_as_they_say() -> None:
    generator = random.Random(5)
    held = 0
    for _ in range(400):
        found = quantile([generator.expovariate(1.0) for _ in range(200)], 0.9, 200)
        assert found.low_s is not None
        assert found.high_s is not None
        held += found.low_s <= 2.302585 <= found.high_s
    assert 0.93 <= held / 400 <= 0.99


def test_intervals_of_samples_that_are_alike_are_wide_enough() -> None:
    # A chain with correlation 0.8 whose every value is standard normal: its median is 0, and 9
    # samples are worth one.
    generator, held, width, alone = random.Random(6), 0, 0.0, 0.0
    for _ in range(200):
        value, series = generator.gauss(0, 1), []
        for _ in range(300):
            value = 0.8 * value + 0.6 * generator.gauss(0, 1)
            series.append(value)
        found = quantile(series, 0.5, 33)
        generator.shuffle(series)
        shuffled = quantile(series, 0.5, 300)
        assert found.low_s is not None
        assert found.high_s is not None
        assert shuffled.low_s is not None
        assert shuffled.high_s is not None
        held += found.low_s <= 0 <= found.high_s
        width += found.high_s - found.low_s
        alone += shuffled.high_s - shuffled.low_s
    assert held / 200 >= 0.92
    assert width > 1.5 * alone
