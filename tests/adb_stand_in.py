"""A device that the real ``adb`` reaches over TCP, whose shell is one of this machine.

There is no Android here. It speaks the transport of adb's OVERVIEW.TXT, protocol.txt and SYNC.TXT
(packages/modules/adb): messages of 24 bytes, streams that are opened for a service, each write
acknowledged. Its services are ``shell`` in both protocols, ``sync`` for files and ``tcp``. Like a
device before Android 7, it may know only the first shell protocol: one stream for all output, no
exit status. Files that are pushed get the mode 0644, as on file systems that keep none.
"""

from __future__ import annotations

import os
import queue
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import IO, cast

VERSION = 0x01000001
LARGEST = 1 << 18
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
SYNC_BLOCK = 1 << 16


class Stream:
    """One stream of a connection; what comes is queued, and each write waits for its receipt."""

    def __init__(self, connection: Connection, own: int, theirs: int) -> None:
        self._connection = connection
        self._own, self._theirs = own, theirs
        self._incoming: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._receipts: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._rest = b""
        self._writing = Lock()

    def arrived(self, data: bytes | None) -> None:
        self._incoming.put(data)
        if data is None:
            self._receipts.put(None)

    def received(self) -> None:
        self._receipts.put(b"OKAY")

    def block(self) -> bytes:
        data = self._incoming.get()
        if data is None:
            self._incoming.put(None)
            return b""
        self._connection.send(b"OKAY", self._own, self._theirs)
        return data

    def exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            block = self.block()
            if not block:
                raise EOFError
            self._rest += block
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def write(self, data: bytes) -> None:
        with self._writing:
            for start in range(0, len(data), LARGEST):
                self._connection.send(
                    b"WRTE", self._own, self._theirs, data[start : start + LARGEST]
                )
                if not self._receipts.get():
                    raise EOFError

    def close(self) -> None:
        self._connection.send(b"CLSE", self._own, self._theirs)


class Connection:
    """A connection from adb's server."""

    def __init__(self, device: AdbDevice, line: socket.socket) -> None:
        self._device = device
        self._line = line
        self._sending = Lock()
        self._streams: dict[int, Stream] = {}

    def send(self, command: bytes, first: int, second: int, data: bytes = b"") -> None:
        word = struct.unpack("<I", command)[0]
        check = sum(data) & 0xFFFFFFFF
        head = struct.pack("<6I", word, first, second, len(data), check, word ^ 0xFFFFFFFF)
        with self._sending, suppress(OSError):
            self._line.sendall(head + data)

    def serve(self) -> None:
        with suppress(OSError, EOFError), self._line.makefile("rb") as reader:
            while len(head := reader.read(24)) == 24:
                command, first, second, size, _, _ = struct.unpack("<4s5I", head)
                self._take(command, first, second, reader.read(size))
        for stream in [*self._streams.values()]:
            stream.arrived(None)
        with self._sending:
            self._line.close()

    def close(self) -> None:
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def _take(self, command: bytes, first: int, second: int, data: bytes) -> None:
        if command == b"CNXN":
            features = b"shell_v2,cmd" if self._device.second_protocol else b"cmd"
            banner = b"device::ro.product.name=stand_in;features=" + features
            self.send(b"CNXN", VERSION, LARGEST, banner)
        elif command == b"OPEN":
            own = self._device.next_number()
            stream = self._streams[own] = Stream(self, own, first)
            service = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
            Thread(target=self._serve_stream, args=(own, first, stream, service)).start()
        elif command == b"WRTE" and second in self._streams:
            self._streams[second].arrived(data)
        elif command == b"OKAY" and second in self._streams:
            self._streams[second].received()
        elif command == b"CLSE" and second in self._streams:
            self._streams.pop(second).arrived(None)

    def _serve_stream(self, own: int, theirs: int, stream: Stream, service: str) -> None:
        name, _, rest = service.partition(":")
        kind, *options = name.split(",")
        if kind == "tcp":
            try:
                peer = socket.create_connection(("127.0.0.1", int(rest)))
            except OSError:
                self.send(b"CLSE", 0, theirs)
                return
        self.send(b"OKAY", own, theirs)
        with suppress(EOFError, OSError):
            if kind == "shell":
                self._device.shell(stream, rest, second_protocol="v2" in options)
            elif kind == "sync":
                Sync(stream, self._device).serve()
            elif kind == "tcp":
                relay(stream, peer)
        stream.close()
        self._streams.pop(own, None)


def relay(stream: Stream, peer: socket.socket) -> None:
    def inwards() -> None:
        with suppress(OSError):
            while data := stream.block():
                peer.sendall(data)
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    Thread(target=inwards, daemon=True).start()
    with peer, suppress(OSError, EOFError):
        while data := peer.recv(1 << 16):
            stream.write(data)


