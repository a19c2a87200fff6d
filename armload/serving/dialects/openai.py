"""OpenAI's completions, chats and embeddings, and rankings, also of vLLM and llama-server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from armload.serving.dialects.dialect import (
    CompletionRequest,
    Event,
    ToolCallPart,
    cached_tokens,
    count_of,
    error_in,
    length_words,
    llama_timings,
    prompt_alone,
    text_alone,
    text_of,
)


class OpenAi:
    """Streams whose last event has the counts of tokens."""

    name = "openai"
    path = "/v1/completions"
    is_streamed = True

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        """Return the body of a request; llama-server reads a schema from a key of its own."""
        schema = {} if request.json_schema is None else {"json_schema": request.json_schema}
        return {"prompt": prompt_alone(request, self.name), **schema, **common_body(request, model)}

    def event(self, content: dict[str, Any]) -> Event:
        choice = first_choice(content)
        return event_of(content, choice, text_of(choice.get("text")))


def common_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """Return what completions and chats are both asked with: greedy, unless the request says so."""
    wanted = request.response_format
    if wanted is None and request.json_schema is not None:
        schema = {"name": "answer", "strict": True, "schema": request.json_schema}
        wanted = {"type": "json_schema", "json_schema": schema}
    return {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **length_words(request),
        **({} if wanted is None else {"response_format": wanted}),
        **request.extra_body,
    }


_BROKEN_OFF = frozenset(("error", "abort", "aborted"))
"""Finish reasons of vLLM, SGLang and OpenRouter that say that the service gave up."""


def first_choice(content: dict[str, Any]) -> dict[str, Any]:
    """Return the answer's part of an event; empty where it reports usage, or an error, alone.

    Raises:
        KeyError, TypeError: it is no event.
    """
    if error_in(content):
        return {}
    choices = content.get("choices") if "usage" in content else content["choices"]
    if not choices:
        return {}
    if not (isinstance(choices, list) and isinstance(choices[0], dict)):
        raise TypeError(f"choices {str(choices)[:60]!a}")
    return choices[0]


def event_of(content: dict[str, Any], choice: dict[str, Any], text: str) -> Event:
    usage = content.get("usage") or choice.get("usage")
    if not isinstance(usage, dict):
        usage = {}
    reason = choice.get("finish_reason")
    finished = str(reason.get("type") if isinstance(reason, dict) else reason or "")
    broken = f"the service gave up (finish_reason {finished})" if finished in _BROKEN_OFF else ""
    return Event(
        text=text,
        prompt_tokens=usage.get("prompt_tokens"),
        generated_tokens=usage.get("completion_tokens"),
        cached_tokens=cached_tokens(content),
        finish_reason=finished,
        timings=llama_timings(content),
        error=error_in(content) or error_in(choice) or broken,
    )


class OpenAiChat:
    """Streams of a chat; a reasoning model's thoughts count as text."""

    name = "openai-chat"
    path = "/v1/chat/completions"
    is_streamed = True

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        messages = [message.model_dump(exclude_unset=True) for message in request.chat]
        tools = {"tools": request.tools, "tool_choice": request.tool_choice or "auto"}
        return {
            "messages": messages,
            **(tools if request.tools else {}),
            **common_body(request, model),
        }

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event; the first has a role and no text.

        Where a service does not stream, ``message`` holds the whole answer.
        """
        choice = first_choice(content)
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise TypeError(f"delta {str(delta)[:60]!a}")
        thought = text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning"))
        said = text_of(delta.get("content")) or text_of(delta.get("refusal")) or _spoken(delta)
        calls = tuple(_calls(delta, is_whole="message" in choice))
        text = f"{thought}{said}{''.join(call.name + call.arguments for call in calls)}"
        event = event_of(content, choice, text)
        return replace(event, thought=thought, content=said, tool_calls=calls)


def _calls(delta: dict[str, Any], *, is_whole: bool) -> Iterator[ToolCallPart]:
    parts = delta.get("tool_calls")
    if isinstance(parts, dict):  # of older TGI
        parts = [parts]
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        # Calls of a whole answer have no index, and neither have Gemini's.
        index = number if is_whole else count_of(part.get("index"))
        yield _call(index, part.get("function") or part.get("custom"))
    if isinstance(function := delta.get("function_call"), dict):
        yield _call(0, function)


def _call(index: int | None, function: object) -> ToolCallPart:
    if not isinstance(function, dict):
        return ToolCallPart(index=index)
    arguments = function.get("arguments", function.get("input"))
    return ToolCallPart(
        index=index,
        name=text_of(function.get("name")),
        arguments=json.dumps(arguments) if isinstance(arguments, dict) else text_of(arguments),
    )


def _spoken(delta: dict[str, Any]) -> str:
    audio = delta.get("audio")
    return text_of(audio.get("transcript")) if isinstance(audio, dict) else ""


class OpenAiEmbeddings:
    """An embedding for each request, in one piece."""

    name = "openai-embeddings"
    path = "/v1/embeddings"
    is_streamed = False

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        return {"model": model, "input": text_alone(request, self.name), **request.extra_body}

    def event(self, content: dict[str, Any]) -> Event:
        if error := error_in(content):
            return Event(error=error)
        (item,) = content["data"]
        numbers = item["embedding"]
        if not (isinstance(numbers, list) and numbers and all(map(_is_number, numbers))):
            raise ValueError("an embedding is not a list of numbers")
        usage = content.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return Event(dimensions=len(numbers), prompt_tokens=tokens)


class Rerank:
    """Scores of texts for a query, as llama-server, vLLM, Jina and Cohere answer.

    The first line of a prompt is the query, every further one a text. Of a prompt of one line, the
    first quarter of the words is the query, and the others are the text.
    """

    name = "rerank"
    path = "/v1/rerank"
    is_streamed = False

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        query, *documents = text_alone(request, self.name).split("\n")
        if not documents:
            words = query.split()
            at = max(1, len(words) // 4)
            query, documents = " ".join(words[:at]), [" ".join(words[at:]) or query]
        return {"model": model, "query": query, "documents": documents, **request.extra_body}

    def event(self, content: dict[str, Any]) -> Event:
        if error := error_in(content):
            return Event(error=error)
        scores = [each["relevance_score"] for each in content["results"]]
        if not (scores and all(map(_is_number, scores))):
            raise ValueError("a ranking is not a list of scores")
        usage = content.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return Event(dimensions=len(scores), prompt_tokens=tokens)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
