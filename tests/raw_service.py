"""A service that answers with bytes as told, down to HTTP: what a client makes of them is known."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Piece = bytes | float
"""Bytes that are sent, or seconds in which nothing is."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
GAP_S = 0.03
"""Between events, so that they do not arrive together."""

_ENDLESS = 100_000


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def delta(text: str | None, **more: Any) -> dict[str, Any]:
    """Return a chunk of a chat."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


def last(reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more}


def usage(generated: Any, prompt: Any = 7) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": generated}}


def spaced(*contents: dict[str, Any] | bytes) -> list[Piece]:
    """Return a stream of events with pauses between them."""
    pieces: list[Piece] = [HEAD]
    for content in contents:
        pieces += [event(content) if isinstance(content, dict) else content, GAP_S]
    return [*pieces, DONE]


@dataclass(kw_only=True)
class RawService:
    """A running service.

    Attributes:
        pieces: of the answer to each POST; the connection is closed after them.
        repeats: the last piece, for ever.
        heads: of the requests that came.
        bodies: of the POSTs among them.
    """

    url: str = ""
    pieces: Sequence[Piece] = ()
    repeats: bool = False
    heads: list[bytes] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if head.startswith(b"POST"):
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                await self._answer(head, body, writer)
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/tokenize " in head:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        self.bodies.append(json.loads(body))
        for piece in self.pieces:
            await _send(piece, writer)
        for _ in range(_ENDLESS if self.repeats else 0):
            await _send(self.pieces[-1], writer)


async def _send(piece: Piece, writer: asyncio.StreamWriter) -> None:
    if isinstance(piece, float):
        await asyncio.sleep(piece)
        return
    writer.write(piece)
    await writer.drain()


@contextmanager
def raw_service(*pieces: Piece, repeats: bool = False) -> Iterator[RawService]:
    """Run a service in a thread of this process."""
    service = RawService(pieces=pieces, repeats=repeats)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(service.serve, "127.0.0.1", 0, limit=1 << 22)

    async def stop() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        server = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
        service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
