"""OpenAI's completions, chats and embeddings, also of vLLM, SGLang and llama-server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armload.serving.dialects.dialect import (
    CompletionRequest,
    Event,
    ToolCallPart,
    cached_tokens,
    error_in,
    length_words,
    llama_timings,
    prompt_alone,
    text_alone,
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
        return event_of(content, choice, str(choice.get("text") or ""))


def common_body(request: CompletionRequest, model: str) -> dict[str, Any]:
    """Return what completions and chats are both asked with: greedy, unless the request says so."""
    schema = {"name": "answer", "strict": True, "schema": request.json_schema}
    wanted = {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **length_words(request),
        **({} if request.json_schema is None else wanted),
        **request.extra_body,
    }


def first_choice(content: dict[str, Any]) -> dict[str, Any]:
    """Return the answer's part of an event; empty where it reports usage, or an error, alone.

    Raises:
        KeyError: it is no event.
    """
    if "error" in content:
        return {}
    choices = content["choices"]
    return dict(choices[0]) if choices else {}


def event_of(content: dict[str, Any], choice: dict[str, Any], text: str) -> Event:
    """Describe an event."""
    usage = content.get("usage") or {}
    return Event(
        text=text,
        prompt_tokens=usage.get("prompt_tokens"),
        generated_tokens=usage.get("completion_tokens"),
        cached_tokens=cached_tokens(content),
        finish_reason=str(choice.get("finish_reason") or ""),
        timings=llama_timings(content),
        error=error_in(content),
    )


class OpenAiChat:
    """Streams of a chat; a reasoning model's thoughts count as text."""

    name = "openai-chat"
    path = "/v1/chat/completions"
    is_streamed = True

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        messages = [message.model_dump(exclude_defaults=True) for message in request.chat]
        tools = {"tools": request.tools, "tool_choice": request.tool_choice or "auto"}
        return {
            "messages": messages,
            **(tools if request.tools else {}),
            **common_body(request, model),
        }

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event; the first has a role and no text."""
        choice = first_choice(content)
        delta = choice.get("delta") or {}
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        said = str(delta.get("content") or "")
        calls = tuple(_call(part) for part in delta.get("tool_calls") or ())
        text = f"{thought}{said}{''.join(call.name + call.arguments for call in calls)}"
        return replace(event_of(content, choice, text), content=said, tool_calls=calls)


def _call(part: dict[str, Any]) -> ToolCallPart:
    function = part.get("function") or {}
    return ToolCallPart(
        index=int(part["index"]),
        name=str(function.get("name") or ""),
        arguments=str(function.get("arguments") or ""),
    )


class OpenAiEmbeddings:
    """An embedding for each request, in one piece."""

    name = "openai-embeddings"
    path = "/v1/embeddings"
    is_streamed = False

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        return {"model": model, "input": text_alone(request, self.name), **request.extra_body}

    def event(self, content: dict[str, Any]) -> Event:
        """Read the answer."""
        if error := error_in(content):
            return Event(error=error)
        (item,) = content["data"]
        if not (isinstance(item["embedding"], list) and item["embedding"]):
            raise ValueError("an embedding is not a list of numbers")
        usage = content.get("usage") or {}
        return Event(dimensions=len(item["embedding"]), prompt_tokens=usage.get("prompt_tokens"))
