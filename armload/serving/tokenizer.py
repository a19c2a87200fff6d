"""What a service says of itself besides answers: its model, and how it counts tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import aiohttp
from pydantic_core import from_json

from armload.core.values import Value
from armload.serving.connections import OPENED_FOR, WireTimes, beginning_of, connected
from armload.serving.dialects.dialect import count_of, text_of

_WAIT_S = 30.0
_MOST_BYTES = 1 << 24
_CHATML_BEGIN = "<|im_start|>"
_FALLBACK = f"{{%- for message in messages -%}}\n  {{{{- '{_CHATML_BEGIN}' + message.role"
"""What llama.cpp's own template begins with (CHATML_TEMPLATE_SRC in common/chat.cpp)."""
_SPACES = (" ", "\u2581", "\u0120")


class ServiceProperties(Value):
    """What a server says of a model; none of what it does not say.

    Attributes:
        template: of its chats.
        context_tokens: of a slot.
        takes_images: in chats.
        is_greedy: requests that give no temperature are answered by the likeliest tokens.
    """

    template: str = ""
    context_tokens: int | None = None
    takes_images: bool | None = None
    is_greedy: bool | None = None


class ServiceApi:
    """The service behind an address.

    Args:
        url: without a path.
        api_key: empty for none.
    """

    def __init__(self, url: str, api_key: str) -> None:
        self._url = url
        self._api_key = api_key

    def model(self) -> str:
        """Return the name of the first model that it offers; empty where it does not say."""
        content = self._answer("GET", "/v1/models", None)
        match content:
            case {"data": [{"id": str(name)}, *_]}:
                return name
        return ""

    def count(self, text: str) -> int | None:
        """Return the length of a text in tokens, without special ones; none if it cannot tell."""
        content = self._answer("POST", "/tokenize", {"content": text, "add_special": False})
        match content:
            case {"tokens": list(tokens)}:
                return len(tokens)
        return None

    def whole_words(self, words: Sequence[str]) -> list[str] | None:
        """Return those words that are one token each in a text; none if it cannot tell."""
        text = "".join(f" {word}" for word in words)
        content = self._answer("POST", "/tokenize", {"content": text, "with_pieces": True})
        match content:
            case {"tokens": [{"piece": _}, *_] as tokens}:
                pieces = {str(token["piece"]) for token in tokens}
                return [word for word in words if any(f"{s}{word}" in pieces for s in _SPACES)]
        return None

    def models(self) -> tuple[str, ...]:
        """Return the names of all models that it offers, as far as it says."""
        match self._answer("GET", "/v1/models", None):
            case {"data": list(found)}:
                return tuple(each["id"] for each in found if _is_named(each))
        return ()

    def properties(self, model: str = "") -> ServiceProperties:
        """Return what a llama-server says of a model, or vLLM of its first; else nothing is known.

        Args:
            model: of a llama-server that offers several.
        """
        asked = f"?{urlencode({'model': model})}" if model else ""
        match self._answer("GET", f"/props{asked}", None):
            case dict(said):
                return _properties(said)
        match self._answer("GET", "/v1/models", None):
            case {"data": [{"max_model_len": most}, *_]}:
                return ServiceProperties(context_tokens=count_of(most) or None)
        return ServiceProperties()

    def lacks_chat_template(self, known: ServiceProperties | None = None) -> bool:
        """Say whether it is a llama-server whose model has no chat template.

        It falls back to ChatML then. A model that was trained for ChatML has a token for the begin
        of a message. Of any other server this is false.

        Args:
            known: what it said of itself; none to ask it.
        """
        if (known or self.properties()).template.startswith(_FALLBACK):
            count = self.count(_CHATML_BEGIN)
            return count is not None and count > 1
        return False

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> object:
        try:
            content = asyncio.run(self._content(method, path, body))
            return None if content is None else from_json(content)
        except (aiohttp.ClientError, OSError, ValueError):
            return None

    async def _content(self, method: str, path: str, body: dict[str, Any] | None) -> bytes | None:
        OPENED_FOR.set(times := WireTimes())
        async with (
            asyncio.timeout(_WAIT_S),
            connected(self._api_key) as session,
            session.request(
                *(method, self._url + path),
                json=body,
                allow_redirects=False,
                trace_request_ctx=times,
            ) as response,
        ):
            if response.status != HTTPStatus.OK:
                return None
            content, is_whole = await beginning_of(response, _MOST_BYTES)
            return content if is_whole else None


def _is_named(model: object) -> bool:
    return isinstance(model, dict) and isinstance(model.get("id"), str)


def _properties(said: dict[str, Any]) -> ServiceProperties:
    usual = said.get("default_generation_settings")
    usual = usual if isinstance(usual, dict) else {}
    sampling = usual.get("params")
    sampling = sampling if isinstance(sampling, dict) else usual
    takes = said.get("modalities")
    vision = takes.get("vision") if isinstance(takes, dict) else None
    temperature = sampling.get("temperature")
    return ServiceProperties(
        template=text_of(said.get("chat_template")),
        context_tokens=count_of(usual.get("n_ctx")) or None,
        takes_images=vision if isinstance(vision, bool) else None,
        is_greedy=temperature <= 0 if isinstance(temperature, int | float) else None,
    )
