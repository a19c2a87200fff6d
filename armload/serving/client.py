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

from armload.analysis.load.live import Chunks
from armload.analysis.load.records import RequestRecord
from armload.serving.answer import Heard, PartialAnswer
from armload.serving.answer_format import mismatch
from armload.serving.dialects.dialect import CompletionRequest, Dialect, is_fixed

if TYPE_CHECKING:
    from aiohttp import ClientSession

_LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS))
"""Errors of opening a connection that are about this machine, not about the service."""


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

    def _add_tokens(self, count: int) -> None:
        self.received_tokens += count

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
        heard: Heard | None = None,
    ) -> RequestRecord:
        """Send a request, read its answer to the end, and return what became of it.

        No failure of it is raised, and neither is a cancellation: that is an outcome.

        Raises:
            UsageError: the dialect cannot ask so.

        Args:
            patience_s: after its scheduled time, the user gives it up; the connection is closed.
            heard: is given each event as it comes.
        """
        answer = PartialAnswer(request, self._dialect, self.since_began_s, self._add_tokens, heard)
        body = self._dialect.body(request, self._model)
        ready_s, begun_s, held_s = self.now_s(), None, 0.0
        is_held = self._room.locked()
        waits_s = max(0.0, scheduled_s + patience_s - ready_s)
        patience = asyncio.timeout(None if math.isinf(waits_s) else waits_s)
        try:
            async with patience, self._room:
                begun_s = self.now_s()
                held_s = begun_s - ready_s if is_held else 0.0
                self.under_way[number] = scheduled_s, answer.chunks
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
            errno = error.os_error.errno
            # The system's reason; asyncio puts the address into its text.
            reason = os.strerror(errno) if errno else str(error.os_error or error)
            answer.fail("client-limit" if errno in _LIMITS else "refused", reason)
        except aiohttp.ClientPayloadError:  # its words are about encodings
            answer.fail("dropped", "the connection ended in the middle of the answer")
        except (aiohttp.ClientError, OSError) as error:
            answer.fail("dropped", f"the connection ended: {error or type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever a service sends, the load goes on
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
            is_fixed=self._dialect.is_streamed and is_fixed(body),
            sent_words=request.words,
            image_width=request.image_width,
            image_height=request.image_height,
            refused_counts=answer.refused_counts,
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
