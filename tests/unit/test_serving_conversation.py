"""Conversations, and users who give up, against services whose behaviour is known."""

from __future__ import annotations

import asyncio
import time
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.load.metrics import metrics_of
from armload.analysis.load.records import RequestRecord
from armload.core.errors import RunError
from armload.core.progress import Silent
from armload.serving import observation
from armload.serving.arrivals import Arrivals
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.conversation import Conversation
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import DIALECTS, dialect_named
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder
from armload.serving.loops import open_loop
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.users import Users, read_seconds
from armload.serving.workload import Listed, read_lengths
from tests.stub_service import answer_of, stub_service

ASKS = [CompletionRequest(prompt=prompt, max_tokens=3) for prompt in ("Who?", "When?", "Why?")]
ANSWER = answer_of(3)


ANSWERING = [each.name for each in DIALECTS if each.is_streamed]


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def users(turns: str = "", **seconds: str) -> Users:
    drawn = {name: read_seconds(name, text) for name, text in seconds.items()}
    length = read_lengths("turns", turns) if turns else None
    return Users.model_validate({"turns": length, **drawn})


def loaded(
    url: str,
    behave: Users,
    level: LoadLevel,
    dialect: str = "llama-server",
    *,
    arrivals: str = "constant",
    settings: dict[str, Any] | None = None,
    asks: list[CompletionRequest] = ASKS,
    **stop: Any,
) -> LoadFolder:
    target = LoadTarget(
        url=url, api_key="", model="stub", dialect=dialect_named(dialect), settings=settings
    )
    gaps = Arrivals.model_validate({"kind": arrivals})
    loading = LoadRunner(target, Listed(asks, "a file"), gaps, 1, Silent(), users=behave)
    return loading.run([level], StopCondition(**stop))


def held(records: list[RequestRecord]) -> list[list[RequestRecord]]:
    return [list(turns) for _, turns in groupby(records, key=lambda record: record.conversation)]


@pytest.mark.parametrize("dialect", ANSWERING)
def test_each_turn_quotes_the_servers_own_answers(dialect: str) -> None:
    with stub_service() as service:
        kept = loaded(service.url, users("3"), LoadLevel(concurrency=1), dialect, requests=1)
    bodies = [body for _, body in service.bodies]
    if dialect == "openai-chat":
        assert bodies[2]["messages"] == [
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": "When?"},
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": "Why?"},
        ]
    else:
        prompts = [str(body.get("prompt") or body.get("inputs")) for body in bodies]
        assert prompts[2] == f"Who?{ANSWER}\nWhen?{ANSWER}\nWhy?"
        assert prompts[2].startswith(f"{prompts[1]}{ANSWER}")
    # What is quoted is in the records once, as the answer that it was.
    assert [record.prompt for record in kept.requests(0)] == ["Who?", "When?", "Why?"]
    assert [(each.turn, each.turns) for each in kept.requests(0)] == [(0, 3), (1, 3), (2, 3)]


def test_a_models_thoughts_are_not_quoted() -> None:
    with stub_service(thoughts=2) as service:
        kept = loaded(service.url, users("2"), LoadLevel(concurrency=1), "openai-chat", requests=1)
    first = kept.requests(0)[0]
    assert (first.text, first.answer) == (ANSWER, ANSWER[len(answer_of(2)) :])
    quoted = service.bodies[1][1]["messages"][1]
    assert quoted == {"role": "assistant", "content": first.answer}


def test_a_later_turn_is_due_when_the_user_has_thought_about_the_answer() -> None:
    with stub_service(first_s=0.1) as service:
        kept = loaded(service.url, users("4", think="0.2"), LoadLevel(concurrency=1), requests=1)
    records = kept.requests(0)
    assert len(records) == 4
    for before, after in pairwise(records):
        assert after.scheduled_s == pytest.approx(before.end_s + 0.2)
        assert after.begun_s is not None
        assert after.scheduled_s <= after.begun_s < after.scheduled_s + 0.1


def test_a_rate_counts_conversations_and_so_does_the_warm_up() -> None:
    level = LoadLevel(rate=20, unit="conversations")
    with stub_service() as service:
        kept = loaded(service.url, users("uniform:1-5"), level, requests=12, warmup=2)
    records = kept.requests(0)
    assert [record.number for record in records] == list(range(len(records)))
    conversations = held(records)
    assert [turns[0].conversation for turns in conversations] == list(range(12))
    assert [turns[0].scheduled_s for turns in conversations] == pytest.approx(
        [number / 20 for number in range(12)]
    )
    assert all(len(turns) == turns[0].turns for turns in conversations)
    assert [turns[0].is_warmup for turns in conversations] == [True, True] + [False] * 10
    (point,) = kept.load.points
    found = metrics_of(point, records)
    assert found.conversations is not None
    assert found.conversations.ended == {"complete": 10}
    assert found.scheduled == len(records)
    assert str(level) == "20 conversations/s"
    assert kept.load.requests_from == "a file; conversations of uniform:1-5 turns"


