"""Dask's client, connected so that it takes data alone.

Dask's own connections unpickle whatever a message marks as pickled, and its client unpickles bytes
that it finds in messages: exceptions, types, warnings. These decode MessagePack themselves. No
bytes leave them but inside a ``Reply``, which no unpickler accepts, so nothing that a scheduler or
a worker sends can be unpickled here, whatever the client does with it. Memory and time are bounded.
Format: ``distributed.protocol.core`` and ``distributed.comm.tcp``.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Never

import msgpack
from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.comm.registry import backends
from distributed.comm.tcp import TCP, TLS, TCPBackend, TCPConnector, TLSBackend, TLSConnector
from tornado.iostream import StreamClosedError

from armload.fleet.messages import TOPIC
from armload.fleet.scheduler import (
    ANSWER_S,
    SchedulerAddress,
    check_answers,
    not_dask,
    security_of,
)

_PREFIX = "data-only-"
_REFUSALS = "refusals"

_MESSAGE_BYTES = 64 << 20
_FRAMES = 4096
_HEAD_BYTES = 4 << 20
_HEAD_CONTAINERS = 100_000

RESULT_S = 120.0
"""For one chunk, over a slow connection."""
_GREETING_S = 10.0

_STREAM = "Client->Scheduler"
"""Dask's name of the connection on which the scheduler speaks unasked."""

_MALFORMED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)

_WITHHELD = "it is a pickle, which is never read here"

_TAKEN: Mapping[str, Sequence[str]] = {
    "stream-start": ("error",),
    "key-in-memory": ("key",),
    "lost-data": ("key",),
    "cancelled-keys": ("keys", "reason", "msg"),
    "task-retried": ("key",),
    "task-erred": ("key",),
    "event": ("topic", "event"),
    "restart": (),
    "stream-closed": (),
    "close": (),
}
"""What the scheduler says unasked, and what of it is for us."""


@dataclass(frozen=True, eq=False)
class GatewayReply:
    """The result of a task, apart from all that Dask itself reads.

    Attributes:
        content: bytes from a gateway of armload, or anything else.
    """

    content: Any = field(repr=False)


class RefusedError(ValueError):
    """A message breaks the format, or a bound."""


def connected(address: SchedulerAddress, refusals: list[str]) -> Client:
    """Connect to a scheduler.

    Args:
        refusals: gets what the scheduler sends and is refused, now or later.

    Raises:
        UsageError: there are no certificates.
        ConnectError: no scheduler answers, or it is refused.
    """
    security = security_of(address, "client")
    security.extra_conn_args = {_REFUSALS: refusals}
    check_answers(address)
    try:
        client = _Client(
            f"{_PREFIX}{address.url}",
            timeout=ANSWER_S,
            security=security,
            set_as_default=False,
            deserializers=["msgpack"],
            # Whatever the configuration says: the scheduler would choose what is connected to.
            direct_to_workers=False,
        )
        if client.scheduler_info().get("type") != "Scheduler":
            client.close(timeout=2)  # type: ignore[no-untyped-call]
            raise ImportError("it is another part of Dask")
    except Exception as error:
        cause = OSError(f"it sent {refusals[0]}") if refusals else error
        raise not_dask(address, cause) from error
    return client


def decoded(frames: Sequence[memoryview]) -> Any:
    """Decode a message, whose pickles are replaced by a text.

    Raises:
        RefusedError: it breaks the format, or a bound.
    """
    try:
        return _Message(frames).decoded()
    except RefusedError:
        raise
    # The decoder, and Python's containers, raise these of what is no message.
    except (*_MALFORMED, msgpack.UnpackException) as error:
        raise RefusedError(f"a malformed message ({type(error).__name__})") from error


class _Message:
    """One message; what several places of it refer to is decoded once."""

    def __init__(self, frames: Sequence[memoryview]) -> None:
        self._frames = frames
        self._replies: dict[int, GatewayReply | str] = {}
        self._containers = 0
        self._reply_bytes = 0

    def decoded(self) -> Any:
        return self._head(self._frames[0], marks=True)

    def _head(self, frame: memoryview, *, marks: bool) -> Any:
        if frame.nbytes > _HEAD_BYTES:
            raise RefusedError("a message that is too large")
        return self._plain(
            msgpack.unpackb(
                frame,
                use_list=False,
                strict_map_key=False,
                object_hook=self._marked if marks else self._mapping,
                list_hook=self._row,
                ext_hook=lambda _code, _data: _WITHHELD,
            )
        )

    def _plain(self, value: Any) -> Any:
        """Return what a message may contain; containers are plain already."""
        taken = (str, bool, int, float, type(None), tuple, dict, GatewayReply)
        return value if isinstance(value, taken) else _WITHHELD

    def _row(self, items: Sequence[Any]) -> tuple[Any, ...]:
        self._count()
        return tuple(map(self._plain, items))

    def _mapping(self, items: Mapping[Any, Any]) -> dict[Any, Any]:
        self._count()
        return {self._plain(key): self._plain(value) for key, value in items.items()}

    def _marked(self, items: Mapping[Any, Any]) -> Any:
        if "__Pickled__" in items:
            return _WITHHELD
        if "__Serialized__" not in items:
            return self._mapping(items)
        number = items["__Serialized__"]
        if number is True:  # it is in the message itself, and always a pickle
            return _WITHHELD
        if number not in self._replies:
            self._replies[number] = self._reply(number)
        return self._replies[number]

    def _count(self) -> None:
        self._containers += 1
        if self._containers > _HEAD_CONTAINERS:
            raise RefusedError("a message with too many parts")

    def _reply(self, number: int) -> GatewayReply | str:
        if not 0 < number < len(self._frames):
            raise RefusedError("a message that lacks a part")
        header = self._head(self._frames[number], marks=False)
        is_compressed = any(header.get("compression") or ())
        if header.get("serializer") != "msgpack" or "is-collection" in header or is_compressed:
            return _WITHHELD
        parts = self._frames[number + 1 : number + 1 + header["num-sub-frames"]]
        self._reply_bytes += sum(part.nbytes for part in parts)
        if self._reply_bytes > _MESSAGE_BYTES:
            raise RefusedError("a message that is too large")
        bounds = {"max_array_len": 0, "max_map_len": 0, "max_ext_len": 0}
        try:
            content = msgpack.unpackb(b"".join(parts), **bounds)
        except (ValueError, msgpack.UnpackException):
            return _WITHHELD
        return GatewayReply(content)


