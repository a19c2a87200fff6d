"""Requests and answers as OpenAI's API describes them, and as engines that follow it send them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import DataError
from armload.serving.conversation import _TOO_LONG
from armload.serving.dialects.registry import dialect_named
from armload.serving.request_file import requests_of
from tests.raw_service import HEAD, Piece, delta, event, last, spaced, usage
from tests.unit.test_serving_answers import FOUR, answered

USER = {"role": "user", "content": "Rain?"}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
CUSTOM_CALL = {"id": "2", "type": "custom", "custom": {"name": "note", "input": "wet"}}
TEXT_PART = {"type": "text", "text": "Look:"}
WEATHER = {"type": "function", "function": {"name": "weather"}}
NOTE = {"type": "custom", "custom": {"name": "note", "format": {"type": "text"}}}


def body_of(tmp_path: Path, line: dict[str, Any]) -> dict[str, Any]:
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps(line))
    (request,) = requests_of(path, most=None, draw=None, count=len)
    body = dialect_named("openai-chat" if request.messages else "openai").body(request, "m")
    content = json.loads(json.dumps(body))
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize(
    "message",
    [
        {"role": "developer", "content": "Be brief."},
        {"role": "developer", "content": [TEXT_PART], "name": "lead"},
        {"role": "system", "content": [TEXT_PART]},
        {"role": "user", "content": "", "name": "Ann"},
        {"role": "user", "content": [TEXT_PART, {"type": "image_url", "image_url": {"url": "x"}}]},
        {
            "role": "user",
            "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}],
        },
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
        {"role": "assistant", "content": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "audio": {"id": "a"}},
        {"role": "assistant", "audio": None, "content": "No.", "function_call": None},
        {"role": "assistant", "content": None, "tool_calls": [CALL, CUSTOM_CALL]},
        {"role": "assistant", "function_call": {"name": "weather", "arguments": "{}"}},
        {"role": "tool", "content": "wet", "tool_call_id": "1"},
        {"role": "tool", "content": [TEXT_PART], "tool_call_id": "1"},
        {"role": "function", "name": "weather", "content": None},
        {"role": "function", "name": "weather", "content": "wet"},
    ],
    ids=json.dumps,
)
def test_a_legal_message_of_every_role_is_sent_as_it_was_written(
    tmp_path: Path, message: dict[str, Any]
) -> None:
    assert body_of(tmp_path, {"messages": [USER, message]})["messages"] == [USER, message]


@pytest.mark.parametrize(
    "further",
    [
        {"logit_bias": {"5": -100}},
        {"logprobs": True, "top_logprobs": 2},
        {"metadata": {"run": "1"}, "store": False, "user": "a", "safety_identifier": "b"},
        {"parallel_tool_calls": False, "tools": [WEATHER, NOTE], "tool_choice": "auto"},
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"prediction": {"type": "content", "content": "x"}},
        {"reasoning_effort": "low", "verbosity": "low", "service_tier": "auto"},
        {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
        {"functions": [{"name": "weather"}], "function_call": "auto"},
        {"stop": ["a", "b"], "seed": -3, "temperature": 2, "top_p": 0},
        {"web_search_options": {}, "logprobs": None},
        {"response_format": {"type": "text"}},
    ],
    ids=json.dumps,
)
def test_a_legal_parameter_is_sent_as_it_was_written(
    tmp_path: Path, further: dict[str, Any]
) -> None:
    body = body_of(tmp_path, {"messages": [USER], **further})
    assert {key: body[key] for key in further} == further


@pytest.mark.parametrize(
    "agreeing",
    [
        {"stream": True, "n": 1, "stream_options": {"include_usage": True}},
        {"n": None, "stream": None, "max_tokens": None, "temperature": None, "stop": None},
        {"modalities": ["text"], "audio": None},
        {"max_completion_tokens": 128, "response_format": None},
    ],
    ids=json.dumps,
)
def test_what_load_does_anyway_may_be_said(tmp_path: Path, agreeing: dict[str, Any]) -> None:
    plain = {"messages": [USER]}
    assert body_of(tmp_path, plain | agreeing) == body_of(tmp_path, plain)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"messages": [USER], "model": "gpt-5"}, 'cannot set model to "gpt-5"'),
        ({"messages": [USER], "stream": False}, "cannot set stream to false"),
        ({"messages": [USER], "n": 2}, "cannot set n to 2"),
        ({"prompt": "a", "best_of": 3}, "cannot set best_of to 3"),
        ({"prompt": "a", "echo": True}, "cannot set echo to true"),
        ({"messages": [USER], "modalities": ["text", "audio"]}, "cannot set modalities"),
        ({"messages": [USER], "audio": {"voice": "v", "format": "wav"}}, "cannot set audio"),
        ({"prompt": ["a", "b"]}, "prompt: must be text, but is a list"),
        ({"prompt": [1, 2]}, "prompt: must be text, but is a list"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be from 1"),
        ({"messages": [{"role": "assistant"}]}, "must have content"),
        ({"messages": [{"role": "tool", "content": "wet"}]}, "must have tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "must have a type"),
        ({"messages": []}, "must have either prompt or messages"),
    ],
)
def test_what_is_not_sent_is_refused_with_the_reason(
    tmp_path: Path, line: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError) as error:
        body_of(tmp_path, line)
    assert "item 1" in error.value.message
    assert words in error.value.message


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
COUNTS = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
ZEROS = dict.fromkeys(COUNTS, 0)


def chunk(text: str, **more: Any) -> dict[str, Any]:
    """Return a chunk with every key that the API has."""
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "system_fingerprint": None,
        "service_tier": None,
        "obfuscation": "xyz",
        "usage": None,
        **delta(text),
        **more,
    }


def of_choice(choice: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, **choice}]}


STREAMS: dict[str, list[dict[str, Any] | bytes]] = {
    "OpenAI": [
        {"choices": [], "moderation": {"input": {}, "output": {}}, "obfuscation": "x"},
        chunk("", choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]),
        *(chunk(" w", logprobs={"content": []}) for _ in range(4)),
        last(),
        usage(4),
    ],
    "vLLM with counts in every event": [
        ROLE,
        *({**delta(" w"), "usage": {**COUNTS, "completion_tokens": n + 1}} for n in range(4)),
        last(stop_reason=None),
        usage(4),
    ],
    "vLLM with thoughts under two names": [
        ROLE,
        *(of_choice({"delta": {"reasoning": " w", "reasoning_content": " w"}}) for _ in range(4)),
        last(),
        usage(4),
    ],
    "SGLang": [
        of_choice({"delta": {"role": "assistant", "content": "", "reasoning_content": None}}),
        *(
            of_choice({"delta": {"content": " w", "tool_calls": None}, "matched_stop": None})
            for _ in range(4)
        ),
        of_choice({"delta": {"content": None}, "finish_reason": "length", "matched_stop": None}),
        usage(4),
    ],
    "TGI, whose last text has the reason": [
        *(
            of_choice({"delta": {"role": "assistant", "content": " w"}, "logprobs": None})
            for _ in range(3)
        ),
        of_choice({"delta": {"role": "assistant", "content": " w"}, "finish_reason": "length"}),
        {"id": "", "object": "chat.completion.chunk", "choices": [], "usage": COUNTS},
    ],
    "Ollama, whose counts are 0 until the end": [
        *({**delta(" w"), "usage": ZEROS} for _ in range(4)),
        {**last(), "usage": ZEROS},
        usage(4),
    ],
    "llama.cpp with progress and timings": [
        {
            **of_choice({"delta": {"role": "assistant", "content": None}, "finish_reason": None}),
            "prompt_progress": {"total": 7, "cache": 0, "processed": 7, "time_ms": 3},
        },
        *({**delta(" w"), "timings": {"predicted_n": n + 1}} for n in range(4)),
        last(),
        {**usage(4), "timings": {"cache_n": 0, "prompt_n": 7, "predicted_n": 4}},
    ],
    "MLX": [
        b": keepalive 3/7\n\n",
        *(
            of_choice({"delta": {"content": " w", "reasoning": "", "tool_calls": []}})
            for _ in range(4)
        ),
        of_choice({"delta": {"content": "", "reasoning": ""}, "finish_reason": "stop"}),
        {"object": "chat.completion", **usage(4)},
    ],
    "LM Studio": [
        *(of_choice({"delta": {"role": "assistant", "content": " w"}}) for _ in range(4)),
        last(stats={}),
        usage(4),
    ],
    "counts beside the last choice": [*(delta(" w") for _ in range(4)), last(usage=COUNTS)],
    "counts in the last choice": [
        *(delta(" w") for _ in range(4)),
        of_choice({"delta": {}, "finish_reason": "stop", "usage": COUNTS}),
    ],
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("says_done", [True, False])
def test_the_stream_of_an_engine_is_a_whole_answer(
    name: str,
    says_done: bool,  # noqa: FBT001
) -> None:
    pieces = spaced(*STREAMS[name])
    record = answered(*(pieces if says_done else pieces[:-1]))
    assert (record.outcome, record.error, record.text) == ("ok", "", " w w w w")
    assert (record.generated_tokens, record.prompt_tokens) == (4, 7)
    assert record.refused_counts == {}
    assert len(record.chunks) == 4
    assert record.ignored_lines == 0


@pytest.mark.parametrize("counts", [None, ZEROS, {**COUNTS, "completion_tokens": 2}])
def test_a_stream_that_ends_amid_its_text_is_no_answer_whatever_it_has_counted(
    counts: dict[str, int] | None,
) -> None:
    record = answered(HEAD, *(event({**each, "usage": counts}) for each in FOUR[:2]))
    assert record.outcome == "dropped"


@pytest.mark.parametrize(
    ("added", "text", "answer"),
    [
        ({"audio": {"id": "a", "transcript": " w"}}, " w", " w"),
        ({"audio": {"data": "AAAA"}, "content": " w"}, " w", " w"),
        ({"tool_calls": {"index": 0, **CALL}}, "weather{}", ""),
        ({"tool_calls": [{"index": 0, **CUSTOM_CALL}]}, "notewet", ""),
    ],
)
def test_what_a_chunk_adds_is_read(added: dict[str, Any], text: str, answer: str) -> None:
    record = answered(*spaced(of_choice({"delta": added}), last("tool_calls"), usage(1)))
    assert (record.outcome, record.text, record.answer) == ("ok", text, answer)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b'event: error\ndata: {"error": {"message": "Compute error."}}\n\n'], "Compute error."),
        ([b'event:error\ndata:{"error": "x", "error_type": "incomplete_generation"}\n\n'], "x"),
        ([event({"error": {"object": "error", "message": "x", "code": 400}})], "x"),
        ([event({"message": "x", "error": {"message": "x", "code": None}})], "x"),
    ],
    ids=["LM Studio", "TGI", "SGLang", "both"],
)
def test_an_error_amid_a_stream_is_that_of_its_request(pieces: list[Piece], error: str) -> None:
    record = answered(HEAD, event(delta(" w")), *pieces)
    assert (record.outcome, record.error) == ("server-error", error)


@pytest.mark.parametrize(
    "message",
    [
        "the request exceeds the available context size (512 tokens)",
        "This model's maximum context length is 512 tokens.",
        "The decoder prompt (length 951) is longer than the maximum model length of 512.",
        "Input validation error: `inputs` must have less than 512 tokens. Given: 951",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 512.",
        "The input (951 tokens) is longer than the model's context length (512 tokens).",
    ],
)
def test_a_prompt_that_an_engine_finds_too_long_is_recognised(message: str) -> None:
    assert _TOO_LONG.search(message)
