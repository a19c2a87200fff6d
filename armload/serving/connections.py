"""The connections that requests are sent over, and the times of their bytes."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from types import SimpleNamespace

    from _typeshed import ReadableBuffer, WriteableBuffer
    from aiohttp import AddrInfoType, ClientResponse, ClientSession, TraceRequestHeadersSentParams

_MOST_FILES, _FILES_FOR_OTHERS = 65_536, 16

_TIMESTAMPNS = 35
"""``SO_TIMESTAMPNS`` of Linux, also the type of the message that it adds; see socket(7)."""

_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)


class WireTimes:
    """The times of one request on its connection, on this machine's monotonic clock.

    Attributes:
        is_written: the request itself is what is sent from now on; before that, TLS may be.
        sent_s: when its first byte was handed to the system; none before that.
        arrived_s: when the last bytes that were read had arrived; 0 before the first.
    """

    def __init__(self) -> None:
        self.is_written = False
        self.sent_s: float | None = None
        self.arrived_s = 0.0

    def note_sent(self) -> None:
        """Bytes are handed to the system now."""
        if self.is_written and self.sent_s is None:
            self.sent_s = time.monotonic()

    def note_arrived(self, ancillary: Iterable[tuple[int, int, bytes]]) -> None:
        """Bytes were read; ``ancillary`` may hold when the kernel had them.

        The kernel's stamp is of the system's clock. It can be set between the two, but bytes
        arrive after what came before them.
        """
        age_s = 0.0
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPNS):
                seconds, nanoseconds = _TIMESPEC.unpack(content)
                age_s = max(0.0, time.time() - seconds - nanoseconds / 1e9)
        at_s = time.monotonic() - age_s  # if preempted between the two: too late, never too early
        self.arrived_s = max(at_s, self.sent_s or 0.0, self.arrived_s)


class TimedSocket(socket.socket):
    """A socket that notes when bytes leave and arrive.

    An event loop that is late with a burst of chunks reads them late. Linux stamps bytes when it
    gets them; elsewhere the time counts at which they are read. The methods are those that
    asyncio's loops and transports call.

    Args:
        fileno: of an open socket; none opens another.
    """

    def __init__(
        self,
        times: WireTimes,
        family: int = -1,
        kind: int = -1,
        protocol: int = -1,
        fileno: int | None = None,
    ) -> None:
        super().__init__(family, kind, protocol, fileno)
        self.times = times
        if sys.platform == "linux":
            self.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send, and note when."""
        self.times.note_sent()
        return super().send(data, flags)

    def sendmsg(
        self,
        buffers: Iterable[ReadableBuffer],
        ancdata: Iterable[tuple[int, int, ReadableBuffer]] = (),
        flags: int = 0,
        address: tuple[object, ...] | str | ReadableBuffer | None = None,
        /,
    ) -> int:
        """Send from several buffers, and note when."""
        self.times.note_sent()
        return super().sendmsg(buffers, ancdata, flags, address)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receive, and note when the bytes arrived."""
        data, ancillary, _, _ = self.recvmsg(bufsize, _ANCILLARY_BYTES, flags)
        self.times.note_arrived(ancillary)
        return data

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a buffer, and note when the bytes arrived."""
        into = memoryview(buffer)[: nbytes or None]
        count, ancillary, _, _ = self.recvmsg_into([into], _ANCILLARY_BYTES, flags)
        self.times.note_arrived(ancillary)
        return count


OPENED_FOR: ContextVar[WireTimes] = ContextVar("OPENED_FOR")
"""Where connections note their times that are opened in this context."""


def opened_socket(address: AddrInfoType) -> TimedSocket:
    """Open a socket for the request of this context.

    Raises:
        OSError: this process may not open more; some files are left for the records.
    """
    family, kind, protocol, _, _ = address
    opened = TimedSocket(OPENED_FOR.get(), family, kind, protocol)
    # The lowest number that is free is given out.
    if opened.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _FILES_FOR_OTHERS:
        opened.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return opened


@asynccontextmanager
async def connected(api_key: str) -> AsyncIterator[ClientSession]:
    """Open what requests are sent with: as many connections as there are requests.

    Each request has a connection of its own, as each user has. A connection that is kept would be
    closed by the server at some moment, and a request that is sent at that moment be lost.
    """
    # The soft limit is often too low for a connection for each request.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # macOS refuses more than it is built for: then the limit stays, and failures are named.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    trace = aiohttp.TraceConfig()

    async def note_written(
        _session: ClientSession, context: SimpleNamespace, _params: TraceRequestHeadersSentParams
    ) -> None:
        context.trace_request_ctx.is_written = True

    trace.on_request_headers_sent.append(note_written)
    # Compressed, chunks would arrive late, and a small answer could be a large one.
    headers = {"Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=opened_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        trace_configs=[trace],
    ) as session:
        yield session


async def beginning_of(response: ClientResponse, most_bytes: int) -> tuple[bytes, bool]:
    """Return the body of an answer, or the beginning of a longer one, and whether it is whole."""
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > most_bytes:
            return bytes(content[:most_bytes]), False
    return bytes(content), True
