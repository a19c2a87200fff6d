"""What is known of an answer so far, and what of it can be believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from pydantic_core import from_json

from armload.analysis.load.records import Outcome, ServerTimings, ToolCall
from armload.core.values import parse_json
from armload.serving.connections import OPENED_FOR, WireTimes, beginning_of
from armload.serving.dialects.dialect import (
    CompletionRequest,
    Dialect,
    Event,
    ToolCallPart,
    count_of,
    error_in,
)
from armload.serving.stream import EventStream

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

Heard = Callable[[Event], None]

_LONGEST_ERROR = 500
_LONGEST_WORD = 60
_LONGEST_REDIRECT = 200
REDIRECTED = "redirects are not followed; it redirects to "
"""What the error of a request begins with that was redirected."""

_FIRST_REDIRECT, _FIRST_ERROR, _FIRST_SERVER_ERROR = 300, 400, 500

_MOST_ERROR_BYTES = 1 << 16
_MOST_BYTES, _MOST_BYTES_PER_TOKEN = 1 << 24, 1 << 14
"""Of an answer: where an event has the likelihoods of many tokens, it takes kilobytes."""

_MOST_CALLS = 128
"""As many tools as a request of OpenAI's may have."""

_MOST_PROMPT_EXTRA = 1 << 20
"""Tokens of a prompt beyond one for each byte that was sent: images, and a template's own."""

_MOST_ARRIVALS_PER_TOKEN, _FURTHER_ARRIVALS = 1.25, 2
"""A service sends text at most once for each token, but the network may cut that in two."""

_ENDS_WITHIN_S = 1.0
"""After ``[DONE]``, until the connection ends; some services keep it open."""


