"""What a service sustains, on a simulated server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from armload.analysis.load.assessed import AssessedPoint, assess, slow_requests
from armload.analysis.load.capacity import Capacity, capacity_of
from armload.analysis.load.parts import Accounting
from armload.analysis.load.records import Objectives, Outcome
from armload.analysis.load.telemetry import ObservedPoint
from tests.unit.simulated_server import HIGHEST_KHZ, Asked, Simulated, records_of

CANCELLED: tuple[Outcome, ...] = ("cancelled",) * 6
OBJECTIVES = Objectives(ttft_s=2.0, tpot_s=0.3)


def points(
    server: Simulated,
    rates: Sequence[float],
    *,
    prompt: int = 16,
    objectives: Objectives = OBJECTIVES,
) -> list[AssessedPoint]:
    return [
        assessed(
            server.serve(
                [Asked(at_s=number / rate, prompt=prompt) for number in range(200)], rate=rate
            ),
            objectives,
        )
        for rate in rates
    ]


def assessed(observed: ObservedPoint, objectives: Objectives | None) -> AssessedPoint:
    return assess(observed, slow_requests(Accounting(observed), objectives).causes, objectives)


def found(points: Sequence[AssessedPoint]) -> Capacity:
    capacity = capacity_of(points)
    assert capacity is not None
    return capacity


def test_a_server_whose_slots_are_taken_lets_requests_queue() -> None:
    capacity = found(points(Simulated(slots=4), (0.5, 1, 4)))
    assert (capacity.rate, capacity.bottleneck) == (1, "queued")
    assert capacity.sentence.startswith(
        "Sustains 1 request/s within the SLO, with 95% confidence (100% of 200 requests). At 4 "
        "requests/s ("
    )
    assert "requests queue: all four slots were busy 9" in capacity.sentence
    assert "a decode step took 140 ms for 4.0 requests." in capacity.sentence


def test_a_server_that_is_never_overloaded_sustains_the_highest_rate_or_more() -> None:
    capacity = found(points(Simulated(), (0.1, 0.2)))
    assert (capacity.rate, capacity.bottleneck) == (0.2, None)
    assert capacity.sentence == (
        "Sustains 0.2 requests/s or more within the SLO, with 95% confidence (100% of 200 "
        "requests)."
    )


def test_a_server_that_is_too_slow_for_one_request_sustains_nothing() -> None:
    capacity = found(points(Simulated(step_s=0.5), (0.01, 0.02)))
    assert (capacity.rate, capacity.bottleneck) == (None, "own length")
    assert capacity.sentence.startswith("Does not sustain 0.01 requests/s within the SLO (0% of")


@pytest.mark.parametrize(
    ("repeats", "rate", "refuted"),
    [("ssn", 1, None), ("sn", None, None), ("nns", None, 1), ("ssnn", None, None), ("s", 1, None)],
)
def test_most_repeats_of_a_rate_decide_whether_it_is_sustained(
    repeats: str, rate: float | None, refuted: float | None
) -> None:
    sustained, overloaded = points(Simulated(slots=4), (1, 4))
    kinds = {"s": sustained, "n": overloaded.model_copy(update={"rate": 1})}
    capacity = found([kinds[each] for each in repeats])
    assert (capacity.rate, capacity.refuted) == (rate, refuted)


def test_a_rate_above_one_that_is_not_sustained_does_not_count() -> None:
    low, high = points(Simulated(slots=4), (4, 0.5))
    lucky = high.model_copy(update={"rate": 8})
    assert found([low, lucky]).rate is None


def overloaded(**point: str) -> AssessedPoint:
    observed = Simulated(slots=4).serve([Asked(at_s=number / 4) for number in range(200)], rate=4)
    changed = observed.point.model_copy(update=point)
    return assessed(replace(observed, point=changed), OBJECTIVES)


def test_a_point_in_which_the_service_ended_shows_nothing_of_its_rate() -> None:
    assert found([overloaded()]).refuted == 4
    assert capacity_of([overloaded(service_ended="kitchen: the board restarted.")]) is None


def test_requests_that_this_machine_could_not_send_are_not_held_against_the_service() -> None:
    observed = Simulated(slots=4).serve([Asked(at_s=number * 2.0) for number in range(200)], rate=1)
    records = tuple(
        each.model_copy(update={"outcome": "client-limit"}) if each.number % 2 else each
        for each in records_of(observed)
    )
    assert capacity_of([assessed(replace(observed, records=records), OBJECTIVES)]) is None


def test_long_prompts_are_named_as_the_bottleneck() -> None:
    server = Simulated(slots=8, prompt_token_s=0.002)
    slow = points(server, (0.05, 1), prompt=400, objectives=Objectives(tpot_s=0.25))
    capacity = found(slow)
    assert capacity.bottleneck == "blocked by a prompt"
    assert "steps with prompts took" in capacity.sentence


def test_throttling_is_named_with_the_temperature() -> None:
    server = Simulated(khz=lambda at_s: HIGHEST_KHZ // 4 if at_s > 20 else HIGHEST_KHZ)
    capacity = found(points(server, (0.2,)))
    assert capacity.bottleneck == "throttling"
    assert "below their highest frequency, at up to 80 °C" in capacity.sentence


def test_a_few_good_requests_do_not_show_that_a_rate_is_sustained() -> None:
    few = Simulated().serve([Asked(at_s=5.0 * number) for number in range(60)], rate=0.2)
    many = Simulated().serve([Asked(at_s=5.0 * number) for number in range(200)], rate=0.2)
    undecided = found([assessed(few, OBJECTIVES)])
    assert (undecided.rate, undecided.refuted) == (None, None)
    assert undecided.headline == "may or may not sustain 0.2 requests/s within the SLO"
    assert found([assessed(many, OBJECTIVES)]).rate == 0.2


def test_without_objectives_nothing_is_said_to_be_sustained() -> None:
    observed = Simulated().serve([Asked(at_s=0.0)], rate=1)
    assert capacity_of([assessed(observed, None)]) is None


def with_outcomes(*outcomes: Outcome) -> AssessedPoint:
    """Ten requests at 0.1/s, the first of which ended so."""
    observed = Simulated().serve([Asked(at_s=9.0 * number) for number in range(10)], rate=0.1)
    ended = [
        record.model_copy(update={"outcome": outcome})
        for record, outcome in zip(records_of(observed), outcomes, strict=False)
    ]
    records = (*ended, *records_of(observed)[len(ended) :])
    return assessed(replace(observed, records=records), OBJECTIVES)


def test_a_server_that_fails_requests_is_said_to_fail_them() -> None:
    capacity = found([with_outcomes("dropped", "dropped", "dropped", "dropped")])
    assert capacity.bottleneck is None
    assert "Requests fail: 4 of 10, most often as dropped." in capacity.sentence


def test_a_server_that_dies_fails_also_the_requests_that_were_cancelled_then() -> None:
    capacity = found([with_outcomes("dropped", "dropped", *CANCELLED)])
    assert "Requests fail: 8 of 10, most often as dropped." in capacity.sentence


def test_a_load_that_a_person_ended_says_nothing_of_what_is_sustained() -> None:
    assert capacity_of([with_outcomes(*CANCELLED)]) is None
    whole = with_outcomes()
    below = [whole.model_copy(update={"rate": 0.05}), with_outcomes(*CANCELLED)]
    assert found(below).sentence.startswith("Undecided at 0.05 requests/s: 100% of 10 requests")


def test_a_rate_at_which_the_client_was_late_shows_only_that_it_is_sustained() -> None:
    low, high = (
        Simulated().serve([Asked(at_s=number / rate) for number in range(200)], rate=rate)
        for rate in (0.1, 0.2)
    )
    late = [
        record.model_copy(
            update={"begun_s": record.scheduled_s + 9, "end_s": record.end_s + 9}
            | {"chunks": tuple((at_s + 9, tokens) for at_s, tokens in record.chunks)}
        )
        for record in records_of(high)
    ]
    points = [assessed(low, OBJECTIVES), assessed(replace(high, records=tuple(late)), OBJECTIVES)]
    assert not points[1].metrics.valid
    assert found(points).sentence.startswith("Sustains 0.1 requests/s or more")
    assert capacity_of(points[1:]) is None
