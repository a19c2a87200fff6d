"""When the bytes of a request leave and those of its answer arrive, however busy the client is."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from aiohttp import AddrInfoType

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
    """Open a socket for the request of this context."""
    family, kind, protocol, _, _ = address
    return TimedSocket(OPENED_FOR.get(), family, kind, protocol)
