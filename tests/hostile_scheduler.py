"""A scheduler that attacks its clients: each port puts one kind of pickle into one place.

    python -m tests.hostile_scheduler MARKER

prints a JSON object of ports by the names of attacks. Whatever a client unpickles writes a line
into the file MARKER. Formats: ``distributed.protocol.core`` and ``distributed.comm.tcp``.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import msgpack

from armload import __version__
from armload.fleet.messages import TaskAnswer, reply_of

HOSTILE = "ARMLOAD_HOSTILE"
"""Set in processes that may unpickle what they made themselves."""

KEYS = re.compile(rb"(?:answer|do_task)-[0-9a-f]{32}")


class Payload:
    """Unpickled, it leaves a line in a file."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"open({self.marker!r}, 'a').write('unpickled\\n')"
        return eval, (f"__import__('os').environ.get({HOSTILE!r}) or {code}",)


class PayloadError(Exception):
    """An exception that does the same."""

    def __init__(self, marker: str) -> None:
        super().__init__(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return Payload(str(self.args[0])).__reduce__()


@dataclass
class Part:
    """A value that travels in frames of its own."""

    mark: str
    header: Mapping[str, Any]
    frames: list[bytes] = field(default_factory=list)


def frames_of(message: Any) -> list[bytes]:
    """Write a message as Dask does."""
    frames = [b""]

    def placed(value: Any) -> Any:
        if isinstance(value, Part):
            number = len(frames)
            header = {**value.header, "num-sub-frames": len(value.frames)}
            frames.extend([msgpack.packb(header), *value.frames])
            return {value.mark: number}
        if isinstance(value, dict):
            return {name: placed(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [placed(each) for each in value]
        return value

    frames[0] = msgpack.packb(placed(message))
    return frames


def wire(
    frames: list[bytes], *, lengths: list[int] | None = None, total: int | None = None
) -> bytes:
    """Return frames as they are sent; lies about their lengths if that is asked for."""
    told = lengths if lengths is not None else [len(frame) for frame in frames]
    body = struct.pack(f"{1 + len(told)}Q", len(told), *told) + b"".join(frames)
    return struct.pack("Q", len(body) if total is None else total) + body


def data(content: Any) -> Part:
    return Part("__Serialized__", {"serializer": "msgpack"}, [msgpack.packb(content)])


def forms(marker: str) -> dict[str, Any]:
    """Return a pickle in every form in which Dask's protocol could carry it."""
    evil = pickle.dumps(Payload(marker))
    error = pickle.dumps(PayloadError(marker))
    by_pickle = {"serializer": "pickle", "writeable": []}
    of_type = {
        "serializer": "dask",
        "type-serialized": evil,
        "sub-header": {},
        "type": "builtins.bytes",
    }
    of_bytes = {**of_type, "type-serialized": pickle.dumps(bytes)}
    many = {
        "is-collection": True,
        "type-serialized": "list",
        "frame-lengths": [1],
        "sub-headers": [by_pickle],
    }
    return {
        "bytes": evil,
        "bytes of an error": error,
        "bytearray key": {evil: evil},
        "pickled": Part("__Pickled__", {"pickled-obj": evil}),
        "pickled error": Part("__Pickled__", {"pickled-obj": error}),
        "pickle family": Part("__Serialized__", by_pickle, [evil]),
        "pickle family, compressed": Part(
            "__Serialized__", {**by_pickle, "compression": ["zlib"]}, [zlib.compress(evil)]
        ),
        "dask family": Part("__Serialized__", of_type, [b"x"]),
        "error as dask bytes": Part("__Serialized__", of_bytes, [error]),
        "dask dict": Part(
            "__Serialized__",
            {
                **of_type,
                "type-serialized": pickle.dumps(dict),
                "sub-header": {"type-serialized": evil, "simple": {}, "complex": {}},
            },
            [],
        ),
        "error family": Part("__Serialized__", {"serializer": "error"}, [evil]),
        "unknown family": Part("__Serialized__", {"serializer": "cuda"}, [evil]),
        "collection": Part("__Serialized__", many, [evil]),
        "msgpack family": data(evil),
        "msgpack family, error": data(error),
        "msgpack family, nested": data({"exception": [error], "a": {"b": [evil]}}),
        "serialized inline": {"__Serialized__": True, "data": [by_pickle, [evil]]},
        "enum": {
            "__Enum__": True,
            "name": "x",
            "__module__": "distributed.cli.dask_spec",
            "__name__": "main",
        },
        "set": {"__Set__": True, "as-list": [evil]},
        "extension": msgpack.ExtType(5, evil),
        "nested": [{"a": [{"b": ({"c": Part("__Pickled__", {"pickled-obj": evil})},)}]}],
        "deep": json.loads("[" * 200 + "1" + "]" * 200),
    }


PLACES = (
    *(
        "greeting",
        "greeting value",
        "identity",
        "identity type",
        "workers",
        "worker",
        "worker name",
    ),
    *("worker resources", "stream start", "stream start error", "stream start warning"),
    *("key", "key type", "error", "error traceback", "error key", "cancelled", "cancelled message"),
    *("lost key", "event", "event content", "event topic", "print", "print arguments", "warn"),
    *("warn category", "log", "scheduler error", "status", "restart", "heartbeat interval"),
    *("unknown op", "no op", "batch", "gather", "gather data", "gather keys", "gather status"),
    *("uncaught error", "uncaught traceback", "lock", "retried"),
)


class Attack:
    """One client's scheduler: honest but in one place."""

    def __init__(self, place: str, form: Any) -> None:
        self._place = place
        self._form = form

    def at(self, place: str, honest: Any) -> Any:
        return self._form if place == self._place else honest

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            greeting = {
                "compression": None,
                "python": self.at("greeting value", (3, 11, 0)),
                "pickle-protocol": 5,
            }
            self.send(writer, self.at("greeting", greeting))
            await read(reader)
            while True:
                said, content = await read(reader)
                if isinstance(said, dict) and said.get("op") == "register-client":
                    await self.stream(reader, writer)
                elif isinstance(said, dict):
                    self.send(writer, self.answer(said, content))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def send(self, writer: asyncio.StreamWriter, message: Any) -> None:
        writer.write(wire(frames_of(message)))

    def answer(self, said: Mapping[str, Any], content: bytes) -> Any:
        op = said["op"]
        if op == "identity":
            worker = {
                "name": self.at("worker name", "hall/1"),
                "armload": __version__,
                "resources": self.at("worker resources", {"board:one": 1.0}),
            }
            workers = self.at("workers", {"tcp://127.0.0.1:1": self.at("worker", worker)})
            known = {
                "type": self.at("identity type", "Scheduler"),
                "id": "Scheduler-1",
                "address": "tcp://127.0.0.1:1",
                "services": {},
                "workers": workers,
            }
            return self.at("identity", known)
        if self._place.startswith("uncaught"):
            return {
                "status": "uncaught-error",
                "exception": self.at("uncaught error", "text"),
                "traceback": self.at("uncaught traceback", "text"),
            }
        if op == "gather":
            keys = [key.decode() for key in KEYS.findall(content)]
            honest = {key: data(reply_of(TaskAnswer(result="fine"))) for key in keys}
            if self._place == "gather data":
                honest = dict.fromkeys(keys, self._form)
            if self._place in ("gather keys", "gather status"):
                return {
                    "status": self.at("gather status", "error"),
                    "data": {},
                    "keys": self.at("gather keys", keys),
                }
            return self.at("gather", {"status": "OK", "data": honest})
        return self.at("lock", honest=True)

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = {"op": "stream-start"}
        for name in ("error", "warning"):
            if self._place == f"stream start {name}":
                start[name] = self._form
        self.send(writer, [self.at("stream start", start)])
        topic = "armload-none"
        while True:
            _, content = await read(reader)
            if found := re.search(rb"armload-[0-9a-f]{32}", content):
                topic = found[0].decode()
            for key in dict.fromkeys(KEYS.findall(content)):
                if b"update-graph" in content:
                    self.send(writer, list(self.spoken(key.decode(), topic)))

    def spoken(self, key: str, topic: str) -> Iterator[Any]:
        """Say what the place asks for, and then what an honest scheduler says."""
        form, place = self._form, self._place
        said: Mapping[str, Any] = {
            "key": {"op": "key-in-memory", "key": form},
            "key type": {"op": "key-in-memory", "key": key, "type": form},
            "error": {"op": "task-erred", "key": key, "exception": form, "traceback": None},
            "error traceback": {
                "op": "task-erred",
                "key": key,
                "exception": "x",
                "traceback": form,
            },
            "error key": {"op": "task-erred", "key": form, "exception": form, "traceback": form},
            "cancelled": {"op": "cancelled-keys", "keys": form},
            "cancelled message": {
                "op": "cancelled-keys",
                "keys": [key],
                "msg": form,
                "reason": form,
            },
            "lost key": {"op": "lost-data", "key": form},
            "event": {"op": "event", "topic": topic, "event": form},
            "event content": {"op": "event", "topic": topic, "event": [1.0, form]},
            "event topic": {"op": "event", "topic": form, "event": [1.0, form]},
            "print": {"op": "event", "topic": "print", "event": [1.0, form]},
            "print arguments": {"op": "event", "topic": "print", "event": [1.0, {"args": form}]},
            "warn": {"op": "event", "topic": "warn", "event": [1.0, {"message": form}]},
            "warn category": {
                "op": "event",
                "topic": "warn",
                "event": [1.0, {"message": form, "category": form}],
            },
            "log": {"op": "event", "topic": "forwarded-log-record-x", "event": [1.0, form]},
            "scheduler error": {"op": "error", "exception": form},
            "status": {"status": "error", "exception": form, "traceback": form},
            "restart": {"op": "restart", "why": form},
            "heartbeat interval": {"op": "adjust-heartbeat-interval", "interval": form},
            "unknown op": {"op": form},
            "no op": {"a": form},
            "batch": form,
            "retried": {"op": "task-retried", "key": form},
        }
        if place in said:
            yield said[place]
        yield {
            "op": "key-in-memory",
            "key": key,
            "workers": ["tcp://127.0.0.1:1"],
            "type": pickle.dumps(bytes),
        }


async def read(reader: asyncio.StreamReader) -> tuple[Any, bytes]:
    """Read a message; return what it says, and its bytes."""
    (length,) = struct.unpack("Q", await reader.readexactly(8))
    body = await reader.readexactly(length)
    (count,) = struct.unpack_from("Q", body)
    lengths = struct.unpack_from(f"{count}Q", body, 8)
    start = 8 * (1 + count)
    body += await reader.readexactly(start + sum(lengths) - length)
    head = body[start : start + lengths[0]]
    return msgpack.unpackb(head, strict_map_key=False), body


class Broken:
    """Answers the greeting, and then sends what breaks the format or a bound."""

    def __init__(self, content: Callable[[], Iterator[bytes]], *, greets: bool) -> None:
        self._content = content
        self._greets = greets

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._greets:
                writer.write(wire(frames_of({"compression": None, "pickle-protocol": 5})))
                await read(reader)
                await read(reader)
            for chunk in self._content():
                writer.write(chunk)
                await writer.drain()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def broken() -> dict[str, Callable[[], Iterator[bytes]]]:
    """Return what is no message, or too large."""
    bomb = zlib.compress(bytes(1 << 30), 9)
    nested = b"\x91" * 1_000_000
    small = msgpack.packb({"a": 1})
    part = frames_of({"data": data(b"x" * (1 << 20))})

    def endless() -> Iterator[bytes]:
        yield struct.pack("QQQ", 1 << 40, 1, 1 << 40)
        while True:
            yield bytes(1 << 20)

    once: dict[str, bytes] = {
        "100 GB": struct.pack("Q", 100 << 30),
        "2^64": b"\xff" * 8 + bytes(100),
        "an empty message": struct.pack("Q", 0),
        "no frames": struct.pack("QQ", 8, 0),
        "too many frames": struct.pack("QQ", 16, 1 << 60) + bytes(8),
        "a frame of 100 GB": wire([small], lengths=[100 << 30]),
        "frames that add up to more than 2^64": wire([small], lengths=[(1 << 64) - 1] * 3),
        "a frame that is shorter than the message": wire([small], lengths=[1]),
        "no MessagePack": wire([b"\xc1" * 9]),
        "cut MessagePack": wire([b"\xdf\xff\xff\xff\xff"]),
        "a text that is no UTF-8": wire([b"\xa2\xff\xff"]),
        "deep nesting": wire([nested]),
        "a head of 30 MB": wire([msgpack.packb("x" * (30 << 20))]),
        "a million empty maps": wire(
            [b"\xdd" + struct.pack(">I", 1_000_000) + b"\x80" * 1_000_000]
        ),
        "a map as a key": wire([b"\x81\x80\x01"]),
        "a part that is missing": wire([msgpack.packb({"__Serialized__": 7})]),
        "a part with a negative number": wire([msgpack.packb({"__Serialized__": -1})]),
        "a part named by a text": wire([msgpack.packb({"__Serialized__": "1"})]),
        "a part that is no map": wire([msgpack.packb({"__Serialized__": 1}), msgpack.packb(5)]),
        "a part without frames": wire(
            [msgpack.packb({"__Serialized__": 1}), msgpack.packb({"serializer": "msgpack"})]
        ),
        "parts that overlap": wire(
            [
                msgpack.packb([{"__Serialized__": number} for number in range(1, 100)]),
                *[msgpack.packb({"serializer": "msgpack", "num-sub-frames": 1000})] * 99,
                *[bytes(1 << 20)] * 8,
            ]
        ),
        "a compressed bomb": wire(
            frames_of(
                {
                    "data": Part(
                        "__Serialized__", {"serializer": "msgpack", "compression": ["zlib"]}, [bomb]
                    )
                }
            )
        ),
        "a compressed pickle of bombs": wire(
            frames_of(
                {"data": Part("__Pickled__", {"pickled-obj": b"", "compression": ["zlib"]}, [bomb])}
            )
        ),
        "a part cut short": wire(part)[:-9] + b"\0",
        "text": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 9,
    }
    return {
        "endless": endless,
        **{name: partial(iter, (content,)) for name, content in once.items()},
    }


async def main(marker: str) -> None:
    """Open all ports, print them, and serve until the process is ended."""
    attacks: dict[str, Attack | Broken] = {
        f"{place}: {name}": Attack(place, form)
        for place, (name, form) in product(PLACES, forms(marker).items())
    }
    attacks["honest"] = Attack("", None)
    for name, content in broken().items():
        attacks[f"at first: {name}"] = Broken(content, greets=False)
        attacks[f"as an answer: {name}"] = Broken(content, greets=True)
    servers = {
        name: await asyncio.start_server(attack.serve, "127.0.0.1", 0, limit=1 << 26)
        for name, attack in attacks.items()
    }
    ports = {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
    sys.stdout.write(f"{json.dumps(ports)}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    os.environ[HOSTILE] = "1"
    asyncio.run(main(sys.argv[1]))
