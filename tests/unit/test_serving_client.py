"""One request to a service: its outcome, text and tokens, whatever the dialect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from armload.analysis.load.records import RequestRecord
from armload.core.errors import UsageError
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest
from armload.serving.dialects.registry import DIALECTS, dialect_named
from tests.stub_service import ASK, answer_of, stub_service

STREAMED = [each.name for each in DIALECTS if each.is_streamed]


def sent(
    url: str, dialect: str = "llama-server", ask: CompletionRequest = ASK, timeout_s: float = 60
) -> Any:
    async def send() -> RequestRecord:
        async with connected("") as session:
            client = Client(session, url, dialect_named(dialect), "stub", timeout_s)
            return await client.send(ask, number=0, scheduled_s=0.0)

    return asyncio.run(send())


@pytest.mark.parametrize("dialect", STREAMED)
def test_every_dialect_reads_text_tokens_and_the_end(dialect: str) -> None:
    with stub_service() as service:
        record = sent(service.url, dialect)
    assert (record.outcome, record.error) == ("ok", "")
    assert record.text == answer_of(4)
    assert record.generated_tokens == 4
    assert len(record.chunks) == 4
    assert record.finish_reason in ("length", "limit")
    assert record.sent_s < record.header_s <= record.chunks[0][0] <= record.end_s
    path, body = service.bodies[0]
    assert path == dialect_named(dialect).path
    assert "Once upon" in json.dumps(body)


def test_an_embedding_comes_in_one_piece_however_it_is_laid_out() -> None:
    with stub_service(dimensions=12, first_s=0.05) as service:
        record = sent(service.url, "openai-embeddings")
        service.behaviour.dimensions = 0
        empty = sent(service.url, "openai-embeddings")
    assert (record.outcome, record.dimensions, record.prompt_tokens) == ("ok", 12, 2)
    assert (record.chunks, record.generated_tokens, record.limit_tokens) == ((), None, None)
    assert record.end_s - record.sent_s >= 0.05
    assert service.bodies[0] == ("/v1/embeddings", {"model": "stub", "input": "Once upon"})
    assert empty.outcome == "malformed"


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_answer_that_the_context_has_cut_off_is_known_in_every_dialect(dialect: str) -> None:
    with stub_service(tokens=3) as service:
        cut = sent(service.url, dialect, ASK)
        whole = sent(service.url, dialect, ASK.model_copy(update={"max_tokens": 3}))
    assert (cut.outcome, cut.is_cut_off) == ("ok", True)
    assert (whole.outcome, whole.is_cut_off) == ("ok", False)


def test_the_servers_own_timings_and_counts_are_kept() -> None:
    with stub_service() as service:
        record = sent(service.url)
    assert [tokens for _, tokens in record.chunks] == [1, 2, 3, 4]
    assert record.prompt_tokens == 7
    assert record.cached_tokens == 2
    assert (record.timings.prompt_ms, record.timings.generated_ms) == (1.5, 2.5)


def test_both_forms_of_an_event_of_llm_serving_are_read() -> None:
    with stub_service(data_in_list=False) as service:
        record = sent(service.url, "llm-serving")
    assert (record.text, record.generated_tokens) == (answer_of(4), 4)
    assert service.bodies[0][1]["parameters"] == {
        "max_new_tokens": 4,
        "do_sample": "False",
        "return_full_text": "True",
    }


def test_a_chat_goes_to_a_dialect_that_has_chats() -> None:
    ask = CompletionRequest(messages=(ChatMessage(role="user", content="Hello"),), max_tokens=3)
    with stub_service() as service:
        assert sent(service.url, "openai-chat", ask).outcome == "ok"
        assert service.bodies[0][1]["messages"] == [{"role": "user", "content": "Hello"}]
        with pytest.raises(UsageError, match="takes a prompt"):
            sent(service.url, "openai", ask)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_the_thoughts_of_a_model_count_as_text(key: str) -> None:
    with stub_service(thoughts=2, thoughts_key=key) as service:
        record = sent(service.url, "openai-chat")
    assert (record.text, len(record.chunks)) == (answer_of(4), 4)


@pytest.mark.parametrize("dialect", ["openai", "openai-chat", "llama-server"])
def test_an_answer_of_a_fixed_length_ignores_the_models_end(dialect: str) -> None:
    with stub_service() as service:
        sent(service.url, dialect, ASK.model_copy(update={"ignores_end": True}))
        sent(service.url, dialect)
    (_, fixed), (_, free) = service.bodies
    assert fixed["ignore_eos"] is True
    assert "ignore_eos" not in free


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_answer_that_is_cut_off_is_a_failure_that_keeps_its_text(dialect: str) -> None:
    with stub_service(cut_after=2) as service:
        record = sent(service.url, dialect)
    assert record.outcome == "dropped"
    assert record.text == answer_of(2)


@pytest.mark.parametrize(
    ("behaviour", "outcome", "error"),
    [
        ({"status": 400}, "http", "as told"),
        ({"status": 500}, "server-error", "as told"),
        ({"error_after": 1}, "server-error", "out of cells"),
    ],
)
def test_an_error_of_the_service_is_recorded_in_its_own_words(
    behaviour: dict[str, Any], outcome: str, error: str
) -> None:
    with stub_service(**behaviour) as service:
        record = sent(service.url, "openai")
    assert (record.outcome, record.error) == (outcome, error)


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_an_answer_that_ends_properly_without_a_reason_is_complete(dialect: str) -> None:
    with stub_service(ends="done") as service:
        whole = sent(service.url, dialect)
        service.behaviour.tokens = 0
        empty = sent(service.url, dialect)
    assert (whole.outcome, whole.finish_reason, whole.text) == ("ok", "unknown", answer_of(4))
    assert empty.outcome == "dropped"


def test_lines_that_are_no_events_are_counted() -> None:
    with stub_service(garbage=b"<p>wait</p>\n: ping\nretry: 5\n") as service:
        record = sent(service.url, "openai")
    assert (record.outcome, record.ignored_lines, record.text) == ("ok", 4, answer_of(4))


def test_a_request_that_takes_too_long_has_timed_out() -> None:
    with stub_service(gap_s=30) as service:
        record = sent(service.url, timeout_s=0.2)
    assert (record.outcome, record.text) == ("timeout", answer_of(1))


@pytest.mark.parametrize("answers_at", ["/completion", "/metrics"])
def test_a_stream_of_another_protocol_is_malformed(answers_at: str) -> None:
    with stub_service() as service:

        class Mixed(type(dialect_named("openai"))):  # type: ignore[misc]
            path = answers_at

        async def send() -> RequestRecord:
            async with connected("") as session:
                client = Client(session, service.url, Mixed(), "stub", 60)
                return await client.send(ASK, number=0, scheduled_s=0.0)

        record = asyncio.run(send())
    assert record.outcome == "malformed"
    assert "dialect openai" in record.error