class PartialAnswer:
    """What is known of the answer to one request so far.

    Args:
        since_began_s: converts this machine's monotonic time to that of the records.
        received: is told how many more tokens have come.
        heard: is given each event, before what it says is known.
    """

    def __init__(
        self,
        request: CompletionRequest,
        dialect: Dialect,
        since_began_s: Callable[[float], float],
        received: Callable[[int], None],
        heard: Heard | None = None,
    ) -> None:
        self._heard = heard
        self._request = request
        self._dialect = dialect
        self._since_began_s = since_began_s
        self._received = received
        self._times = WireTimes()
        self._stream = EventStream()
        self._ends_with_counts = False
        self.header_s: float | None = None
        self.chunks: list[tuple[float, int | None]] = []
        self.parts: list[str] = []
        self.content: list[str] = []
        self.tool_calls: dict[int, ToolCall] = {}
        self.dimensions: int | None = None
        self.outcome: Outcome = "ok"
        self.status: int | None = None
        self.error = ""
        self.prompt_tokens: int | None = None
        self.generated_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.refused_counts: dict[str, str] = {}
        self.finish_reason = ""
        self.is_truncated = False
        self.timings: ServerTimings | None = None

    @property
    def sent_s(self) -> float | None:
        sent_s = self._times.sent_s
        return None if sent_s is None else self._since_began_s(sent_s)

    @property
    def arrived_s(self) -> float:
        """When the last bytes that were read had arrived.

        Whoever waits for bytes goes on before the loop reads more of the same connection.
        """
        return self._since_began_s(self._times.arrived_s)

    @property
    def ignored_lines(self) -> int:
        return self._stream.ignored_lines

    async def read(self, session: ClientSession, url: str, body: dict[str, object]) -> None:
        """Send the request, and read to the end of what comes.

        Raises:
            ClientError, OSError: the connection ended.
            LookupError, TypeError, ValueError, AttributeError: it is no answer of the dialect.
        """
        OPENED_FOR.set(self._times)
        async with session.post(
            url, json=body, trace_request_ctx=self._times, allow_redirects=False
        ) as response:
            self.header_s = self.arrived_s
            self.status = response.status
            if response.status >= _FIRST_ERROR:
                is_servers = response.status >= _FIRST_SERVER_ERROR
                self.fail("server-error" if is_servers else "http", await _error_of(response))
            elif response.status >= _FIRST_REDIRECT:
                self.fail("http", _redirect_of(response, url))
            else:
                await self._read(response)
        if self.outcome == "ok":
            self._judge()

    async def _read(self, response: ClientResponse) -> None:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise ValueError(f"it is compressed ({encoding[:_LONGEST_WORD]!a}), unasked")
        most_bytes = _MOST_BYTES + _MOST_BYTES_PER_TOKEN * self._request.max_tokens
        if not self._dialect.is_streamed:
            whole, is_whole = await beginning_of(response, most_bytes)
            if not is_whole:
                raise ValueError(f"it has more than {most_bytes} bytes")
            self._add(self._dialect.event(from_json(whole)))
            return
        read_bytes = 0
        async for piece in response.content.iter_any():
            read_bytes += len(piece)
            for content in self._stream.feed(piece):
                self._add(self._dialect.event(content))
            if read_bytes > most_bytes:
                raise ValueError(f"it has more than {most_bytes} bytes")
            if self._stream.is_done:
                break
        for content in self._stream.end():
            self._add(self._dialect.event(content))
        if self._stream.is_done and self.outcome == "ok":
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDS_WITHIN_S):
                    await response.content.readany()

    def fail(self, outcome: Outcome, error: str) -> None:
        # What a service says is shown on terminals.
        words = "".join(each if each.isprintable() else " " for each in error[:_LONGEST_ERROR])
        self.outcome, self.error = outcome, " ".join(words.split())

    def _add(self, event: Event) -> None:
        if self._heard is not None:
            self._heard(event)
        if event.error and self.outcome == "ok":
            self.fail("server-error", event.error)
        if event.is_whole:
            self.parts, self.content = [event.text], [event.text]
        elif event.text:
            self._add_text(event)
        for part in event.tool_calls:
            self._add_call(part)
        self.dimensions = event.dimensions or self.dimensions
        most_prompt = _MOST_PROMPT_EXTRA + self._request.bytes
        prompt = self._count("prompt_tokens", event.prompt_tokens, most_prompt)
        generated = self._count(
            "generated_tokens", event.generated_tokens, self._request.max_tokens
        )
        cached = self._count("cached_tokens", event.cached_tokens, most_prompt)
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.generated_tokens = self.generated_tokens if generated is None else generated
        self.cached_tokens = self.cached_tokens if cached is None else cached
        # Ollama and vLLM can count in every event: only counts without text follow all of it.
        is_last = event.is_whole or not event.text
        self._ends_with_counts = is_last and event.generated_tokens is not None
        self.finish_reason = event.finish_reason[:_LONGEST_WORD] or self.finish_reason
        self.is_truncated = event.is_truncated or self.is_truncated
        self.timings = event.timings or self.timings

    def _add_text(self, event: Event) -> None:
        self.parts.append(event.text)
        self.content.append(event.text if event.content is None else event.content)
        before = (self.chunks[-1][1] or 0) if self.chunks else 0
        tokens = self._count("tokens", event.tokens, self._request.max_tokens)
        if tokens is not None and tokens < before:
            self._refuse("tokens", tokens)
            tokens = None
        self._received(1 if tokens is None else tokens - before)
        self.chunks.append((self.arrived_s, tokens))

    def _add_call(self, part: ToolCallPart) -> None:
        last = max(self.tool_calls, default=-1)
        index = part.index if part.index is not None else last + bool(part.name or last < 0)
        call = self.tool_calls.get(index, ToolCall(name="", arguments=""))
        self.tool_calls[index] = ToolCall(
            name=call.name + part.name, arguments=call.arguments + part.arguments
        )
        if len(self.tool_calls) > _MOST_CALLS:
            raise ValueError(f"more than {_MOST_CALLS} tool calls")

    def _count(self, name: str, written: object, most: int) -> int | None:
        if written is None:
            return None
        count = count_of(written)
        if count is None or count > most:
            self._refuse(name, written)
            return None
        return count

    def _refuse(self, name: str, written: object) -> None:
        self.refused_counts[name] = repr(written)[:_LONGEST_WORD]

    def _judge(self) -> None:
        """Decide whether the answer is whole, and drop counts that contradict it."""
        has_text = any(self.parts)
        if not self.finish_reason and self.dimensions is None:
            self._end_without_reason(has_text=has_text)
        if self.outcome != "ok":
            return
        if not has_text and self.dimensions is None and not self.tool_calls:
            of_tokens = f" ({self.generated_tokens} tokens)" if self.generated_tokens else ""
            self.fail("empty", f"the answer has no text{of_tokens}")
            return
        arrivals = len({at_s for at_s, _ in self.chunks})
        tokens = self.generated_tokens
        most_arrivals = _MOST_ARRIVALS_PER_TOKEN * (tokens or 0) + _FURTHER_ARRIVALS
        if tokens is not None and (arrivals > most_arrivals or (has_text and not tokens)):
            self._refuse("generated_tokens", tokens)
            self.generated_tokens = None
        cached, prompt = self.cached_tokens, self.prompt_tokens
        if cached is not None and prompt is not None and cached > prompt:
            self._refuse("cached_tokens", cached)
            self.cached_tokens = None

    def _end_without_reason(self, *, has_text: bool) -> None:
        if self._stream.is_done and has_text:
            self.finish_reason = "unknown"
        elif not self._ends_with_counts and self.ignored_lines and not has_text:
            self.fail("malformed", f"this is not an answer in dialect {self._dialect.name}")
        elif not self._ends_with_counts:
            # Without a last event nobody knows whether an answer is whole.
            self.fail("dropped", "the stream ended before the answer")


async def _error_of(response: ClientResponse) -> str:
    content, _ = await beginning_of(response, _MOST_ERROR_BYTES)
    text = content.decode("utf-8", "replace")
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    message = error_in(found) or _message_in(found) if isinstance(found, dict) else text
    return message.strip() or str(response.reason)


def _message_in(content: dict[str, Any]) -> str:
    """Return FastAPI's ``detail``, others' ``message``, or all that an error says."""
    found = next((content[key] for key in ("message", "detail") if content.get(key)), content)
    return found if isinstance(found, str) else json.dumps(found)


def _redirect_of(response: ClientResponse, url: str) -> str:
    """Say where a service redirects to: an address that the person has not given gets no key."""
    try:
        to = urlsplit(urljoin(url, response.headers.get("Location", "")))
        place = f"{to.scheme}://{to.hostname}" + (f":{to.port}" if to.port else "") + to.path
    except ValueError:
        place = "an address that is none"
    return f"{REDIRECTED}{place[:_LONGEST_REDIRECT]!a}"