class Sync:
    """The service for files."""

    def __init__(self, stream: Stream, device: AdbDevice) -> None:
        self._stream = stream
        self._device = device

    def serve(self) -> None:
        while True:
            kind, size = struct.unpack("<4sI", self._stream.exactly(8))
            if kind == b"QUIT":
                return
            name = self._stream.exactly(size).decode("utf-8", "surrogateescape")
            if kind == b"STAT":
                self._tell(name)
            elif kind == b"SEND":
                self._take(Path(name.rpartition(",")[0]))
            elif kind == b"RECV":
                self._give(Path(name))
            else:
                self._fail(f"unknown request {kind!r}")

    def _tell(self, name: str) -> None:
        try:
            found = os.stat(name)  # noqa: PTH116 - as the protocol's name
        except OSError:
            self._stream.write(struct.pack("<4s3I", b"STAT", 0, 0, 0))
            return
        size = found.st_size & 0xFFFFFFFF
        time_s = int(found.st_mtime)
        self._stream.write(struct.pack("<4s3I", b"STAT", found.st_mode, size, time_s))

    def _take(self, path: Path) -> None:
        failure = ""
        left = self._device.cut_after_bytes
        try:
            path.unlink(missing_ok=True)
            file = path.open("wb")
        except OSError as error:
            failure = f"couldn't create file: {error.strerror}"
            file = Path("/dev/null").open("wb")  # noqa: SIM115 - closed below
        with file:
            while True:
                kind, size = struct.unpack("<4sI", self._stream.exactly(8))
                if kind == b"DONE":
                    break
                data = self._stream.exactly(size)
                if left is not None and (left := left - size) < 0:
                    self._device.cut_after_bytes = None
                    self._device.drop()
                    raise EOFError
                try:
                    file.write(data)
                    file.flush()
                except OSError as error:
                    failure = failure or f"write failed: {error.strerror}"
        if failure:
            self._fail(failure)
        else:
            path.chmod(0o644)
            self._stream.write(struct.pack("<4sI", b"OKAY", 0))

    def _give(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                while data := file.read(SYNC_BLOCK):
                    self._stream.write(struct.pack("<4sI", b"DATA", len(data)) + data)
        except OSError as error:
            self._fail(f"open failed: {error.strerror}")
        else:
            self._stream.write(struct.pack("<4sI", b"DONE", 0))

    def _fail(self, words: str) -> None:
        data = words.encode()
        self._stream.write(struct.pack("<4sI", b"FAIL", len(data)) + data)


class AdbDevice:
    """The device, which listens on a port of the loopback.

    Attributes:
        port: to connect adb to.
        tools: the folder of its programs.
        second_protocol: whether its shell knows that.
        cut_after_bytes: the connection breaks once so much of a file has come.
    """

    def __init__(self, tools: Path, *, second_protocol: bool = True) -> None:
        self.second_protocol = second_protocol
        self.cut_after_bytes: int | None = None
        self.tools = tools
        self._numbers = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[Connection] = []
        self._changing = Lock()
        Thread(target=self._accept, daemon=True).start()

    def next_number(self) -> int:
        with self._changing:
            self._numbers += 1
            return self._numbers

    def drop(self) -> None:
        """End all connections, as when the cable is pulled out for a moment."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(self, line)
                self._connections.append(connection)
                Thread(target=connection.serve, daemon=True).start()

    def shell(self, stream: Stream, command: str, *, second_protocol: bool) -> None:
        process = subprocess.Popen(
            ["sh", "-c", command],
            executable=str(self.tools / "sh"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if second_protocol else subprocess.STDOUT,
            env={"PATH": str(self.tools), "HOME": "/"},
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        (Second if second_protocol else First)(stream, process).serve()


class First:
    """The first shell protocol: bytes, and a terminal's line ends."""

    def __init__(self, stream: Stream, process: subprocess.Popen[bytes]) -> None:
        self.stream = stream
        self.process = process

    def serve(self) -> None:
        Thread(target=self._take_in, daemon=True).start()
        sources = [(STDOUT, self.process.stdout), (STDERR, self.process.stderr)]
        readers = [Thread(target=self._pass_on, args=one) for one in sources if one[1] is not None]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.ended(self.process.wait())

    def put(self, kind: int, data: bytes) -> None:
        del kind
        self.stream.write(data.replace(b"\n", b"\r\n"))

    def taken(self) -> bytes:
        return self.stream.block()

    def ended(self, status: int) -> None:
        del status

    def _take_in(self) -> None:
        with suppress(OSError, EOFError), cast("IO[bytes]", self.process.stdin) as sink:
            while data := self.taken():
                sink.write(data)

    def _pass_on(self, kind: int, source: IO[bytes]) -> None:
        with suppress(OSError, EOFError), source:
            while data := os.read(source.fileno(), SYNC_BLOCK):
                self.put(kind, data)


class Second(First):
    """The second: packets, each of one stream, and the status last."""

    def put(self, kind: int, data: bytes) -> None:
        self.stream.write(struct.pack("<BI", kind, len(data)) + data)

    def taken(self) -> bytes:
        while True:
            kind, size = struct.unpack("<BI", self.stream.exactly(5))
            data = self.stream.exactly(size)
            if kind == CLOSE_STDIN:
                return b""
            if kind == STDIN:
                return data

    def ended(self, status: int) -> None:
        number = status if status >= 0 else 128 - status
        self.put(EXIT, bytes([number & 0xFF]))
