"""The requests of a load: from a file, or synthetic, with tokens counted by the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest
from armload.serving.dialects.registry import dialect_named
from armload.serving.request_defaults import read_defaults
from armload.serving.tokenizer import ServiceApi
from armload.serving.workload import Lengths, Listed, Synthetic, listed, read_lengths, synthetic
from tests.stub_service import stub_service

NOWHERE = ServiceApi("http://127.0.0.1:9", "")


def read(path: Path, text: str, api: ServiceApi = NOWHERE, **known: Any) -> Listed:
    path = path / "requests.jsonl"
    path.write_text(text, encoding="utf-8")
    options = {"answer": None, "seed": 1, "most": None} | known
    return listed(path, api=api, progress=Silent(), **options)


def made(api: ServiceApi, prompt: str, answer: Lengths | None = None, seed: int = 1) -> Synthetic:
    lengths = read_lengths("prompt-tokens", prompt)
    return synthetic(
        prompt=lengths,
        answer=answer,
        stops_at_end=False,
        seed=seed,
        api=api,
        progress=Silent(),
    )


def test_prompts_and_chats_are_read_and_repeat_from_the_start(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    lines = [{"prompt": "One", "max_tokens": 5}, chat]
    work = read(tmp_path, "\n".join(json.dumps(each) for each in lines) + "\n\n")
    assert (work.request(0).prompt, work.request(0).max_tokens) == ("One", 5)
    assert work.request(1).messages == (ChatMessage(role="user", content="Hi"),)
    assert work.request(1).max_tokens == 128
    assert work.request(2) == work.request(0)
    assert work.described.endswith("requests.jsonl")


@pytest.mark.parametrize("text", ['{"prompt": "One"}', '[{"prompt": "One"}]'])
def test_a_byte_order_mark_before_the_requests_is_no_part_of_them(
    tmp_path: Path, text: str
) -> None:
    assert read(tmp_path, f"\ufeff{text}").request(0).prompt == "One"


def test_alpacas_items_have_the_outputs_length_as_their_limit(tmp_path: Path) -> None:
    items = [
        {"instruction": "Name colours", "input": "three", "output": "red green blue"},
        {"instruction": "Say yes", "input": "", "output": "yes"},
    ]
    with stub_service() as service:
        work = read(tmp_path, json.dumps(items), ServiceApi(service.url, ""))
    assert [(work.request(n).prompt, work.request(n).max_tokens) for n in (0, 1)] == [
        ("Name colours:three", 3),
        ("Say yes", 1),
    ]


def test_only_as_many_items_are_prepared_as_a_load_sends(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"prompt": str(number)}) for number in range(9))
    assert read(tmp_path, lines, most=2).request(2).prompt == "0"


def test_sharegpts_conversations_give_their_first_answered_message(tmp_path: Path) -> None:
    def said(*turns: tuple[str, str]) -> dict[str, Any]:
        return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}

    items = [
        said(("human", "Name colours"), ("gpt", "red green blue"), ("human", "More")),
        said(("gpt", "Welcome"), ("human", "Hello"), ("gpt", "Hi there")),
        said(("human", "Nobody answers")),
        said(("system", "Be kind"), ("user", "Hey"), ("assistant", "Yes")),
        {"conversations": None},
    ]
    with stub_service() as service:
        work = read(tmp_path, json.dumps(items), ServiceApi(service.url, ""))
    assert [(work.request(n).prompt, work.request(n).max_tokens) for n in range(4)] == [
        ("Name colours", 3),
        ("Hello", 2),
        ("Hey", 1),
        ("Name colours", 3),
    ]


def test_a_large_array_is_read_only_as_far_as_it_is_needed(tmp_path: Path) -> None:
    items = [{"prompt": f"{number} " + "x" * 1000} for number in range(3000)]
    whole = json.dumps(items)
    assert read(tmp_path, whole).request(2999).prompt == items[2999]["prompt"]
    assert (
        read(tmp_path, whole[:-1] + ", garbage", most=2000).request(1999).prompt.startswith("1999 ")
    )


def test_a_line_may_have_sampling_parameters_a_format_tools_and_other_keys(
    tmp_path: Path,
) -> None:
    schema = {"type": "object"}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    lines = [
        {"prompt": "a", "temperature": 0.7, "seed": 3, "extra_body": {"min_keep": 2}},
        {
            "prompt": "b",
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        },
        {"prompt": "c", "response_format": {"type": "json_object"}},
        {
            "messages": [
                {"role": "user", "content": "Rain?"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "No", "tool_call_id": "1"},
            ],
            "tools": [tool],
            "tool_choice": "required",
        },
    ]
    work = read(tmp_path, "\n".join(json.dumps(each) for each in lines))
    requests = [work.request(number) for number in range(4)]
    assert requests[0].extra_body == {"temperature": 0.7, "seed": 3, "min_keep": 2}
    assert [request.json_schema for request in requests] == [None, schema, schema, None]
    body = dialect_named("openai-chat").body(requests[3], "m")
    assert (body["tools"], body["tool_choice"]) == ((tool,), "required")
    assert body["messages"] == [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": ({"id": "1"},)},
        {"role": "tool", "content": "No", "tool_call_id": "1"},
    ]
    greedy, own = (
        dialect_named("openai").body(request, "m") for request in (requests[1], requests[0])
    )
    assert (greedy["temperature"], own["temperature"], own["min_keep"]) == (0, 0.7, 2)


SCHEMA = {"type": "object", "required": ["age"]}


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
        {
            "type": "json_schema",
            "json_schema": {
                "name": "person",
                "description": "How old",
                "strict": False,
                "schema": SCHEMA,
            },
        },
    ],
    ids=["text", "object", "schema", "schema-and-more"],
)
@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_a_format_is_sent_as_the_line_has_it(
    tmp_path: Path, dialect: str, wanted: dict[str, Any]
) -> None:
    (tmp_path / "schema.json").write_text('{"type": "array"}')
    defaults = read_defaults(tmp_path / "schema.json", "")
    work = read(tmp_path, json.dumps({"prompt": "a", "response_format": wanted}))
    body = dialect_named(dialect).body(defaults.applied(work.request(0)), "m")
    assert body["response_format"] == wanted


def test_a_schema_without_the_name_that_services_demand_gets_one(tmp_path: Path) -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    work = read(tmp_path, json.dumps({"prompt": "a", "response_format": wanted}))
    sent = dialect_named("openai-chat").body(work.request(0), "m")["response_format"]
    assert sent["json_schema"] == {"name": "answer", "schema": SCHEMA}


def test_what_a_request_says_itself_overrides_what_all_have(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "array"}')
    defaults = read_defaults(tmp_path / "schema.json", '{"top_p": 0.5, "top_k": 3}')
    own = CompletionRequest(
        prompt="a", max_tokens=1, extra_body={"top_k": 9}, json_schema={"type": "object"}
    )
    plain = CompletionRequest(prompt="a", max_tokens=1)
    assert defaults.applied(own).extra_body == {"top_p": 0.5, "top_k": 9}
    assert defaults.applied(own).json_schema == {"type": "object"}
    assert defaults.applied(plain).json_schema == {"type": "array"}
    assert defaults.described.endswith('schema.json, with {"top_p": 0.5, "top_k": 3}')


@pytest.mark.parametrize("extra", ["{", "[1]", '{"max_tokens": 3}', '{"n": 2}'])
def test_keys_that_are_no_object_or_have_a_place_are_refused(extra: str) -> None:
    with pytest.raises(UsageError, match="--extra-body"):
        read_defaults(None, extra)


def test_limits_on_the_command_line_override_a_file(tmp_path: Path) -> None:
    text = json.dumps({"instruction": "Say yes", "input": "", "output": "yes"})
    work = read(tmp_path, text, answer=Lengths(kind="constant", low=9, high=9))
    assert work.request(0).max_tokens == 9


def test_a_service_that_counts_no_tokens_needs_a_limit(tmp_path: Path) -> None:
    text = json.dumps({"instruction": "Say yes", "input": "", "output": "yes"})
    with stub_service(has_tokenizer=False) as service:
        api = ServiceApi(service.url, "")
        with pytest.raises(UsageError, match="item 1: its limit") as error:
            read(tmp_path, text, api)
    assert "--n-predict" in error.value.remedy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a list of requests"),
        ("prompt", "not JSON lines"),
        ("[1, 2]", "not a list of requests"),
        ('{"prompt": "a", "max_token": 3}', "max_token"),
        ('{"prompt": ""}', "either prompt or messages"),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "either prompt"),
        ('{"messages": [{"role": "robot", "content": "b"}]}', "role"),
        ('{"prompt": "a", "max_tokens": -3}', "max_tokens"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens must be from 1"),
        ('{"prompt": "a", "extra_body": {"stream": false}}', "cannot set stream"),
        ('{"prompt": "a", "temperature": "hot"}', "temperature"),
        ('{"prompt": "a", "response_format": {"type": "xml"}}', "response_format"),
        ('{"prompt": "a", "response_format": {"type": "json_schema"}}', "a JSON schema must be"),
        ('{"prompt": "a", "tools": [{"name": "weather"}]}', "must be a function with a name"),
        ('[{"prompt": "a"} {"prompt": "b"}]', "not JSON lines"),
        ('[{"prompt": "a"},]', "not JSON lines"),
        ('[{"prompt": "a"}', "not JSON lines"),
        ('[{"conversations": [{"from": "gpt", "value": "Hi"}]}]', "not a list of requests"),
    ],
)
def test_a_file_of_something_else_says_where_it_is_wrong(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path, text)
    assert "requests.jsonl" in error.value.message


def test_synthetic_prompts_have_as_many_tokens_as_they_say() -> None:
    with stub_service() as service:
        api = ServiceApi(service.url, "")
        work = made(api, "uniform:3-9", Lengths(kind="constant", low=7, high=7))
        counts = [api.count(work.request(number).prompt) for number in range(20)]
    assert all(count is not None and 3 <= count <= 9 for count in counts)
    assert len(set(counts)) > 2
    assert (work.request(0).max_tokens, work.request(0).ignores_end) == (7, True)
    assert work.described == "synthetic: prompts of uniform:3-9 tokens, answers of 7 tokens"


def test_a_synthetic_request_depends_on_seed_and_number_alone() -> None:
    with stub_service(has_tokenizer=False) as service:
        api = ServiceApi(service.url, "")
        one, same, other = made(api, "20"), made(api, "20"), made(api, "20", seed=2)
    assert one.request(5) == same.request(5)
    assert one.request(5) != one.request(6)
    assert one.request(5) != other.request(5)
    assert "prompts of 20 words" in one.described


def test_no_proxy_learns_the_key_of_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_service() as proxy, stub_service(api_key="right") as service:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        api = ServiceApi(service.url, "right")
        assert (api.model(), api.count("once upon")) == ("stub", 2)
        assert proxy.seen == []
        assert {key for _, key in service.seen} == {"Bearer right"}


def test_the_name_of_the_model_is_asked_for() -> None:
    with stub_service(api_key="right") as service:
        assert ServiceApi(service.url, "right").model() == "stub"
        assert ServiceApi(service.url, "wrong").model() == ""
