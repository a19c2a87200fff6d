"""One request: it is sent, its stream is read, and what became of it is recorded."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import sys
import time
from typing import TYPE_CHECKING

import aiohttp
from pydantic_core import from_json

from armload.analysis.load.live import Chunks
from armload.analysis.load.records import Outcome, RequestRecord, ServerTimings, ToolCall
from armload.core.values import parse_json
from armload.serving.answer_format import mismatch
from armload.serving.connections import OPENED_FOR, WireTimes
from armload.serving.dialects.dialect import CompletionRequest, Dialect, Event
from armload.serving.stream import event_in, is_done, is_ignored, lines_of

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

_LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS))
"""Errors of opening a connection that are about this machine, not about the service."""

_LONGEST_ERROR = 500
_FIRST_SERVER_ERROR = 500
_FIRST_ERROR = 400


class Client:
    """A client of one service, on one clock.

    Attributes:
        received_tokens: of all answers so far; a chunk counts as one where the dialect does not
            say how many.
        under_way: when each request without an end was scheduled, and the chunks that have come.

    Args:
        session: as ``connected`` opens it.
        url: of the service, without a path.
        model: the name that is asked for.
        timeout_s: the most that a request may take.
        most: requests in flight; others are held back, and go out in order. None for any number.
    """

    def __init__(
        self,
        session: ClientSession,
        url: str,
        dialect: Dialect,
        model: str,
        timeout_s: float,
        *,
        most: int | None = None,
    ) -> None:
        self._session = session
        self._url = url.rstrip("/") + dialect.path
        self._dialect = dialect
        self._model = model
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(most or sys.maxsize)
        self.received_tokens = 0
        self.under_way: dict[int, tuple[float, Chunks]] = {}
        self.began_s = time.monotonic()

    def begin(self, delay_s: float) -> None:
        """Set the time 0 of the records: in ``delay_s`` from now."""
        self.began_s = time.monotonic() + delay_s

    def now_s(self) -> float:
        """Return the time since the load began."""
        return self.since_began_s(time.monotonic())

    def since_began_s(self, monotonic_s: float) -> float:
        """Return the time since the load began, of one on this machine's monotonic clock."""
        return monotonic_s - self.began_s

    async def send(
        self,
        request: CompletionRequest,
        *,
        number: int,
        scheduled_s: float,
        is_warmup: bool = False,
        patience_s: float = math.inf,
    ) -> RequestRecord:
        """Send a request, read its answer to the end, and return what became of it.

        No failure of it is raised, and neither is a cancellation: that is an outcome.

        Args:
            patience_s: after its scheduled time, the user gives it up; the connection is closed.
        """
        answer = _Answer(self, self._dialect)
        ready_s, begun_s, held_s = self.now_s(), None, 0.0
        is_held = self._room.locked()
        waits_s = max(0.0, scheduled_s + patience_s - ready_s)
        patience = asyncio.timeout(None if math.isinf(waits_s) else waits_s)
        try:
            async with patience, self._room:
                begun_s = self.now_s()
                held_s = begun_s - ready_s if is_held else 0.0
                self.under_way[number] = scheduled_s, answer.chunks
                body = self._dialect.body(request, self._model)
                async with asyncio.timeout(self._timeout_s):
                    await answer.read(self._session, self._url, body)
        except TimeoutError:
            if patience.expired():
                held_s = self.now_s() - ready_s if begun_s is None else held_s
                answer.fail("abandoned", f"the user gave up after {patience_s:.3g} s")
            else:
                answer.fail("timeout", f"no complete answer within {self._timeout_s:g} s")
        except asyncio.CancelledError:
            answer.fail("cancelled", "the load was ended")
        except aiohttp.ClientConnectorError as error:
            is_ours = error.os_error.errno in _LIMITS
            answer.fail("client-limit" if is_ours else "refused", _reason(error))
        except (aiohttp.ClientError, OSError) as error:
            answer.fail("dropped", f"the connection ended: {error or type(error).__name__}")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            answer.fail(
                "malformed", f"this is not an answer in dialect {self._dialect.name}: {error!r}"
            )
        self.under_way.pop(number, None)
        end_s = self.now_s() if answer.outcome != "ok" else answer.arrived_s
        text, content = "".join(answer.parts), "".join(answer.content)
        calls = tuple(answer.tool_calls.values())
        if answer.outcome == "ok" and (found := mismatch(request, content, calls)):
            answer.fail(*found)
        return RequestRecord(
            number=number,
            is_warmup=is_warmup,
            scheduled_s=scheduled_s,
            begun_s=begun_s,
            held_s=held_s,
            sent_s=answer.sent_s,
            header_s=answer.header_s,
            chunks=tuple(answer.chunks),
            end_s=end_s,
            outcome=answer.outcome,
            status=answer.status,
            error=answer.error,
            prompt_tokens=answer.prompt_tokens,
            generated_tokens=answer.generated_tokens,
            cached_tokens=answer.cached_tokens,
            limit_tokens=request.max_tokens if self._dialect.is_streamed else None,
            finish_reason=answer.finish_reason,
            is_truncated=answer.is_truncated,
            ignored_lines=answer.ignored_lines,
            timings=answer.timings,
            dimensions=answer.dimensions,
            prompt=request.last,
            text=text,
            content=None if content == text else content,
            tool_calls=calls,
        )


