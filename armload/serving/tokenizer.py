"""What a service says of itself besides answers: its model, and how it counts tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import aiohttp
from pydantic_core import from_json

from armload.serving.connections import OPENED_FOR, WireTimes, beginning_of, connected

_WAIT_S = 30.0
_MOST_BYTES = 1 << 24
_CHATML_BEGIN = "<|im_start|>"
_FALLBACK = f"{{%- for message in messages -%}}\n  {{{{- '{_CHATML_BEGIN}' + message.role"
"""What llama.cpp's own template begins with (CHATML_TEMPLATE_SRC in common/chat.cpp)."""
_SPACES = (" ", "\u2581", "\u0120")


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

    def lacks_chat_template(self) -> bool:
        """Say whether it is a llama-server whose model has no chat template.

        It falls back to ChatML then. A model that was trained for ChatML has a token for the begin
        of a message. Of any other server this is false.
        """
        match self._answer("GET", "/props", None):
            case {"chat_template": str(template)} if template.startswith(_FALLBACK):
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
