"""What people are told about requests that services refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import DataError, UsageError
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest
from armload.serving.dialects.openai import OpenAiChat
from armload.serving.hints import hints_about, remedy_for
from armload.serving.readiness import check_service
from armload.serving.request_file import requests_of
from tests.command_line import typed
from tests.raw_service import raw_service
from tests.stub_service import ASK, stub_service, target


def chat(*messages: dict[str, Any], **more: Any) -> CompletionRequest:
    read = tuple(ChatMessage.model_validate(each) for each in messages)
    return CompletionRequest(messages=read, max_tokens=4, **more)


USER = {"role": "user", "content": "Hello"}


def test_a_last_message_of_the_assistant_is_named_before_services_refuse_it() -> None:
    ends = chat(USER, {"role": "assistant", "content": "I"})
    (hint,) = hints_about([ends, chat(USER)])
    assert "1 of 2 requests" in hint
    assert list(hints_about([chat(USER), ASK])) == []


@pytest.mark.parametrize(
    ("pattern", "is_named"),
    [
        (r"^\d{3}$", True), (r"^\w+$", True), (r"^a\sb$", True), (r"^(?=a)a$", True),
        (r"^[0-9]{3}$", False), (r"^a\.b$", False), (r"^(?:a|b)$", False), (r"^\\$", False),
    ],
)  # fmt: skip
def test_a_pattern_that_llama_cpps_grammars_lack_is_named(
    pattern: str,
    is_named: bool,  # noqa: FBT001
) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    asked = (ASK.model_copy(update={"json_schema": schema}), chat(USER, tools=(tool,)))
    for request in asked:
        assert bool(list(hints_about([request]))) is is_named


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("Cannot have 2 or more assistant messages at the end of the list.", "one of the user"),
        ("Expected last role User or Tool but got assistant", "one of the user"),
        ("failed to parse grammar", "[0-9]"),
        ("Unrecognized request argument supplied: ignore_eos", "--stop-at-end"),
        ("This model's maximum context length is 4096 tokens", "larger context"),
        ("the request exceeds the available context size (512 tokens)", "larger context"),
        ("The model `x` does not exist.", "--model"),
        ("something else", "log"),
    ],
)
def test_refusals_of_several_engines_have_a_remedy(message: str, remedy: str) -> None:
    assert remedy in remedy_for(message)


def test_a_refusal_of_many_requests_is_said_once_with_its_remedy(tmp_path: Path) -> None:
    says = "Cannot have 2 or more assistant messages at the end of the list."
    words = ("--rate", "20", "--requests", "6", "--warmup", "0", "--n-predict", "2")
    with stub_service(status=400, answered=4, says=says) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    told = " ".join(f"{done.stdout} {done.stderr}".split())
    assert told.count(says.rstrip(".")) == 1
    assert "refused with status 400" in told
    assert "End the messages in --data" in told


def test_a_redirecting_service_is_refused_before_the_load_with_its_new_address() -> None:
    head = b"HTTP/1.1 308 Moved\r\nLocation: https://b.example:8443/v1/completions\r\n\r\n"
    with raw_service(head) as service, pytest.raises(UsageError) as refused:
        check_service(target(service.url, "openai"), ASK, 10.0)
    assert "--url https://b.example:8443" in refused.value.remedy


MESSAGES: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"},
    {"role": "user", "content": [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
    ]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "content": [{"type": "text", "text": "5"}], "tool_call_id": "1"},
    {"role": "assistant", "refusal": "No.", "content": None},
    {"role": "assistant", "content": "x", "reasoning_content": "thought", "audio": {"id": "a"}},
    {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": None},
    {"role": "user", "content": "Go on.", "name": "ann"},
]  # fmt: skip


def test_messages_that_the_schema_allows_are_sent_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": MESSAGES, "max_completion_tokens": 9}) + "\n")
    (request,) = requests_of(path, most=None, draw=None, count=len)
    body = json.loads(json.dumps(OpenAiChat().body(request, "m")))
    assert (body["messages"], body["max_tokens"]) == (MESSAGES, 9)
    assert request.words == 4 + 3 + 1 + 1 + 2  # of texts alone


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{"text": "no type"}]},
        {"role": "tool", "content": "5"},
        {"role": "assistant"},
        {"role": "robot", "content": "x"},
        {"role": "user", "contents": "x"},
    ],
)
def test_messages_that_the_schema_does_not_allow_are_refused(
    message: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": [message]}))
    with pytest.raises(DataError, match="messages"):
        list(requests_of(path, most=None, draw=None, count=len))
