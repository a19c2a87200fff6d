"""Whether an answer is the JSON, or the tool call, that its request asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from armload.analysis.load.records import ToolCall
from armload.core.errors import DataError
from armload.serving.dialects.dialect import CompletionRequest

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Mismatch = tuple[Literal["not-json", "schema-mismatch"], str]

_LONGEST = 300
_MAY_CALL = (None, "auto", "none")


def check_schema(where: str, schema: object) -> dict[str, Any]:
    """Return a JSON schema that a person has supplied.

    Args:
        where: it comes from, for messages.
    """
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema, dict):
        raise DataError(f"{where}: a JSON schema must be an object.", 'Example: {"type": "object"}')
    try:
        _validator(json.dumps(schema))
    except SchemaError as error:
        raise DataError(
            f"{where}: not a JSON schema: {error.json_path}: {error.message[:_LONGEST]}.",
            "See https://json-schema.org.",
        ) from error
    except RecursionError:
        raise DataError(f"{where}: nested too deep.", "Use a simpler schema.") from None
    return schema


def check_tools(where: str, tools: Sequence[dict[str, Any]]) -> None:
    """Refuse tools that are not as OpenAI describes them."""
    for tool in tools:
        match tool:
            case {"type": "function", "function": {"name": str(name), **about}} if name:
                check_schema(f"{where}: tool {name}", about.get("parameters", {}))
            case {"type": "custom", "custom": {"name": str(name)}} if name:
                pass  # its input is a text
            case _:
                raise DataError(
                    f"{where}: a tool must be a function with a name.",
                    'Example: {"type": "function", "function": {"name": "weather", "parameters": '
                    '{"type": "object"}}}',
                )


def mismatch(
    request: CompletionRequest, content: str, calls: Sequence[ToolCall]
) -> Mismatch | None:
    """Say in what a whole answer is not as asked; none where it is.

    Args:
        content: without thoughts and tool calls.
    """
    if request.tools and (calls or request.json_schema is None or _must_call(request.tool_choice)):
        return _wrong_calls(request, calls)
    return (
        None if request.json_schema is None else _unfit("the answer", content, request.json_schema)
    )


def _wrong_calls(request: CompletionRequest, calls: Sequence[ToolCall]) -> Mismatch | None:
    described = [tool["function"] for tool in request.tools if "function" in tool]
    schemas = {each["name"]: each.get("parameters") for each in described}
    custom = {tool["custom"]["name"] for tool in request.tools if "custom" in tool}
    if not calls and _must_call(request.tool_choice):
        return "schema-mismatch", "no tool was called"
    for call in calls:
        if call.name in custom:
            continue
        if call.name not in schemas:
            return "schema-mismatch", f"there is no tool {call.name[:_LONGEST]!a}"
        found = _unfit(f"the call of {call.name}", call.arguments or "{}", schemas[call.name] or {})
        if found:
            return found
    return None


def _must_call(choice: str | dict[str, Any] | None) -> bool:
    match choice:
        case {"allowed_tools": {"mode": str(mode)}}:
            return mode not in _MAY_CALL
    return choice not in _MAY_CALL


def _unfit(what: str, text: str, schema: dict[str, Any]) -> Mismatch | None:
    from jsonschema.exceptions import best_match

    try:
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return "not-json", f"{what} is not JSON: {error}"[:_LONGEST]
    try:
        found = best_match(_validator(json.dumps(schema)).iter_errors(content))
    except Exception as error:  # noqa: BLE001 - a pattern or number of another world's
        return "schema-mismatch", f"the schema cannot be followed: {error}"[:_LONGEST]
    if found is None:
        return None
    return "schema-mismatch", f"{what} does not fit: {found.json_path}: {found.message}"[:_LONGEST]


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = json.loads(schema_text)
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    # Without a registry, references to other documents would be fetched.
    return kind(schema, registry=Registry())