def test_the_arrivals_of_the_seeds_client_stay_as_they_are() -> None:
    expected = Arrivals(kind="seed").schedule(40.0, duration_s=0.5, requests=None, seed=1)
    with stub_service() as service:
        alone = loaded(service.url, Users(), LoadLevel(rate=40), arrivals="seed", duration_s=0.5)
        talking = loaded(
            service.url, users("2"), LoadLevel(rate=40), arrivals="seed", duration_s=0.5
        )
    assert tuple(record.scheduled_s for record in alone.requests(0)) == expected
    assert {record.conversation for record in alone.requests(0)} == {None}
    begins = [turns[0].scheduled_s for turns in held(talking.requests(0))]
    assert tuple(begins) == expected


@pytest.mark.parametrize("dialect", ANSWERING)
def test_a_conversation_that_no_longer_fits_ends_as_such(dialect: str) -> None:
    asks = [ask.model_copy(update={"prompt": "word " * 20}) for ask in ASKS]
    with stub_service(context=80) as service:
        kept = loaded(
            *(service.url, users("9"), LoadLevel(concurrency=2), dialect), requests=4, asks=asks
        )
    conversations = held(kept.requests(0))
    assert len(conversations) == 4
    for turns in conversations:
        assert [record.outcome for record in turns[:-1]] == ["ok"] * (len(turns) - 1)
        assert (turns[-1].outcome, turns[-1].status) == ("context-full", 400)
        assert 1 < len(turns) < 9
    found = metrics_of(kept.load.points[0], kept.requests(0))
    assert found.conversations is not None
    assert found.conversations.ended == {"context-full": 4}
    assert {each.kind for each in found.findings} <= {"client late"}


def test_an_answer_that_fills_its_slot_ends_its_conversation() -> None:
    asks = [ASKS[0].model_copy(update={"max_tokens": 2}), ASKS[1]]
    with stub_service(tokens=2) as service:  # and of a prompt of 7
        level = LoadLevel(concurrency=1)
        kept = loaded(
            *(service.url, users("5"), level),
            settings={"context_tokens": 10},
            requests=1,
            asks=asks,
        )
        unknown = loaded(service.url, users("5"), level, requests=1, asks=asks)
    assert [record.outcome for record in kept.requests(0)] == ["ok", "context-full"]
    assert [record.outcome for record in unknown.requests(0)] == ["ok"] * 5


def test_a_first_prompt_that_does_not_fit_is_the_services_refusal() -> None:
    with stub_service(context=1) as service, pytest.raises(RunError, match="2 http"):
        loaded(service.url, users("3"), LoadLevel(concurrency=1), requests=2)


def test_a_turn_that_fails_ends_its_conversation() -> None:
    with stub_service(status=500, answered=4) as service:
        kept = loaded(service.url, users("3"), LoadLevel(concurrency=1), requests=3)
    outcomes = [record.outcome for record in kept.requests(0)]
    assert outcomes == ["ok"] * 4 + ["server-error"] * 2
    found = metrics_of(kept.load.points[0], kept.requests(0))
    assert found.conversations is not None
    assert found.conversations.ended == {"complete": 1, "failed": 2}


def test_every_turn_of_an_interrupted_load_has_an_outcome() -> None:
    records: list[RequestRecord] = []
    talk = Conversation(
        requests=tuple(ASKS), think_s=(600.0, 600.0), patience_s=(60.0,) * 3, stands_alone=False
    )

    async def run(url: str) -> None:
        async with connected("") as session:
            client = Client(session, url, dialect_named("openai"), "stub", 60)
            await open_loop(client, lambda: talk, [0.0, 0.1, 600.0], warmup=0, note=records.append)

    async def cancel(url: str) -> None:
        task = asyncio.create_task(run(url))
        while len(records) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with stub_service() as service:
        asyncio.run(cancel(service.url))
    records.sort(key=lambda record: record.number)
    found = [(record.number, record.conversation, record.outcome) for record in records]
    assert found == [
        (0, 0, "ok"),
        (1, 0, "cancelled"),
        (3, 1, "ok"),
        (4, 1, "cancelled"),
        (6, 2, "cancelled"),
    ]
    assert records[1].scheduled_s == pytest.approx(records[0].end_s + 600)


