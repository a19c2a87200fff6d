"""What a client believes of an answer: every habit of a service, on a real socket."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from armload.analysis.load.latency import severity, tpot_s
from armload.analysis.load.metrics import metrics_of
from armload.analysis.load.records import LoadPoint, Objectives, RequestRecord
from armload.serving import answer
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import dialect_named
from tests.raw_service import (
    DONE,
    HEAD,
    JSON_HEAD,
    Piece,
    RawService,
    delta,
    event,
    last,
    raw_service,
    spaced,
    usage,
)

WORDS = (" a", " b", " c", " d")
ASK = CompletionRequest(prompt="one two three", max_tokens=8)
EASY = Objectives(ttft_s=100.0, tpot_s=100.0, e2e_s=100.0)
FOUR = tuple(delta(word) for word in WORDS)


def sent(
    service: RawService,
    *,
    ask: CompletionRequest = ASK,
    dialect: str = "openai-chat",
    key: str = "",
    timeout_s: float = 20.0,
) -> RequestRecord:
    async def send() -> RequestRecord:
        async with connected(key) as session:
            client = Client(session, service.url, dialect_named(dialect), "m", timeout_s)
            return await client.send(ask, number=0, scheduled_s=0.0)

    return asyncio.run(send())


def answered(*pieces: Piece, **how: Any) -> RequestRecord:
    with raw_service(*pieces) as service:
        return sent(service, **how)


def kinds(record: RequestRecord, objectives: Objectives = EASY) -> set[str]:
    """Return why a load of this one request is not valid, and check its goodput."""
    point = LoadPoint(rate=1.0, requests=1, started_utc="", began_client_s=0.0)
    found = metrics_of(point, [record], objectives)
    assert found.goodput is not None
    assert found.goodput.good == (severity(record, objectives) <= 1)
    assert found.valid == (not found.findings)
    return {str(each.kind) for each in found.findings} - {"client late"}


def test_an_answer_of_a_token_each_is_observed_and_good() -> None:
    record = answered(*spaced(*FOUR, last(), usage(4)))
    assert (record.outcome, record.text, record.generated_tokens) == ("ok", " a b c d", 4)
    assert record.later_tokens == 3
    assert 0.02 < (tpot_s(record) or 0) < 5
    assert not kinds(record)
    assert severity(record, EASY) <= 1


FUNCTION = {"name": "f", "arguments": '{"x": 1}'}


@pytest.mark.parametrize(
    ("contents", "text", "content"),
    [
        ([{**each, "error": None} for each in FOUR], " a b c d", " a b c d"),
        ([delta(""), delta(None), *FOUR], " a b c d", " a b c d"),
        ([{"choices": []}, {"choices": [{"index": 0, "delta": None}]}, *FOUR], " a b c d", None),
        ([{**each, "usage": None} for each in FOUR], " a b c d", None),
        ([{"choices": [{"delta": {"reasoning": " a"}}]}, delta(" b")], " a b", " b"),
        ([{"choices": [{"delta": {"reasoning_content": " a"}}]}, delta(" b")], " a b", " b"),
        ([{"choices": [{"delta": {"refusal": "No."}}]}], "No.", "No."),
        ([{"choices": [{"delta": {"content": [{"type": "text", "text": "x"}]}}]}], "x", "x"),
        ([{"choices": [{"delta": {"function_call": FUNCTION}}]}], 'f{"x": 1}', ""),
        ([b': ping\r\rdata: {"choices":\rdata: [{"delta": {"content": "x"}}]}\r\r'], "x", "x"),
        (
            [b'event: m\r\nid: 1\r\ndata:{"choices": [{"delta": {"content": "x"}}]}\r\n\r\n'],
            "x",
            "x",
        ),
    ],
)
def test_what_the_schema_and_other_engines_allow_is_read(
    contents: list[dict[str, Any] | bytes], text: str, content: str | None
) -> None:
    record = answered(*spaced(*contents, last(), usage(4)))
    assert (record.outcome, record.error, record.text) == ("ok", "", text)
    if content is not None:
        assert record.answer == content


@pytest.mark.parametrize(
    "indices", [(0, 0, 1), (None, None, None)], ids=["with an index", "without, as Gemini's"]
)
def test_tool_calls_are_told_apart(indices: Sequence[int | None]) -> None:
    parts = [{"name": "f", "arguments": '{"a"'}, {"arguments": ": 1}"}, {"name": "g"}]
    contents = [
        {
            "choices": [
                {
                    "delta": {
                        "tool_calls": [
                            {"function": part} | ({} if index is None else {"index": index})
                        ]
                    }
                }
            ]
        }
        for index, part in zip(indices, parts, strict=True)
    ]
    record = answered(*spaced(*contents, last("tool_calls"), usage(6)))
    assert [(each.name, each.arguments) for each in record.tool_calls] == [
        ("f", '{"a": 1}'),
        ("g", ""),
    ]


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_answer_in_one_piece_has_no_time_per_token(dialect: str, indent: int | None) -> None:
    choice = {"index": 0, "text": " a b", "finish_reason": "stop"}
    if dialect == "openai-chat":
        message = {"role": "assistant", "content": " a b", "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
    whole = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 8}}
    body = json.dumps(whole, indent=indent).encode()
    record = answered(JSON_HEAD, 0.05, body, dialect=dialect)
    assert (record.outcome, record.text, record.generated_tokens) == ("ok", " a b", 8)
    assert list(record.gaps_s()) == []
    assert tpot_s(record) is None
    assert kinds(record) == {"answers at once"}
    assert not kinds(record, Objectives(ttft_s=100.0, e2e_s=100.0))


@pytest.mark.parametrize("apart", [1, 3])
def test_events_that_arrive_together_have_no_time_per_token(apart: int) -> None:
    together = b"".join(event(delta(" x")) for _ in range(8 - apart))
    others: list[Piece] = []
    for _ in range(apart):
        others += [0.03, event(delta(" y"))]
    record = answered(HEAD, together, *others, event(last()), event(usage(8)), DONE)
    assert (record.outcome, len(record.chunks)) == ("ok", 8)
    assert tpot_s(record) is None
    assert min(record.gaps_s()) > 0
    assert kinds(record) == {"answers at once"}


def test_chunks_of_several_tokens_are_said_not_to_be_tokens() -> None:
    record = answered(*spaced(*FOUR, last(), usage(8)))
    assert record.later_tokens == 6  # two came first, as far as one can tell
    point = LoadPoint(rate=1.0, requests=1, started_utc="", began_client_s=0.0)
    assert metrics_of(point, [record]).tokens_per_chunk == 2.0
    assert not kinds(record)


@pytest.mark.parametrize(
    "contents",
    [
        [last(), usage(0)],
        [delta(""), last(), usage(0)],
        [delta(None), last("length"), usage(8)],
        [last("content_filter")],
    ],
)
def test_an_answer_without_text_is_a_failure(contents: list[dict[str, Any]]) -> None:
    record = answered(*spaced(*contents))
    assert record.outcome == "empty"
    assert kinds(record) == {"none succeeded"}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b"hello", b"<html></html>", b"data: 5\n\n"]
)
@pytest.mark.parametrize("head", [HEAD, JSON_HEAD])
def test_what_is_no_answer_is_none(head: bytes, body: bytes) -> None:
    record = answered(head, body)
    assert record.outcome in ("malformed", "dropped")


@pytest.mark.parametrize(
    "count",
    [10**12, -3, 9, "8", "many", float("nan"), float("inf"), -float("inf"), True, 4.5,
     10**400, [], {}, 0, 1],
    ids=str,
)  # fmt: skip
def test_an_impossible_count_is_not_used(count: object) -> None:
    several = [delta(" x") for _ in range(8)]
    record = answered(*spaced(*several, last(), usage(count)))
    assert (record.outcome, record.generated_tokens) == ("ok", None)
    assert "generated_tokens" in record.refused_counts
    assert kinds(record) == {"counts refused", "tokens uncounted"}
    RequestRecord.model_validate_json(record.model_dump_json())


@pytest.mark.parametrize("count", [10**12, -3, "7", float("nan"), False, 7.5], ids=str)
def test_an_impossible_count_of_a_prompt_is_not_used(count: object) -> None:
    record = answered(*spaced(*FOUR, last(), usage(4, prompt=count)))
    assert (record.outcome, record.prompt_tokens) == ("ok", None)
    assert kinds(record) == {"counts refused"}


@pytest.mark.parametrize("written", [None, "no", [], 5, {"completion_tokens": None}])
def test_a_usage_that_is_none_leaves_tokens_uncounted(written: object) -> None:
    record = answered(*spaced(*FOUR, last(usage=written)))
    assert (record.outcome, record.generated_tokens) == ("ok", None)
    assert kinds(record) == {"tokens uncounted"}
    assert not kinds(record, Objectives(ttft_s=100.0, e2e_s=100.0))


def test_a_count_that_is_whole_in_another_notation_is_used() -> None:
    assert answered(*spaced(*FOUR, last(), usage(4.0))).generated_tokens == 4


@pytest.mark.parametrize(("count", "is_short"), [(4, True), (None, True), (8, False)])
def test_fewer_tokens_than_demanded_are_no_answer_to_the_request(
    count: int | None,
    is_short: bool,  # noqa: FBT001
) -> None:
    demanded = ASK.model_copy(update={"ignores_end": True})
    record = answered(*spaced(*FOUR, last(), usage(count)), ask=demanded)
    assert (record.outcome, record.is_short) == ("ok", is_short)
    assert ("answers short" in kinds(record, Objectives(e2e_s=100.0))) is is_short
    free = answered(*spaced(*FOUR, last(), usage(count)))
    assert not free.is_short


def test_a_prompt_that_the_service_cuts_is_found_out() -> None:
    ask = ASK.model_copy(update={"prompt": "word " * 4000})
    cut = answered(*spaced(*FOUR, last(), usage(4, prompt=2050)), ask=ask)
    whole = answered(*spaced(*FOUR, last(), usage(4, prompt=4003)), ask=ask)
    assert (cut.sent_words, cut.is_prompt_cut, whole.is_prompt_cut) == (4000, True, False)
    assert kinds(cut) == {"prompts cut"}
    assert severity(cut, Objectives(e2e_s=100.0)) > 1


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        ([delta("x"), {"error": {"message": "out of memory", "code": 500}}], "out of memory"),
        ([delta("x"), {"error": "overloaded", "error_type": "overloaded"}], "overloaded"),
        ([delta("x"), {"object": "error", "message": "aborted"}], "aborted"),
        ([delta("x"), b'error: {"message": "full"}\n\n'], "full"),
        ([delta("x"), last("abort")], "finish_reason abort"),
        ([{"choices": [{"delta": {}, "error": {"message": "gone"}}]}], "gone"),
    ],
)
def test_an_error_in_a_stream_is_that_of_its_request(
    contents: list[dict[str, Any] | bytes], error: str
) -> None:
    record = answered(*spaced(*contents))
    assert record.outcome == "server-error"
    assert error in record.error


@pytest.mark.parametrize(
    "content",
    [
        {"choices": 5}, {"choices": [None]}, {"choices": ["x"]}, {"choices": {}},
        {"object": "ping"}, {"choices": [{"delta": 5}]},
        {"choices": [{"delta": {"tool_calls": [5]}}]},
    ],
    ids=str,
)  # fmt: skip
def test_an_event_of_another_form_fails_its_request_alone(content: dict[str, Any]) -> None:
    record = answered(*spaced(content))
    assert record.outcome in ("malformed", "dropped")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["{other}/v1/chat/completions", "/v1/other", "https://a.example/x"])
def test_a_redirect_is_named_and_not_followed_and_gets_no_key(status: int, to: str) -> None:
    with raw_service(*spaced(*FOUR, last(), usage(4))) as other:
        place = to.format(other=other.url)
        head = f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        with raw_service(head.encode()) as service:
            record = sent(service, key="secret")
        assert other.heads == []
    assert (record.outcome, record.status) == ("http", status)
    assert place in record.error
    assert len(service.heads) == 1


def test_a_compressed_answer_is_refused_unread() -> None:
    bomb = gzip.compress(bytes(1 << 24))
    head = JSON_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    with raw_service(head, bomb) as service:
        record = sent(service)
        assert b"accept-encoding: identity" in service.heads[0].lower()
    assert record.outcome == "malformed"
    assert "compressed" in record.error


def test_an_answer_of_any_length_is_read_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_MOST_BYTES", 1 << 16)
    monkeypatch.setattr(answer, "_MOST_BYTES_PER_TOKEN", 0)
    with raw_service(HEAD, event(delta("x")), b": wait\n" * 1000, repeats=True) as service:
        record = sent(service)
    assert record.outcome == "malformed"
    assert "more than 65536 bytes" in record.error


def test_an_endless_error_is_read_to_a_limit_and_said_without_control_characters() -> None:
    head = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with raw_service(head, b"\x1b[31mno\x07 " * 1000, repeats=True) as service:
        record = sent(service)
    assert (record.outcome, record.status) == ("http", 400)
    assert record.error.isprintable()
    assert record.error.startswith("[31mno [31mno")
    assert len(record.error) <= 500


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(50_000)) + b"\r\n"],
        [b"SMTP ready\r\n"],
        [b"HTTP/1.1 999999 Odd\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: {"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n"],
        [b""],
    ],
)  # fmt: skip
def test_what_is_no_http_fails_its_request_alone(pieces: list[Piece]) -> None:
    assert answered(*pieces).outcome in ("dropped", "malformed")


@pytest.mark.parametrize("piece", [b"HTTP/1.1 100 Continue\r\n\r\n", b": wait\n\n"])
def test_what_never_ends_times_out(piece: bytes) -> None:
    begin: list[Piece] = [] if piece.startswith(b"HTTP") else [HEAD]
    trickle: list[Piece] = [piece, 0.05]
    with raw_service(*begin, *trickle * 100) as service:
        record = sent(service, timeout_s=0.5)
    assert record.outcome == "timeout"


def test_an_answer_has_ended_with_done_though_the_connection_goes_on() -> None:
    record = answered(*spaced(*FOUR, last(), usage(4)), 20.0, timeout_s=15.0)
    assert record.outcome == "ok"
