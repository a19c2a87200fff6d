"""The requests of a file: JSON lines or one JSON array, read as far as they are needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import Field, ValidationError

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.validation_messages import explain_mistake
from armload.core.values import Value, load_json
from armload.serving.answer_format import check_schema, check_tools
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest

DEFAULT_LIMIT = 128
LONGEST = 1_000_000

_FORMS = (
    'Each line must be like {"prompt": "...", "max_tokens": 64}, {"messages": [...]}, '
    '{"query": "...", "documents": ["...", ...]}, '
    '{"instruction": "...", "input": "...", "output": "..."}, or {"conversations": [{"from": '
    '"human", "value": "..."}, ...]}.'
)
_PIECE_CHARACTERS = 1 << 20
_SPACES = " \t\r\n"

RESERVED = frozenset(
    (
        *("prompt", "messages", "input", "inputs", "model", "max_tokens", "max_completion_tokens"),
        *("query", "documents"),
        *("n_predict", "max_new_tokens", "n", "stream", "stream_options", "encoding_format"),
        *("tools", "tool_choice", "response_format", "json_schema", "return_full_text"),
    )
)
"""Keys of a request that have a place of their own, or that its figures depend on."""

_SENT_AS_WRITTEN = (
    *("functions", "function_call", "logit_bias", "logprobs", "metadata", "moderation"),
    *("parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "reasoning_effort", "safety_identifier", "service_tier", "store"),
    *("suffix", "top_logprobs", "user", "verbosity", "web_search_options"),
)
"""Further parameters of OpenAI's chats and completions."""

_DECIDED: Mapping[str, tuple[object, ...]] = {
    "stream": (True,),
    "stream_options": ({"include_usage": True},),
    "n": (1,),
    "best_of": (0, 1),
    "echo": (False,),
    "modalities": (["text"],),
    "model": (),
    "audio": (),
}
"""Those that load decides, with what a line may say: what load sends anyway."""


class _ResponseFormat(Value):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None

    @property
    def as_sent(self) -> dict[str, Any]:
        """As it was written, with the name that services demand of a schema."""
        if self.json_schema is None:
            return {"type": self.type}
        return {"type": self.type, "json_schema": {"name": "answer", **self.json_schema}}


class _Line(Value):
    # A request as a person writes it, in OpenAI's words.
    prompt: str = ""
    messages: tuple[ChatMessage, ...] = ()
    query: str = ""
    documents: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: _ResponseFormat | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)


_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    *("frequency_penalty", "presence_penalty"),
)


def requests_of(
    path: Path,
    *,
    most: int | None,
    draw: Callable[[], int] | None,
    count: Callable[[str], int | None],
) -> Iterator[CompletionRequest]:
    """Yield the requests of a file; those after the last that is needed are not read.

    An item has ``prompt``, or ``messages`` of a chat, or ``query`` and ``documents`` to be ranked,
    and may have ``max_tokens``, sampling
    parameters, ``tools``, ``response_format``, and other keys in ``extra_body``. Or it is one of
    Alpaca's: the prompt is ``instruction:input``. Or one of ShareGPT's: the prompt is the first
    message of the human that was answered; a conversation without one is left out. The limit of
    these two is the length of the answer in the file.

    Args:
        most: as many are needed; none for all.
        draw: draws limits that override those of the file; none for the file's own.
        count: counts the tokens of a text, as far as it can.
    """
    is_empty = True
    with closing(_items(path)) as items:
        found = (
            request
            for number, item in enumerate(items, start=1)
            if (request := _request(f"{path}: item {number}", item, draw, count)) is not None
        )
        for request in islice(found, most):
            is_empty = False
            yield request
    if is_empty:
        raise DataError(f"{path}: not a list of requests.", _FORMS)


def check_extra(
    where: str, extra: object, kind: type[DataError | UsageError] = DataError
) -> dict[str, Any]:
    """Return further keys of a request that a person has supplied."""
    if not isinstance(extra, dict):
        raise kind(f"{where}: must be a JSON object.", 'Example: {"top_p": 0.9}')
    if taken := sorted(RESERVED & extra.keys()):
        raise kind(
            f"{where}: cannot set {', '.join(taken)}.",
            "Give prompt, messages, max_tokens, tools and response_format as keys of a line; load "
            "sets the others itself.",
        )
    return extra