class _DataOnly(TCP):
    """Reads data alone; what is refused ends the connection."""

    refusals: list[str]
    _is_greeted = False

    def handshake_info(self) -> dict[str, Any]:
        return {**super().handshake_info(), "compression": None}

    async def read(self, deserializers: object = None) -> Any:
        del deserializers  # there is one way
        if self.stream is None:
            raise CommClosedError
        is_stream = self.name == _STREAM
        limit_s = RESULT_S if self._is_greeted else _GREETING_S
        try:
            async with asyncio.timeout(None if is_stream else limit_s):
                first = await self._bytes(8)
            async with asyncio.timeout(limit_s):
                message = decoded(await self._frames(first))
            if not self._is_greeted and not isinstance(message, dict):
                raise RefusedError("a malformed greeting")
        except RefusedError as error:
            self.refusals.append(str(error))
            self._end(error)
        except (StreamClosedError, OSError) as error:  # a timeout is one, too
            self._end(error)
        except BaseException:  # what was read of the message is unknown
            self.abort()
            raise
        self._is_greeted = True
        if is_stream:
            return tuple(_taken(message))
        if isinstance(message, dict) and message.get("status") == "error":
            # Dask's client would ask for the lost result without a pause; our caller waits.
            self._end(OSError("the scheduler has no result"))
        return message

    async def _frames(self, first: memoryview) -> Sequence[memoryview]:
        (length,) = struct.unpack("Q", first)
        if not 8 <= length <= _MESSAGE_BYTES:
            raise RefusedError("a message that is too large")
        begin = await self._bytes(length)
        (count,) = struct.unpack_from("Q", begin)
        start = 8 * (1 + count)
        if not (0 < count <= _FRAMES and start <= length):
            raise RefusedError("a malformed message")
        ends = list(accumulate(struct.unpack_from(f"{count}Q", begin, 8), initial=start))
        if not length <= ends[-1] <= _MESSAGE_BYTES:
            raise RefusedError("a message that is too large")
        whole = memoryview(b"".join((begin, await self._bytes(ends[-1] - length))))
        return [whole[begins:end] for begins, end in pairwise(ends)]

    async def _bytes(self, count: int) -> memoryview:
        buffer = bytearray(count)
        if count:
            if self.stream is None:
                raise CommClosedError
            await self.stream.read_into(buffer)
        return memoryview(buffer)

    def _end(self, error: Exception) -> Never:
        self.abort()
        raise CommClosedError(str(error)) from error


def _taken(message: Any) -> Iterator[dict[str, Any]]:
    for said in message if isinstance(message, tuple) else (message,):
        op = said.get("op") if isinstance(said, dict) else None
        names = _TAKEN.get(op) if isinstance(op, str) else None
        if names is None or (op == "event" and not str(said.get("topic")).startswith(TOPIC)):
            continue
        taken = {"op": op, **{name: said[name] for name in names if name in said}}
        if op == "stream-start" and not isinstance(taken.get("error"), str):
            taken = {"op": op}
        if op == "task-erred":
            taken["exception"] = _WITHHELD
        yield taken


class _DataOnlyTLS(_DataOnly, TLS):
    pass


class _Noting:
    async def connect(self, address: str, *words: Any, **arguments: Any) -> _DataOnly:
        comm: _DataOnly = await super().connect(address, *words, **arguments)  # type: ignore[misc]
        comm.refusals = arguments["extra_conn_args"][_REFUSALS]
        return comm


class _TCPConnector(_Noting, TCPConnector):
    prefix = f"{_PREFIX}tcp://"
    comm_class = _DataOnly


class _TLSConnector(_Noting, TLSConnector):
    prefix = f"{_PREFIX}tls://"
    comm_class = _DataOnlyTLS


class _TCPBackend(TCPBackend):
    _connector_class = _TCPConnector


class _TLSBackend(TLSBackend):
    _connector_class = _TLSConnector


backends.setdefault(f"{_PREFIX}tcp", _TCPBackend())
backends.setdefault(f"{_PREFIX}tls", _TLSBackend())


class _Client(Client):
    def __init__(self, *words: object, **options: object) -> None:
        try:
            super().__init__(*words, **options)  # type: ignore[no-untyped-call]
        except Exception:
            with suppress(Exception):
                self.close(timeout=2)  # type: ignore[no-untyped-call]
            raise

    def __del__(self) -> None:
        """Do nothing: Dask would close it in any thread, even its own, and wait there for ever."""
