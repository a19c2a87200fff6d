"""The connections that a gateway has to its boards for commands elsewhere.

A command names a connection, and finds it by that name until it closes it, or has not used it for
some time. What takes long is a flow: it goes on here, and the command takes what it gives.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from pydantic import AfterValidator, Field

from armload.boards.board import Board, load_board
from armload.boards.connect import connect, is_off
from armload.boards.failures import SlowCommandError
from armload.boards.forward import LOOPBACK
from armload.boards.host import Host, TransportChoice
from armload.core.errors import ArmloadError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.fleet.files import SentFile
from armload.fleet.messages import CHUNK_BYTES

WAIT_S = 2.0
"""A flow that has nothing to give says so after this time."""

OUT, ERR, END = b"o", b"e", b"."
"""With one of these begins what a flow gives."""

_UNUSED_S = 150.0
"""After so long, what a command that was killed has left open is closed."""
_LOOK_EVERY_S = 10.0
_MOST_WAITING_BYTES = 4 * CHUNK_BYTES
_BLOCK_BYTES = 1 << 16


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it contains control characters")
    return text


def as_bytes(text: str | PurePosixPath) -> bytes:
    """Return a command or a path as bytes; names of files may be no UTF-8."""
    return str(text).encode("utf-8", "surrogateescape")


def as_text(content: bytes) -> str:
    """Return what ``as_bytes`` was given."""
    return content.decode("utf-8", "surrogateescape")


Word = Annotated[str, Field(max_length=4096), AfterValidator(_printable)]


class BoardFacts(Value):
    """What a gateway's own file says of a board, and whether it is a virtual one that is off."""

    target: Word
    workdir: Annotated[Word, Field(pattern="^/")]
    launcher: Annotated[tuple[Word, ...], Field(max_length=100)]
    is_off: bool


class TransportChoices(Value):
    """How a gateway reaches a board."""

    choices: Annotated[tuple[TransportChoice, ...], Field(max_length=100)]


class CommandEnd(Value):
    """How a command ended, beside what it wrote.

    Attributes:
        status: none where it took too long.
        stdout_bytes: how much of the bytes is standard output; the rest is standard error.
    """

    status: int | None
    stdout_bytes: Annotated[int, Field(ge=0)] = 0


