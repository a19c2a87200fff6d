"""How long a load takes is told before it begins, by one request."""

from __future__ import annotations

from typing import Any

import pytest

from armload.core.progress import Silent
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import DIALECTS, dialect_named
from armload.serving.expected import (
    AloneRequest,
    duration_sentence,
    expected,
    measure_alone,
    point_duration_sentence,
    sized,
)
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.users import Users
from armload.serving.workload import Lengths, Listed, Synthetic, read_lengths
from tests.stub_service import stub_service

WORDS = ["once", "upon", "tale", "time"]
CONSTANT = Arrivals(kind="constant")
LENGTHS = (read_lengths("prompt-tokens", "128"), read_lengths("n-predict", "128"))
SLOW = AloneRequest(prompt_s=6.6, prompt_characters=128 * 5 - 1, token_s=0.1)
"""128 tokens after a prompt of 128 take 19.3 s."""


def synthetic(prompt: Lengths, answer: Lengths) -> Synthetic:
    return Synthetic(
        prompt=prompt, answer=answer, stops_at_end=False, seed=1, words=WORDS, unit="tokens"
    )


def span(level: LoadLevel, slots: int | None = 4, alone: AloneRequest = SLOW, **stop: Any) -> Any:
    work = synthetic(*LENGTHS)
    return expected(alone, work, [level], StopCondition(**stop), CONSTANT, 1, slots=slots)


@pytest.mark.parametrize("dialect", [each.name for each in DIALECTS if each.is_streamed])
def test_one_request_is_measured_by_a_short_answer_of_its_own(dialect: str) -> None:
    with stub_service(first_s=0.3, gap_s=0.1) as service:
        aim = LoadTarget(url=service.url, dialect=dialect_named(dialect), api_key="", model="stub")
        work = synthetic(*LENGTHS)
        alone = measure_alone(aim, work, 60, Silent())
    assert alone is not None
    assert alone.prompt_s >= 0.3
    assert alone.token_s >= 0.09
    assert alone.prompt_characters == 128 * 5 - 1
    ((_, body),) = service.bodies
    assert "8" in {str(value) for value in [*body.values(), *body.get("parameters", {}).values()]}
    assert work.request(0).prompt not in str(body)


@pytest.mark.parametrize("behaviour", [{"status": 400}, {"cut_after": 2}, {"tokens": 0}])
def test_a_request_that_is_not_answered_tells_nothing(behaviour: dict[str, Any]) -> None:
    with stub_service(**behaviour) as service:
        aim = LoadTarget(url=service.url, dialect=dialect_named("openai"), api_key="", model="stub")
        assert (
            measure_alone(
                aim, Listed([CompletionRequest(prompt="Hi", max_tokens=4)], "f"), 60, Silent()
            )
            is None
        )


def test_an_answer_of_one_token_takes_what_its_prompt_takes() -> None:
    request = CompletionRequest(prompt="x" * 64, max_tokens=1)
    alone = AloneRequest(prompt_s=2.0, prompt_characters=128, token_s=5.0)
    assert alone.request_s(request) == 1.0


@pytest.mark.parametrize(
    ("found", "least_s", "most_s"),
    [
        (span(LoadLevel(rate=0.5), duration_s=40), 20 * 19.3 / 4, 20 * 19.3),
        (span(LoadLevel(rate=0.01), duration_s=400), 300 + 19.3, 300 + 19.3),
        (span(LoadLevel(rate=0.5), slots=None, duration_s=40), 38 + 19.3, 20 * 19.3),
        (span(LoadLevel(rate=0.5), slots=1, requests=10), 193, 193),
        (span(LoadLevel(concurrency=2), requests=10), 193 / 2, 193),
        (span(LoadLevel(concurrency=8), requests=16), 16 / 4 * 19.3, 16 * 19.3),
        (span(LoadLevel(concurrency=2), duration_s=60), 60 + 19.3, 60 + 2 * 19.3),
        (span(LoadLevel(concurrency=2), duration_s=600, requests=4), 4 / 2 * 19.3, 4 * 19.3),
    ],
)
def test_a_load_takes_as_long_as_its_requests_and_the_slots_say(
    found: Any, least_s: float, most_s: float
) -> None:
    assert found.least_s == pytest.approx(least_s)
    assert found.most_s == pytest.approx(most_s)