class _Answer:
    """What is known of an answer so far."""

    def __init__(self, client: Client, dialect: Dialect) -> None:
        self._client = client
        self._dialect = dialect
        self._times = WireTimes()
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
        self.finish_reason = ""
        self.is_truncated = False
        self.ignored_lines = 0
        self.timings: ServerTimings | None = None

    @property
    def sent_s(self) -> float | None:
        sent_s = self._times.sent_s
        return None if sent_s is None else self._client.since_began_s(sent_s)

    @property
    def arrived_s(self) -> float:
        """When the last bytes that were read had arrived.

        Whoever waits for bytes goes on before the loop reads more of the same connection.
        """
        return self._client.since_began_s(self._times.arrived_s)

    async def read(self, session: ClientSession, url: str, body: dict[str, object]) -> None:
        OPENED_FOR.set(self._times)
        async with session.post(url, json=body, trace_request_ctx=self._times) as response:
            self.header_s = self.arrived_s
            self.status = response.status
            if response.status >= _FIRST_ERROR:
                is_servers = response.status >= _FIRST_SERVER_ERROR
                self.fail("server-error" if is_servers else "http", await _error_of(response))
                return
            if not self._dialect.is_streamed:
                content = from_json(await response.read())
                self._add(self._dialect.event(content), self.arrived_s)
                return
            is_ended = False
            async for line in lines_of(response.content.iter_any()):
                content = event_in(line)
                if content is not None:
                    self._add(self._dialect.event(content), self.arrived_s)
                elif is_done(line):
                    is_ended = True
                elif is_ignored(line):
                    self.ignored_lines += 1
        if self.outcome == "ok" and not self.finish_reason:
            self._end_without_reason(is_ended=is_ended)

    def _end_without_reason(self, *, is_ended: bool) -> None:
        if is_ended and self.parts:
            self.finish_reason = "unknown"
        elif self.generated_tokens is None and self.ignored_lines and not self.parts:
            self.fail("malformed", f"this is not an answer in dialect {self._dialect.name}")
        elif self.generated_tokens is None:
            # Without a last event nobody knows whether an answer is whole.
            self.fail("dropped", "the stream ended before the answer")

    def fail(self, outcome: Outcome, error: str) -> None:
        self.outcome, self.error = outcome, error

    def _add(self, event: Event, at_s: float) -> None:
        if event.error:
            self.fail("server-error", event.error[:_LONGEST_ERROR])
        if event.is_whole:
            self.parts, self.content = [event.text], [event.text]
        elif event.text:
            self.parts.append(event.text)
            self.content.append(event.text if event.content is None else event.content)
            before = (self.chunks[-1][1] or 0) if self.chunks else 0
            self._client.received_tokens += 1 if event.tokens is None else event.tokens - before
            self.chunks.append((at_s, event.tokens))
        for part in event.tool_calls:
            call = self.tool_calls.get(part.index, ToolCall(name="", arguments=""))
            self.tool_calls[part.index] = ToolCall(
                name=call.name + part.name, arguments=call.arguments + part.arguments
            )
        self.dimensions = event.dimensions or self.dimensions
        if event.prompt_tokens is not None:
            self.prompt_tokens = event.prompt_tokens
        if event.generated_tokens is not None:
            self.generated_tokens = event.generated_tokens
        if event.cached_tokens is not None:
            self.cached_tokens = event.cached_tokens
        self.finish_reason = event.finish_reason or self.finish_reason
        self.is_truncated = event.is_truncated or self.is_truncated
        self.timings = event.timings or self.timings


async def _error_of(response: ClientResponse) -> str:
    text = (await response.read()).decode("utf-8", "replace")
    try:
        content = parse_json(text)
    except ValueError:
        content = None
    error = content.get("error", content) if isinstance(content, dict) else text
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:_LONGEST_ERROR] or str(response.reason)


def _reason(error: aiohttp.ClientConnectorError) -> str:
    """Return the system's reason; asyncio puts the address into its text."""
    number = error.os_error.errno
    return os.strerror(number) if number else str(error.os_error or error)