@pytest.mark.parametrize("dialect", ANSWERING)
def test_what_an_impatient_user_has_received_counts(dialect: str) -> None:
    ask = CompletionRequest(prompt="Who?", max_tokens=500)
    with stub_service(gap_s=0.02) as service:
        kept = loaded(
            *(service.url, users(patience="0.5"), LoadLevel(concurrency=2), dialect),
            requests=4,
            asks=[ask, ask.model_copy(update={"max_tokens": 3})],
        )
        deadline_s = time.monotonic() + 10
        while service.left < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert service.left == 2, "the connection was not closed"
        assert service.busy == 0
    records = kept.requests(0)
    assert sorted(record.outcome for record in records) == ["abandoned"] * 2 + ["ok"] * 2
    received = 0
    for record in records:
        if record.outcome == "abandoned":
            assert record.end_s - record.scheduled_s == pytest.approx(0.5, abs=0.2)
            assert record.text == answer_of(len(record.chunks))
            assert 2 < len(record.chunks) < 30
            received += len(record.chunks)
    (point,) = kept.load.points
    found = metrics_of(point, records)
    assert found.abandoned is not None
    assert (found.abandoned.requests, found.abandoned.unanswered) == (2, 0)
    assert found.abandoned.received_tokens == received
    assert found.output_tokens == received + 6
    assert found.from_scheduled.ttft is not None
    assert found.from_scheduled.ttft.count == 4
    assert found.from_scheduled.e2e is not None
    assert found.from_scheduled.e2e.count == 2
    assert point.freed_s is not None
    assert point.left_busy == 0
    assert {each.kind for each in found.findings} <= {"client late"}


def test_patience_counts_from_when_the_request_was_due_and_in_the_queue() -> None:
    ask = CompletionRequest(prompt="Who?", max_tokens=5)
    with stub_service(slots=1, gap_s=0.1) as service:
        kept = loaded(
            *(service.url, users(patience="0.7"), LoadLevel(rate=1000)), requests=3, asks=[ask]
        )
    outcomes = [(record.outcome, bool(record.chunks)) for record in kept.requests(0)]
    assert sorted(outcomes) == [("abandoned", False), ("abandoned", True), ("ok", True)]


def test_patience_counts_while_the_client_itself_holds_a_request_back() -> None:
    ask = CompletionRequest(prompt="Who?", max_tokens=5)
    with stub_service(gap_s=0.1) as service:
        level = LoadLevel(rate=1000, max_concurrency=1)
        kept = loaded(service.url, users(patience="0.7"), level, requests=3, asks=[ask])
        assert len(service.bodies) == 2
    first, second, third = kept.requests(0)
    assert (first.outcome, first.held_s) == ("ok", 0.0)
    assert (second.outcome, bool(second.chunks)) == ("abandoned", True)
    assert second.held_s == pytest.approx(0.5, abs=0.2)
    # The second gives up at the same time, so the third may just be let through.
    assert (third.outcome, third.sent_s) == ("abandoned", None)
    assert third.held_s == pytest.approx(0.7, abs=0.2)
    assert third.end_s - third.scheduled_s == pytest.approx(0.7, abs=0.2)


def test_a_service_that_works_on_for_users_who_have_left_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observation, "LET_GO_WITHIN_S", 0.5)
    ask = CompletionRequest(prompt="Who?", max_tokens=200)
    with stub_service(gap_s=0.02, notices=False) as service:
        kept = loaded(
            *(service.url, users(patience="0.3"), LoadLevel(concurrency=1)),
            requests=2,
            asks=[ask.model_copy(update={"max_tokens": 3}), ask],
        )
        service.behaviour.gap_s = 0.0
    (point,) = kept.load.points
    assert (point.freed_s, point.left_busy) == (None, 1)


def test_a_user_who_gives_up_does_not_come_back_and_is_no_failure_of_the_service() -> None:
    ask = CompletionRequest(prompt="Who?", max_tokens=500)
    with stub_service(gap_s=0.02) as service:
        kept = loaded(
            *(service.url, users("3", patience="0.3"), LoadLevel(concurrency=1)),
            requests=3,
            failures=1,
            asks=[ASKS[0], ask],
        )
    (conversation, *_) = conversations = held(kept.requests(0))
    assert [record.outcome for record in conversation] == ["ok", "abandoned"]
    assert len(conversations) == 3
    found = metrics_of(kept.load.points[0], kept.requests(0))
    assert found.conversations is not None
    assert found.conversations.ended["abandoned"] >= 1


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_what_a_server_has_cached_is_told_by_its_usage(dialect: str) -> None:
    with stub_service(cached=5) as service:
        kept = loaded(service.url, users("2"), LoadLevel(concurrency=1), dialect, requests=2)
        service.behaviour.cached = None
        silent = loaded(service.url, users("2"), LoadLevel(concurrency=1), dialect, requests=2)
    found = metrics_of(kept.load.points[0], kept.requests(0)).prompt_reuse
    assert found is not None
    assert (found.cached_tokens, found.prompt_tokens) == (20, 28)
    assert found.hit_rate == pytest.approx(5 / 7)
    assert metrics_of(silent.load.points[0], silent.requests(0)).prompt_reuse is None
