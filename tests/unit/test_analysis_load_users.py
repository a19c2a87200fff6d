"""What users did over time, from records whose figures are known."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.capacity import capacity_of
from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.quantiles import Quantile
from armload.analysis.load.records import (
    LoadPoint,
    RequestRecord,
    ServerTimings,
    read_objectives,
)
from armload.analysis.load.telemetry import Telemetry
from armload.report.load.loaded import about_users

TURNS = 3


def turn(conversation: int, turn: int, begins_s: float, **known: Any) -> RequestRecord:
    """Three turns, each answered within 1 s, and 4 s after the one before."""
    at_s = begins_s + 5.0 * turn
    fields: dict[str, Any] = {
        "number": TURNS * conversation + turn,
        "conversation": conversation,
        "turn": turn,
        "turns": TURNS,
        "scheduled_s": at_s,
        "begun_s": at_s,
        "sent_s": at_s,
        "header_s": at_s + 0.1,
        "chunks": ((at_s + 0.2, 1), (at_s + 1.0, 5)),
        "end_s": at_s + 1.0,
        "outcome": "ok",
        "prompt_tokens": 10 + 10 * turn,
        "generated_tokens": 5,
        "limit_tokens": 5,
        "cached_tokens": 10 * turn,
        "timings": ServerTimings(prompt_ms=1.0),
    }
    return RequestRecord(**(fields | known))


def alone(number: int, at_s: float, **known: Any) -> RequestRecord:
    """The first turn, as a request of its own."""
    record = turn(number, 0, at_s, number=number, **known)
    return record.model_copy(update={"conversation": None})


def conversation(number: int, begins_s: float, **last: Any) -> list[RequestRecord]:
    turns = [turn(number, place, begins_s) for place in range(TURNS - 1)]
    return [*turns, turn(number, TURNS - 1, begins_s, **last)]


def figures(
    records: list[RequestRecord],
    slo: str = "",
    slots: int | None = 4,
    **known: Any,
) -> Metrics:
    fields: dict[str, Any] = {
        "rate": 0.5,
        "requests": len(records),
        "started_utc": "",
        "began_client_s": 0.0,
    }
    point = LoadPoint(**(fields | known))
    return metrics_of(point, records, read_objectives(slo), slots=slots)


def test_conversations_are_counted_by_how_they_ended() -> None:
    cut = conversation(4, 8.0)[:2]
    found = figures(
        [
            *conversation(0, 0.0),
            *conversation(1, 2.0, outcome="context-full"),
            *conversation(2, 4.0, outcome="abandoned"),
            *conversation(3, 6.0, outcome="timeout"),
            *cut,
        ]
    ).conversations
    assert found is not None
    assert found.ended == {
        "complete": 1,
        "context-full": 1,
        "abandoned": 1,
        "failed": 1,
        "cancelled": 1,
    }
    assert (found.begun, found.turns, found.length_s) == (5, 14 / 5, 11.0)
    assert found.begun_per_s == pytest.approx(0.5)


def test_nine_of_ten_conversations_are_no_longer_than_the_length_that_is_given() -> None:
    held = [conversation(number, 100.0 * number) for number in range(4)]
    longest = conversation(4, 400.0, end_s=450.0)
    found = figures([record for turns in (*held, longest) for record in turns]).conversations
    assert found is not None
    assert found.length_s == 50.0


def test_how_conversations_ended_is_said_in_a_sentence() -> None:
    complete, outgrown = conversation(0, 0.0), conversation(1, 2.0, outcome="context-full")
    assert (
        about_users(figures(complete))[0] == "1 conversation of 3 turns on average, all complete."
    )
    assert about_users(figures([*complete, *outgrown]))[0] == (
        "2 conversations of 3 turns on average: 1 complete, 1 outgrew the context of a slot."
    )


def test_requests_that_stand_alone_are_no_conversations() -> None:
    found = figures([alone(number, float(number)) for number in range(5)], rate=1.0)
    assert (found.conversations, found.abandoned) == (None, None)
    assert found.offered_per_s == pytest.approx(1.0)


def test_the_rate_of_a_point_is_that_of_conversations() -> None:
    held = [each for number in range(40) for each in conversation(number, 2.0 * number)]
    found = figures(held)
    assert found.offered_per_s is None
    point = AssessedPoint(rate=0.5, concurrency=None, metrics=found, telemetry=Telemetry(), slow={})
    assert point.label == "0.5 conversations/s"


def test_turns_are_worth_no_more_than_their_conversations() -> None:
    held = [each for number in range(40) for each in conversation(number, 2.0 * number)]
    each = [record.model_copy(update={"conversation": None}) for record in held]
    each.sort(key=lambda record: record.scheduled_s)
    assert figures(each, rate=1.5).independent > 60
    found = figures(held)
    assert 16 <= found.independent <= 40
    closed = figures(held, rate=None, concurrency=4)
    assert closed.independent == 10.0
    assert closed.conversations is not None
    assert closed.conversations.begun_per_s is None


def test_a_load_that_is_all_beginning_has_no_interval_and_says_why() -> None:
    # A conversation takes 11 s: at first there are fewer turns than later.
    held = [each for number in range(40) for each in conversation(number, 0.5 * number)]
    found = figures(held, rate=2.0)
    assert (found.independent, found.steady) == (0.0, None)
    assert found.from_scheduled.e2e is not None
    assert found.from_scheduled.e2e.median.low_s is None
    assert found.conversations is not None
    assert found.conversations.no_steady_state().startswith(
        "no confidence intervals: conversations take 11 s, but new ones began for only 19.5 s"
    )
    longer = [each for number in range(80) for each in conversation(number, 0.5 * number)]
    steady = figures(longer, rate=2.0)
    assert steady.steady is not None
    assert steady.conversations is not None
    assert steady.conversations.no_steady_state() == ""


def test_the_steady_state_is_of_the_rate_of_turns_without_beginning_and_end() -> None:
    held = [each for number in range(100) for each in conversation(number, 2.0 * number)]
    steady = figures(held).steady
    assert steady is not None
    assert steady.length_s == pytest.approx(198.0 - 11.0, abs=2.5)
    compared = figures([alone(number, number / 1.5) for number in range(300)], rate=1.5).steady
    assert compared is not None
    assert steady.correlation_s == pytest.approx(compared.correlation_s, rel=0.05)


def clustered(seed: int) -> list[RequestRecord]:
    """All turns of a conversation take about as long, and conversations differ; median 1 s."""
    generator, records = random.Random(seed), []
    for number in range(40):
        own = generator.gauss(0.0, 0.8)
        for place in range(12):
            at_s = 10.0 * number + 0.2 * place
            end_s = at_s + 0.05 * pow(2.718281828, own + generator.gauss(0.0, 0.1))
            times = {"scheduled_s": at_s, "header_s": at_s, "sent_s": at_s, "end_s": end_s}
            records.append(turn(number, place, 0.0, **times, turns=12, number=12 * number + place))
    return records


def test_an_interval_of_turns_does_not_claim_that_they_are_independent() -> None:
    def covers(found: Quantile | None) -> bool:
        assert found is not None
        assert found.low_s is not None
        assert found.high_s is not None
        return found.low_s <= 0.05 <= found.high_s

    as_turns, as_requests = [], []
    for seed in range(60):
        records = clustered(seed)
        each = [record.model_copy(update={"conversation": None}) for record in records]
        random.Random(seed).shuffle(each)
        found = figures(records, rate=0.1).from_scheduled.e2e
        as_turns.append(covers(found.median if found else None))
        as_one = metrics_of(
            LoadPoint(concurrency=1, requests=len(each), started_utc="", began_client_s=0.0), each
        ).from_scheduled.e2e
        as_requests.append(covers(as_one.median if as_one else None))
    assert statistics.fmean(as_turns) >= 0.9
    # What would be claimed of the same times if each were an observation of its own.
    assert statistics.fmean(as_requests) < 0.7


def test_an_abandoned_request_is_outside_the_objectives_and_its_tokens_count() -> None:
    left = alone(1, 1.0, outcome="abandoned", generated_tokens=None)
    unanswered = alone(2, 2.0, outcome="abandoned", generated_tokens=None, chunks=())
    found = figures([alone(0, 0.0), left, unanswered], slo="e2e=9s", freed_s=0.25)
    assert found.failed == {"abandoned": 2}
    assert found.goodput is not None
    assert found.goodput.good == 1
    assert found.goodput.share == pytest.approx(1 / 3)
    assert found.abandoned is not None
    assert (found.abandoned.requests, found.abandoned.unanswered) == (2, 1)
    assert found.abandoned.received_tokens == 5
    assert found.abandoned.freed_s == 0.25
    assert found.output_tokens == 10
    assert found.output_tokens_per_s == pytest.approx(10 / 3.0)
    assert found.from_scheduled.ttft is not None
    assert found.from_scheduled.ttft.count == 2
    assert found.valid
    (said,) = about_users(found)
    assert said == (
        "users abandoned 2 of 3 requests, 1 of them before any text arrived. End-to-end latencies "
        "cover only the other requests, which were faster."
    )


def test_a_rate_at_which_users_give_up_is_not_sustained_for_that_reason() -> None:
    records = [alone(number, float(number)) for number in range(10)]
    records += [alone(number, float(number), outcome="abandoned") for number in range(10, 30)]
    found = figures(records, slo="e2e=9s", rate=1.0)
    point = AssessedPoint(rate=1.0, concurrency=None, metrics=found, telemetry=Telemetry(), slow={})
    capacity = capacity_of([point])
    assert capacity is not None
    assert capacity.sentence == (
        "Does not sustain 1 request/s within the SLO (33% of 30 requests). Users give up: 20 of "
        "30 requests."
    )


def test_a_point_of_which_users_abandon_everything_shows_nothing() -> None:
    found = figures([alone(number, float(number), outcome="abandoned") for number in range(3)])
    assert [each.kind for each in found.findings] == ["none succeeded"]
    assert found.output_tokens == 15


def test_a_service_that_works_on_after_users_have_left_is_named() -> None:
    left = alone(1, 1.0, outcome="abandoned")
    (said, _) = about_users(figures([alone(0, 0.0, cached_tokens=1), left], left_busy=2))
    assert "2 requests kept the service busy: it may not notice that users have left." in said


def test_the_share_of_cached_tokens_is_of_all_prompts_that_tell() -> None:
    silent = turn(1, 0, 2.0, cached_tokens=None)
    found = figures([*conversation(0, 0.0), silent])
    assert found.prompt_reuse is not None
    assert (found.prompt_reuse.cached_tokens, found.prompt_reuse.prompt_tokens) == (30, 60)
    assert found.prompt_reuse.hit_rate == 0.5
    assert about_users(found)[-1] == (
        "50% of the prompt tokens came from the server's cache (30 of 60)."
    )
    assert figures([silent]).prompt_reuse is None