def test_lengths_that_fit_the_duration_are_offered_and_do_fit() -> None:
    level = LoadLevel(rate=0.5)
    found = span(level, duration_s=40)
    assert duration_sentence(found, [level], LENGTHS) == (
        "One request takes about 19 s alone; the load takes about 96 s to 6.4 min. To finish in "
        "about the planned duration, use --prompt-tokens 13 --n-predict 13."
    )
    shorter = synthetic(*(each.scaled(found.fitting_share) for each in LENGTHS))
    again = expected(SLOW, shorter, [level], StopCondition(duration_s=40), CONSTANT, 1, slots=4)
    assert again.fitting_share == 1


@pytest.mark.parametrize(
    ("levels", "lengths", "share", "offered"),
    [
        ([LoadLevel(rate=1), LoadLevel(rate=2)], None, 0.1, "lower rates (--rate)"),
        ([LoadLevel(concurrency=4)], None, 0.1, "a longer --duration"),
        ([LoadLevel(concurrency=4)], LENGTHS, 0.1, "--prompt-tokens 12 --n-predict 12"),
        ([LoadLevel(rate=1)], None, 0.1, "--rate 0.1"),
        ([LoadLevel(rate=1)], None, 0.01, "--rate 0.01 --duration 400"),
        ([LoadLevel(rate=1)], LENGTHS, 0.0125, "--prompt-tokens 8 --n-predict 8 --rate 0.2"),
        (
            [LoadLevel(rate=1)],
            (read_lengths("", "uniform:16-128"), read_lengths("", "lognormal:100:0.8")),
            0.1,
            "--prompt-tokens uniform:1-12 --n-predict lognormal:10:0.8",
        ),
        (
            [LoadLevel(rate=1)],
            (read_lengths("", "4"), read_lengths("", "128")),
            0.1,
            "--rate 0.1",
        ),
    ],
)
def test_what_is_offered_suits_the_load(
    levels: list[LoadLevel], lengths: tuple[Lengths, Lengths] | None, share: float, offered: str
) -> None:
    found = span(LoadLevel(rate=1), duration_s=60).model_copy(update={"most_s": 60 / share})
    _, _, longer_s = offered.partition("--duration ")
    in_time = f"{longer_s} s" if longer_s else "the planned duration"
    assert duration_sentence(found, levels, lengths).endswith(
        f"To finish in about {in_time}, use {offered}."
    )


def test_a_service_of_unknown_slots_may_answer_one_request_at_a_time() -> None:
    level = LoadLevel(rate=0.5)
    slow = AloneRequest(prompt_s=11.9, prompt_characters=19, token_s=0.1)
    lengths = (read_lengths("prompt-tokens", "4"), read_lengths("n-predict", "2"))
    found = expected(
        slow, synthetic(*lengths), [level], StopCondition(duration_s=5), CONSTANT, 1, slots=None
    )
    assert duration_sentence(found, [level], lengths) == (
        "One request takes about 12 s alone; the load takes about 16 s, or 36 s if the service "
        "answers one request at a time. To finish in about 58 s even then, use --rate 0.069 "
        "--duration 58."
    )


def test_a_load_that_fits_is_told_without_offers() -> None:
    quick = SLOW.model_copy(update={"prompt_s": 0.01, "token_s": 0.001})
    found = span(LoadLevel(rate=0.5), alone=quick, duration_s=40)
    assert duration_sentence(found, [LoadLevel(rate=0.5)], LENGTHS) == (
        "One request takes about 0.14 s alone; the load takes about 38 s."
    )


@pytest.mark.parametrize(
    ("alone", "duration_s", "warmup_s"),
    [
        (SLOW, 600.0, 100.0),
        (AloneRequest(prompt_s=0.1, prompt_characters=128 * 5 - 1, token_s=0.0), 100.0, 100 / 6),
        (AloneRequest(prompt_s=0.01, prompt_characters=128 * 5 - 1, token_s=0.0), 60.0, 10.0),
        (None, 60.0, 10.0),
    ],
)
def test_a_rate_lasts_as_long_as_its_requests_need_within_ten_minutes(
    alone: AloneRequest | None, duration_s: float, warmup_s: float
) -> None:
    most = StopCondition(duration_s=600.0, warmup_s=100.0, timeout_s=7.0)
    found = sized(most, alone, synthetic(*LENGTHS), Users())
    assert found.duration_s == pytest.approx(duration_s)
    assert found.warmup_s == pytest.approx(warmup_s)
    assert found.timeout_s == 7.0


def test_how_long_a_rate_lasts_is_said_with_its_warm_up() -> None:
    said = point_duration_sentence(StopCondition(duration_s=600.0, warmup_s=100.0))
    assert said == "Each rate lasts 10 min, of which the first 100 s are warm-up (not counted)."