class GatewayHosts:
    """The connections to a gateway's boards.

    Args:
        boards: the names of those that are offered.
        progress: shows what connecting says.
    """

    def __init__(self, boards: Sequence[str], progress: Progress) -> None:
        self._boards = boards
        self._progress = progress
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._closer: threading.Thread | None = None

    def described(self, board: str) -> str:
        """Return the ``BoardFacts`` of a board."""
        known = self._board(board)
        return BoardFacts(
            target=known.target,
            workdir=str(known.workdir),
            launcher=known.launcher,
            is_off=is_off(known),
        ).model_dump_json()

    def transports(self, board: str, line: str) -> str:
        with self._host(board, line) as host:
            return TransportChoices(choices=host.transports()).model_dump_json()

    def run(self, board: str, line: str, command: bytes, stdin: bytes, timeout_s: float) -> bytes:
        """Run a command; return a ``CommandEnd``, and beside it what the command wrote."""
        with self._host(board, line) as host:
            try:
                done = host.run(as_text(command), stdin=stdin, timeout_s=timeout_s)
            except SlowCommandError:
                return CommandEnd(status=None).model_dump_json().encode() + b"\n"
        end = CommandEnd(status=done.status, stdout_bytes=len(done.stdout))
        return end.model_dump_json().encode() + b"\n" + done.stdout + done.stderr

    def write(self, board: str, line: str, path: bytes, offset_bytes: int, chunk: bytes) -> bool:
        remote = PurePosixPath(as_text(path))
        with self._host(board, line) as host:
            host.write(remote, [chunk], offset_bytes=offset_bytes)
        return True

    def tunnel(self, board: str, port: int) -> str:
        """Open a tunnel to a port of a board's loopback; return its name."""
        return self._hold(uuid4().hex, _Tunnel(connect(self._board(board), self._progress), port))

    def dial(self, tunnel: str) -> str:
        """Connect a client through a tunnel; return the flow's name, empty if nothing listens."""
        through = self._find(tunnel, _Tunnel)
        try:
            return self._hold(uuid4().hex, _Client(through))
        except OSError:
            return ""

    def flow(self, board: str, kind: str, *arguments: Any) -> str:
        """Begin something that takes long; return the flow's name."""
        host = connect(self._board(board), self._progress)
        work = _WORKS[kind]
        return self._hold(uuid4().hex, _Flow(lambda give: work(host, give, *arguments), host))

    def take(self, name: str) -> bytes:
        """Return what a flow gives next; empty if it has nothing yet."""
        return self._find(name, _Flow).take()

    def feed(self, name: str, data: bytes) -> bool:
        """Send bytes of a client to the board; none end this direction."""
        self._find(name, _Client).feed(data)
        return True

    def close(self, name: str) -> bool:
        """Close a connection, a tunnel or a flow; harmless where it is closed."""
        with self._lock:
            held = self._held.pop(name, None)
        if held is not None:
            with contextlib.suppress(ArmloadError, OSError):
                held.close()
        return True

    def _board(self, name: str) -> Board:
        if name not in self._boards:
            raise UsageError(f"The gateway does not offer {name}.")
        return load_board(name)

    @contextlib.contextmanager
    def _host(self, board: str, line: str) -> Iterator[Host]:
        """Yield a command's connection, which is in use until the block ends."""
        known = self._board(board)
        try:
            held = self._find(line, _Line)
        except ConnectError:
            held = _Line(connect(known, self._progress))
            self._hold(line, held)
        with self._lock:
            held.uses += 1
        try:
            yield held.host
        finally:
            with self._lock:
                held.uses -= 1
                held.touch()

    def _find(self, name: str, kind: type[_Kind]) -> _Kind:
        with self._lock:
            held = self._held.get(name)
        if not isinstance(held, kind):
            raise ConnectError("The gateway has closed the connection.")
        held.touch()
        return held

    def _hold(self, name: str, made: _Held) -> str:
        with self._lock:
            self._held[name] = made
            if self._closer is None:
                self._closer = threading.Thread(target=self._close_unused, daemon=True)
                self._closer.start()
        return name

    def _close_unused(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            before_s = time.monotonic() - _UNUSED_S
            with self._lock:
                unused = [name for name, held in self._held.items() if held.is_unused(before_s)]
            for name in unused:
                self.close(name)


class _Held:
    """Something that is open for a command."""

    def __init__(self) -> None:
        self.uses = 0
        self.touch()

    def touch(self) -> None:
        """Note that it is used now."""
        self._used_s = time.monotonic()

    def is_unused(self, since_s: float) -> bool:
        return not self.uses and self._used_s < since_s

    def close(self) -> None:
        """End it."""


_Kind = TypeVar("_Kind", bound=_Held)


class _Line(_Held):
    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host

    def close(self) -> None:
        self.host.close()


class _Tunnel(_Held):
    """A port of this gateway that leads to one of a board's loopback."""

    def __init__(self, host: Host, port: int) -> None:
        super().__init__()
        self._open = ExitStack()
        with closing(host):
            self.port = self._open.enter_context(host.forwarded(port)).port

    def close(self) -> None:
        self._open.close()


class _ClosedError(Exception):
    """Nobody takes what a flow gives any more."""


_Give = Callable[[bytes, bytes], None]
"""Adds something to what a flow gives: its kind, and the bytes."""


class _Flow(_Held):
    """Something that goes on, as fast as what it gives is taken."""

    def __init__(self, work: Callable[[_Give], None], host: Host | None = None) -> None:
        super().__init__()
        self._work = work
        self._host = host
        self._pieces: deque[tuple[bytes, bytes]] = deque()
        self._waiting_bytes = 0
        self._is_done = self._is_closed = False
        self._error: ArmloadError | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._go_on, daemon=True).start()

    def take(self) -> bytes:
        """Return what came, of one kind; empty if nothing did.

        Raises:
            ArmloadError: it failed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._pieces or self._is_done or self._is_closed, timeout=WAIT_S
            )
            if not self._pieces:
                if self._error is not None:
                    raise self._error
                return END if self._is_done or self._is_closed else b""
            kind, size_bytes, taken = self._pieces[0][0], 0, []
            while self._pieces and self._pieces[0][0] == kind and size_bytes < CHUNK_BYTES:
                taken.append(self._pieces.popleft()[1])
                size_bytes += len(taken[-1])
            self._waiting_bytes -= size_bytes
            self._changed.notify_all()
        return kind + b"".join(taken)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _give(self, kind: bytes, data: bytes) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._waiting_bytes < _MOST_WAITING_BYTES
            )
            if self._is_closed:
                raise _ClosedError
            self._pieces.append((kind, data))
            self._waiting_bytes += len(data)
            self._changed.notify_all()

    def _go_on(self) -> None:
        error: ArmloadError | None = None
        try:
            self._work(self._give)
        except _ClosedError:
            pass
        except ArmloadError as failure:
            error = failure
        except Exception as defect:  # noqa: BLE001 - it is the command's to show
            error = ArmloadError(f"Internal error on the gateway: {defect!a:.500}")
        finally:
            if self._host is not None:
                self._host.close()
            with self._changed:
                self._is_done, self._error = True, error
                self._changed.notify_all()


class _Client(_Flow):
    """A client of a tunnel."""

    def __init__(self, tunnel: _Tunnel) -> None:
        self._tunnel = tunnel
        self._socket = socket.create_connection((LOOPBACK, tunnel.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(self._receive)

    def touch(self) -> None:
        """An answer may take longer than the tunnel is kept for new clients."""
        super().touch()
        self._tunnel.touch()

    def feed(self, data: bytes) -> None:
        try:
            if data:
                self._socket.sendall(data)
            else:
                self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ConnectError(f"The board hung up: {error.strerror}.") from error

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _receive(self, give: _Give) -> None:
        with self._socket, contextlib.suppress(OSError):
            while data := self._socket.recv(_BLOCK_BYTES):
                give(OUT, data)


def _stream(host: Host, give: _Give, command: bytes, silence_s: float) -> None:
    with closing(host.stream(as_text(command), silence_s=silence_s)) as output:
        for name, data in output:
            give(OUT if name == "stdout" else ERR, data)


def _read(host: Host, give: _Give, path: bytes) -> None:
    for data in host.read(PurePosixPath(as_text(path))):
        give(OUT, data)


def _send_file(host: Host, give: _Give, file: str, path: bytes, offset_bytes: int) -> None:
    """Copy a file that was received to the board, and tell how far that is."""
    host.send_file(
        SentFile.model_validate_json(file).received(),
        PurePosixPath(as_text(path)),
        offset_bytes=offset_bytes,
        sent=lambda position: give(OUT, b"%d " % position),
    )


_WORKS: Mapping[str, Callable[..., None]] = {
    "stream": _stream,
    "read": _read,
    "send_file": _send_file,
}
