"""OpenAI's completions and chats, also of vLLM, SGLang and llama-server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armload.serving.dialects.dialect import (
    CompletionRequest,
    Event,
    cached_tokens,
    error_in,
    length_words,
    llama_timings,
    prompt_alone,
)


class OpenAi:
    """Streams whose last event has the counts of tokens."""

    name = "openai"
    path = "/v1/completions"

    def body(self, ask: CompletionRequest, model: str) -> dict[str, Any]:
        """Return the body of a greedy request."""
        return {"prompt": prompt_alone(ask, self.name), **common_body(ask, model)}

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event."""
        choice = first_choice(content)
        return event_of(content, choice, str(choice.get("text") or ""))


def common_body(ask: CompletionRequest, model: str) -> dict[str, Any]:
    """Return what completions and chats are both asked with."""
    return {
        "model": model,
        "max_tokens": ask.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **length_words(ask),
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

    def body(self, ask: CompletionRequest, model: str) -> dict[str, Any]:
        """Return the body of a greedy request."""
        messages = [message.model_dump() for message in ask.chat]
        return {"messages": messages, **common_body(ask, model)}

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event; the first has a role and no text."""
        choice = first_choice(content)
        delta = choice.get("delta") or {}
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        said = str(delta.get("content") or "")
        return replace(event_of(content, choice, f"{thought}{said}"), content=said)
