"""OpenAI's chats: ``POST /v1/chat/completions``, also of vLLM, SGLang and llama-server."""

from __future__ import annotations

from typing import Any

from armload.serving.ask import Ask
from armload.serving.dialects.dialect import Event
from armload.serving.dialects.openai import common_body, event_of, first_choice


class OpenAiChat:
    """Streams of a chat; a reasoning model's thoughts count as text."""

    name = "openai-chat"
    path = "/v1/chat/completions"

    def body(self, ask: Ask, model: str) -> dict[str, Any]:
        """Return the body of a greedy request."""
        messages = [message.model_dump() for message in ask.chat]
        return {"messages": messages, **common_body(ask, model)}

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event; the first has a role and no text."""
        choice = first_choice(content)
        delta = choice.get("delta") or {}
        text = str(delta.get("reasoning_content") or "") + str(delta.get("content") or "")
        return event_of(content, choice, text)
