"""Why requests to a service were slow, on a simulated server whose causes are known."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from armload.analysis.load.assessed import Cause, slow_requests
from armload.analysis.load.parts import Accounting, Parts
from armload.analysis.load.records import Objectives
from armload.analysis.load.telemetry import ObservedPoint, telemetry_of
from tests.unit.simulated_server import HIGHEST_KHZ, Asked, Simulated, records_of

ALONE = [Asked(at_s=100.0 + 10 * number) for number in range(10)]
"""Requests long after what a test is about, from which is known what is usual."""


def causes_of(observed: ObservedPoint) -> dict[int, Cause]:
    return {
        each.request.number: each.cause
        for each in slow_requests(Accounting(observed), None).slowest
    }


def whole(observed: ObservedPoint, number: int) -> Parts:
    account = Accounting(observed).of(observed.records[number])
    assert account is not None
    return account.whole


def test_the_parts_of_every_request_add_up_to_its_latency() -> None:
    random = Random(1)
    asked = [
        Asked(at_s=number / 2, prompt=random.randint(1, 400), answer=random.randint(1, 60))
        for number in range(100)
    ]
    server = Simulated(
        read_bytes=lambda at_s: 40_000_000 if 10 < at_s < 14 else 0,
        khz=lambda at_s: HIGHEST_KHZ // 2 if 30 < at_s < 40 else HIGHEST_KHZ,
    )
    observed = server.serve(asked)
    accounting = Accounting(observed)
    for record in observed.records:
        account = accounting.of(record)
        assert account is not None
        assert account.whole.total_s == pytest.approx(record.end_s - record.scheduled_s)
        assert min(seconds for _, seconds in account.whole) > -1e-6


def test_an_encoders_step_has_no_tokens_and_is_the_prompts_own() -> None:
    observed = Simulated().serve(ALONE)
    steps = [
        step.model_copy(update={"prompt_tokens": 0, "tokens": 0, "sequences": 0})
        if step.prompt_tokens
        else step
        for step in observed.steps
    ]
    seen = replace(observed, steps=tuple(steps))
    parts = whole(seen, 3)
    assert parts.own_s == pytest.approx(parts.total_s)
    assert parts.total_s == pytest.approx(whole(observed, 3).total_s)


def test_a_request_alone_is_not_slow_and_all_of_its_time_is_its_own() -> None:
    observed = Simulated().serve(ALONE)
    assert causes_of(observed) == {}
    parts = whole(observed, 3)
    assert parts.own_s == pytest.approx(parts.total_s)


def test_a_request_that_waited_for_a_slot_was_queued() -> None:
    observed = Simulated(slots=1).serve([Asked(at_s=0.0, answer=40), Asked(at_s=0.1), *ALONE])
    assert causes_of(observed) == {1: "queued"}
    taken_s = observed.records[0].end_s
    assert whole(observed, 1).queued_s == pytest.approx(taken_s - 0.1)


def test_a_long_prompt_blocks_the_answers_of_others() -> None:
    long = Asked(at_s=1.0, prompt=2000, answer=1)
    observed = Simulated(batch_tokens=256).serve([Asked(at_s=0.0), long, *ALONE])
    assert causes_of(observed) == {0: "blocked by a prompt"}
    parts = whole(observed, 0)
    assert parts.blocked_s == pytest.approx(2000 * 0.004, rel=0.2)


def test_a_long_prompt_blocks_the_prompts_of_others() -> None:
    asked = [Asked(at_s=0.0, prompt=2000, answer=1), Asked(at_s=0.5), *ALONE]
    observed = Simulated(batch_tokens=256).serve(asked)
    assert causes_of(observed) == {1: "blocked by a prompt"}


def test_steps_that_other_requests_share_take_longer() -> None:
    server = Simulated(slots=4, sequence_s=0.1)
    observed = server.serve([*(Asked(at_s=0.0, answer=40) for _ in range(4)), *ALONE])
    assert causes_of(observed) == dict.fromkeys(range(4), "shared steps")
    assert whole(observed, 0).sharing_s == pytest.approx(39 * 3 * 0.1, rel=0.05)


def test_requests_that_waited_for_storage_were_slow_by_paging() -> None:
    server = Simulated(read_bytes=lambda at_s: 60_000_000 if at_s < 20 else 0)
    observed = server.serve([Asked(at_s=0.0), *ALONE])
    assert causes_of(observed) == {0: "paging"}
    assert whole(observed, 0).paging_s == pytest.approx(20 * 0.3, rel=0.01)


def test_requests_at_a_lower_frequency_were_slow_by_throttling() -> None:
    server = Simulated(khz=lambda at_s: HIGHEST_KHZ // 3 if at_s < 20 else HIGHEST_KHZ)
    observed = server.serve([Asked(at_s=0.0), *ALONE])
    assert causes_of(observed) == {0: "throttling"}


def test_a_client_that_sends_late_is_the_cause_of_that() -> None:
    observed = Simulated().serve([Asked(at_s=0.0, late_s=9.0), *ALONE])
    assert causes_of(observed) == {0: "client late"}
    assert whole(observed, 0).late_s == pytest.approx(9.0)


def test_an_objective_that_no_request_can_meet_is_missed_by_the_requests_own_length() -> None:
    observed = Simulated().serve([Asked(at_s=0.0, answer=200), *ALONE])
    (slow,) = slow_requests(Accounting(observed), Objectives(e2e_s=10)).slowest
    assert slow.cause == "own length"


def test_a_model_that_is_read_for_every_token_misses_objectives_by_paging() -> None:
    observed = Simulated(read_bytes=lambda _: 100_000_000).serve(ALONE)
    slow = slow_requests(Accounting(observed), Objectives(tpot_s=0.5)).slowest
    assert [each.cause for each in slow] == ["paging"] * len(ALONE)


def test_only_the_phase_that_missed_its_objective_is_judged() -> None:
    observed = Simulated(slots=1).serve([Asked(at_s=0.0), Asked(at_s=0.1, answer=60), *ALONE])
    (first,) = slow_requests(Accounting(observed), Objectives(ttft_s=2)).slowest
    assert (first.request.number, first.cause) == (1, "queued")
    rest = slow_requests(Accounting(observed), Objectives(tpot_s=0.05)).slowest
    assert {each.cause for each in rest} == {"own length"}


def test_without_a_trace_the_queue_is_still_seen() -> None:
    observed = Simulated(slots=1).serve([Asked(at_s=0.0, answer=40), Asked(at_s=0.1), *ALONE])
    bare = ObservedPoint(point=observed.point, records=observed.records)
    assert causes_of(bare) == {1: "queued"}
    assert telemetry_of(bare).decode_step_s is None


def test_a_failed_request_is_not_called_slow() -> None:
    observed = Simulated(slots=1).serve([Asked(at_s=0.0, answer=40), Asked(at_s=0.1), *ALONE])
    failed = records_of(observed)[1].model_copy(update={"outcome": "timeout"})
    records = (observed.records[0], failed, *observed.records[2:])
    assert causes_of(ObservedPoint(point=observed.point, records=records)) == {}


def test_the_slots_were_busy_for_the_share_of_time_that_requests_were_in_them() -> None:
    asked = [Asked(at_s=4.0 * number, prompt=10, answer=21) for number in range(11)]
    observed = Simulated(slots=2, step_s=0.09, sequence_s=0.01, prompt_token_s=0.001).serve(asked)
    found = telemetry_of(observed)
    assert found.slots == 2
    assert found.busy_slots == pytest.approx((0.1 + 20 * 0.1) / 4.0)
    assert found.all_busy_share == 0.0
    assert found.decode_step_s == pytest.approx(0.1)
    assert found.sequences_per_step == 1.0


def test_a_server_at_its_limit_has_all_slots_busy() -> None:
    observed = Simulated(slots=2).serve([Asked(at_s=0.5 * number) for number in range(60)])
    found = telemetry_of(observed)
    assert found.all_busy_share is not None
    assert found.all_busy_share > 0.95


def test_steps_at_a_lower_frequency_and_reads_are_shares_of_the_steps_time() -> None:
    server = Simulated(
        khz=lambda at_s: HIGHEST_KHZ // 2 if at_s >= 50 else HIGHEST_KHZ,
        read_bytes=lambda at_s: 20_000_000 if at_s < 50 else 0,
    )
    found = telemetry_of(server.serve([Asked(at_s=5.0 * number) for number in range(20)]))
    assert found.throttled_share is not None
    assert 0.4 < found.throttled_share < 0.6
    assert found.storage_share == pytest.approx(0.5 * 0.1 / 0.215, rel=0.15)
    assert found.read_bytes == 20_000_000 * 200


def test_requests_that_queue_for_milliseconds_are_not_slow() -> None:
    server = Simulated(slots=1, step_s=0.001, sequence_s=0.0, prompt_token_s=0.0)
    observed = server.serve([Asked(at_s=0.0, answer=20), Asked(at_s=0.001, answer=2), *ALONE])
    assert whole(observed, 1).queued_s > 4 * whole(observed, 1).own_s
    assert causes_of(observed) == {}