def _undecided(where: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without what load decides."""
    for key in _DECIDED.keys() & item.keys():
        value = item[key]
        if value is not None and not any(value == each for each in _DECIDED[key]):
            raise DataError(
                f"{where}: cannot set {key} to {json.dumps(value):.60}.",
                f"Remove {key}. load asks one model (--model) for one answer at a time, as a "
                "stream of text.",
            )
    return {key: value for key, value in item.items() if key not in _DECIDED}


def _items(path: Path) -> Generator[dict[str, Any]]:
    require_file(path, "file of requests", f"Give another file with --data. {_FORMS}")
    try:
        with path.open(encoding="utf-8-sig") as file:
            begin = file.read(_PIECE_CHARACTERS)
            is_array = begin.lstrip().startswith("[")
            file.seek(0)
            for item in _array(file) if is_array else _lines(file):
                if not isinstance(item, dict):
                    raise DataError(f"{path}: not a list of requests.", _FORMS)
                yield item
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8.", "Give a file of JSON lines.") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON lines: {error}.", _FORMS) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _lines(file: TextIO) -> Iterator[Any]:
    return (load_json(line) for line in file if line.strip())


def _array(file: TextIO) -> Iterator[Any]:
    """Yield the items of a JSON array that may be larger than this machine's memory."""
    decoder = json.JSONDecoder()
    text, at = file.read(_PIECE_CHARACTERS).lstrip()[1:], 0
    is_first = True
    while True:
        at = _after_spaces(text, at)
        try:
            if text[at : at + 1] == "]" and is_first:
                return
            item, end = decoder.raw_decode(text, at)
            end = _after_spaces(text, end)
            separator = text[end : end + 1]
            # A number at the end of what is read may go on.
            if not separator:
                raise ValueError("the array is not closed")
            if separator not in ",]":
                raise json.JSONDecodeError("expected a comma", text, end)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        except ValueError:
            more = file.read(max(_PIECE_CHARACTERS, len(text) - at))
            if not more:
                raise
            text, at = text[at:] + more, 0
            continue
        yield item
        is_first = False
        if separator == "]":
            return
        at = end + 1


def _after_spaces(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACES:
        at += 1
    return at


def _request(
    where: str,
    item: dict[str, Any],
    draw: Callable[[], int] | None,
    count: Callable[[str], int | None],
) -> CompletionRequest | None:
    if "conversations" in item:
        pair = _first_exchange(item["conversations"])
        if pair is None:
            return None
        prompt, answer = pair
        return CompletionRequest(
            prompt=prompt, max_tokens=draw() if draw else _counted(where, answer, count)
        )
    if "instruction" in item:
        instruction, context = str(item["instruction"]), str(item.get("input") or "")
        prompt = f"{instruction}:{context}" if context else instruction
        limit = draw() if draw else _counted(where, str(item.get("output") or ""), count)
        return CompletionRequest(prompt=prompt, max_tokens=limit)
    item = _undecided(where, item)
    further = {key: item.pop(key) for key in _SENT_AS_WRITTEN if key in item}
    try:
        line = _Line.model_validate(item)
    except ValidationError as error:
        raise DataError(f"{where}: {explain_mistake(error, _Line)}.", _FORMS) from error
    if bool(line.query) != bool(line.documents):
        raise DataError(f"{where}: must have both query and documents, or neither.", _FORMS)
    if line.query and not (line.prompt or line.messages):
        lines = (" ".join(each.split()) for each in (line.query, *line.documents))
        line = line.model_copy(update={"prompt": "\n".join(lines)})
    elif line.query or bool(line.prompt) == bool(line.messages):
        raise DataError(f"{where}: must have either prompt or messages, or query.", _FORMS)
    given = line.max_completion_tokens if line.max_tokens is None else line.max_tokens
    limit = draw() if draw else DEFAULT_LIMIT if given is None else given
    if not 1 <= limit <= LONGEST:
        raise DataError(f"{where}: max_tokens must be from 1 to {LONGEST:,}.", _FORMS)
    check_tools(where, line.tools)
    extra = check_extra(f"{where}: extra_body", line.extra_body)
    sampling = {name: value for name in _SAMPLING if (value := getattr(line, name)) is not None}
    wanted = line.response_format
    if wanted is None or wanted.type == "text":
        schema = None
    elif wanted.type == "json_object":
        schema = {"type": "object"}
    else:
        schema = check_schema(f"{where}: response_format", (wanted.json_schema or {}).get("schema"))
    return CompletionRequest(
        prompt=line.prompt,
        messages=line.messages,
        max_tokens=limit,
        json_schema=schema,
        response_format=line.response_format and line.response_format.as_sent,
        tools=line.tools,
        tool_choice=line.tool_choice,
        extra_body={**sampling, **further, **extra},
    )


def _first_exchange(conversation: object) -> tuple[str, str] | None:
    """Return the first message of a human in ShareGPT's form, with its answer; none without."""
    turns = conversation if isinstance(conversation, list) else []
    for turn, answer in pairwise(turns):
        match turn, answer:
            case (
                {"from": "human" | "user", "value": str(prompt)},
                {"from": "gpt" | "chatgpt" | "assistant", "value": str(text)},
            ) if prompt and text:
                return prompt, text
    return None


def _counted(where: str, output: str, count: Callable[[str], int | None]) -> int:
    tokens = count(output)
    if tokens is None:
        raise UsageError(
            f"{where}: its limit is the length of its output, and the service has no /tokenize to "
            "count tokens with.",
            "Give a limit with --n-predict.",
        )
    return max(1, tokens)
