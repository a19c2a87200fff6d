"""Answers that must be JSON, fit a schema, or call a tool: what is none of these is a failure."""

from __future__ import annotations

from typing import Any

import pytest

from armload.analysis.load.records import RequestRecord, ToolCall
from armload.core.errors import DataError, UsageError
from armload.serving.answer_format import check_schema, check_tools, mismatch
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest
from armload.serving.dialects.registry import dialect_named
from tests.stub_service import stub_service
from tests.unit.test_serving_client import sent

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0}},
    "required": ["age"],
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
JSON = CompletionRequest(prompt="How old?", max_tokens=64, json_schema=SCHEMA)
TOOLS = CompletionRequest(
    messages=(ChatMessage(role="user", content="Rain?"),), max_tokens=64, tools=(WEATHER,)
)


def outcome(ask: CompletionRequest, content: str, *calls: ToolCall) -> str:
    found = mismatch(ask, content, calls)
    return "ok" if found is None else found[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"age": 3}', "ok"),
        (' {"age": 3}\n', "ok"),
        ('{"age": 3', "not-json"),
        ('```json\n{"age": 3}\n```', "not-json"),
        ("", "not-json"),
        ('{"age": NaN}', "not-json"),
        ("[" * 100_000, "not-json"),
        ('{"age": "3"}', "schema-mismatch"),
        ('{"age": -1}', "schema-mismatch"),
        ("[]", "schema-mismatch"),
    ],
)
def test_an_answer_is_json_that_fits_or_a_failure_of_its_kind(text: str, expected: str) -> None:
    assert outcome(JSON, text) == expected


def test_the_place_of_a_mismatch_is_named() -> None:
    found = mismatch(JSON, '{"age": "x"}', ())
    assert found == (
        "schema-mismatch",
        "the answer does not fit: $.age: 'x' is not of type 'integer'",
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (ToolCall(name="weather", arguments='{"city": "Oslo"}'), "ok"),
        (ToolCall(name="weather", arguments='{"city": '), "not-json"),
        (ToolCall(name="weather", arguments="{}"), "schema-mismatch"),
        (ToolCall(name="rain", arguments="{}"), "schema-mismatch"),
    ],
)
def test_a_call_is_of_a_tool_that_there_is_and_fits_its_parameters(
    call: ToolCall, expected: str
) -> None:
    assert outcome(TOOLS, "", call) == expected


def test_an_answer_without_a_call_fails_only_where_one_was_required() -> None:
    assert outcome(TOOLS, "It rains.") == "ok"
    required = TOOLS.model_copy(update={"tool_choice": "required"})
    assert outcome(required, "It rains.") == "schema-mismatch"


def test_no_reference_of_a_schema_is_fetched() -> None:
    with stub_service() as service:
        schema = {"$ref": f"{service.url}/schema.json"}
        asked = JSON.model_copy(update={"json_schema": schema})
        assert outcome(asked, "{}") == "schema-mismatch"
        assert service.seen == []


@pytest.mark.parametrize("schema", [3, {"type": "thing"}, {"minimum": "low"}, {"pattern": "("}])
def test_a_schema_that_is_none_is_refused(schema: object) -> None:
    with pytest.raises(DataError, match="schema"):
        check_schema("answer.json", schema)


@pytest.mark.parametrize("tool", [{}, {"type": "function", "function": {}}, {"type": "search"}])
def test_a_tool_that_is_not_as_openai_describes_them_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="must be a function with a name"):
        check_tools("item 1", [tool])


@pytest.mark.parametrize("dialect", ["openai", "openai-chat", "llama-server"])
def test_the_outcome_of_a_stream_says_whether_it_fits(dialect: str) -> None:
    with stub_service(pieces=("{", '"age"', ": ", "7", "}")) as service:
        good = sent(service.url, dialect, JSON)
        service.behaviour.pieces = ("{", '"age"', ": ", '"7"', "}")
        wrong = sent(service.url, dialect, JSON)
        short = sent(service.url, dialect, JSON.model_copy(update={"max_tokens": 2}))
    assert (good.outcome, good.error, len(good.chunks)) == ("ok", "", 5)
    assert (wrong.outcome, wrong.text) == ("schema-mismatch", '{"age": "7"}')
    assert short.outcome == "not-json"
    assert wrong.end_s >= wrong.chunks[-1][0]
    wanted = "json_schema" if dialect == "llama-server" else "response_format"
    assert _schema_in(service.bodies[0][1][wanted]) == SCHEMA


def _schema_in(wanted: dict[str, Any]) -> object:
    return wanted["json_schema"]["schema"] if "json_schema" in wanted else wanted


def test_the_thoughts_before_an_answer_are_no_part_of_its_json() -> None:
    with stub_service(pieces=("Hm, ", '{"age"', ": 7}"), thoughts=1) as service:
        record = sent(service.url, "openai-chat", JSON)
    assert (record.outcome, record.text) == ("ok", 'Hm, {"age": 7}')


def called(*pieces: str, tool: str = "weather") -> RequestRecord:
    with stub_service(pieces=pieces, calls=tool) as service:
        record: RequestRecord = sent(service.url, "openai-chat", TOOLS)
        assert service.bodies[0][1]["tools"] == [WEATHER]
    return record


def test_the_parts_of_a_call_are_put_together_and_timed() -> None:
    record = called('{"city"', ": ", '"Oslo"}')
    assert record.outcome == "ok"
    assert record.tool_calls == (ToolCall(name="weather", arguments='{"city": "Oslo"}'),)
    assert len(record.chunks) == 3
    assert called('{"city"', ": 5}").outcome == "schema-mismatch"
    assert called("{}", tool="rain").error == "there is no tool 'rain'"


@pytest.mark.parametrize("dialect", ["openai", "llama-server", "llm-serving"])
def test_tools_need_a_dialect_with_chats(dialect: str) -> None:
    with pytest.raises(UsageError, match="the data has tools"):
        dialect_named(dialect).body(TOOLS, "stub")


@pytest.mark.parametrize("dialect", ["llm-serving", "openai-embeddings"])
def test_a_dialect_that_cannot_ask_for_json_says_so(dialect: str) -> None:
    with pytest.raises(UsageError, match="cannot ask for answers that fit a JSON schema"):
        dialect_named(dialect).body(JSON, "stub")


def test_an_answer_to_a_request_of_tools_and_a_schema_may_be_either() -> None:
    both = TOOLS.model_copy(update={"json_schema": SCHEMA})
    assert outcome(both, '{"age": 7}') == "ok"
    assert outcome(both, '{"age": "x"}') == "schema-mismatch"
    assert outcome(both, "", ToolCall(name="weather", arguments='{"city": "Oslo"}')) == "ok"
