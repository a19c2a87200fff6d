"""A board behind a gateway as a host: each command, file and connection goes through the gateway.

What comes back is no more trusted than what a board says. It is data, and bounded.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar
from uuid import uuid4

from armload.boards.board import Board, RelayedBoard
from armload.boards.bulk import (
    MOST_STREAM_BYTES,
    TRANSFER_SILENCE_S,
    reporting_chunks,
    too_much,
)
from armload.boards.failures import SlowCommandError
from armload.boards.forward import Endpoint, proxied
from armload.boards.host import Completed, Forward, Host, OutputChunk, TransportChoice
from armload.core.errors import ArmloadError, BoardError, ConnectError, LostConnectionError
from armload.core.progress import Progress
from armload.fleet.files import Files, SentFile
from armload.fleet.gateway_board import check_same
from armload.fleet.gateway_hosts import (
    END,
    ERR,
    OUT,
    BoardFacts,
    CommandEnd,
    GatewayHosts,
    TransportChoices,
    as_bytes,
)
from armload.fleet.gateways import FIRST_OFFER_S, GoneError
from armload.fleet.messages import CHUNK_BYTES, malformed, read_sent, split_reply
from armload.fleet.offers import GatewayWorker
from armload.fleet.remote_tasks import RemoteTasks
from armload.models.model import cached_sha256

_ANSWER_S = 120.0
"""That a gateway may take for an answer, beside what the board may take for a command."""

_DIGITS = 20

_SMALL_BYTES = 1 << 20
"""Up to which a file is not kept at the gateway for its other boards."""

_Answer = TypeVar("_Answer")


class BehindGateways:
    """How a board is reached through whichever gateway offers it."""

    def __init__(self, board: str, tasks: RemoteTasks, progress: Progress) -> None:
        self._board = board
        self._tasks = tasks
        self._progress = progress

    def calls(self, progress: Progress) -> GatewayCalls:
        return GatewayCalls(self._board, self._tasks, progress)

    def connect(self, progress: Progress) -> Host:
        return GatewayHost(self.calls(progress), self.facts().launcher)

    def is_off(self) -> bool:
        return self.facts().is_off

    def facts(self) -> BoardFacts:
        told = self.calls(self._progress).text(GatewayHosts.described, self._board)
        return read_sent(BoardFacts, told)


def relayed(board: Board, tasks: RemoteTasks, progress: Progress) -> RelayedBoard:
    """Return a board as it is reached through a gateway; its work folder is where that says.

    Raises:
        UsageError: the gateway's file is of another target.
        ConnectError: no gateway offers it.
    """
    relay = BehindGateways(board.name, tasks, progress)
    facts = relay.facts()
    check_same(board.name, "target", facts.target, board.target)
    known = dict(board) | {"workdir": PurePosixPath(facts.workdir)}
    return RelayedBoard.model_construct(**known, relay=relay, own_launcher=facts.launcher)


class GatewayCalls:
    """Calls of a board's gateway."""

    def __init__(self, board: str, tasks: RemoteTasks, progress: Progress) -> None:
        self.board = board
        self.tasks = tasks
        self.progress = progress
        self._worker: GatewayWorker | None = None

    def send(self, local: Path) -> SentFile:
        """Send a file that the gateway has not got, which keeps it for all of its boards."""
        file = Files().file(local, cached_sha256(local, self.progress))
        with self._connected() as worker:
            self.tasks.send(worker, file, local, self.progress)
        return file

    def bytes(
        self, method: Callable[..., object], *arguments: object, within_s: float = _ANSWER_S
    ) -> bytes:
        return self._call(method, arguments, bytes, within_s)

    def text(self, method: Callable[..., object], *arguments: object) -> str:
        return self._call(method, arguments, str, _ANSWER_S)

    def __call__(self, method: Callable[..., object], *arguments: object) -> None:
        self._call(method, arguments, bool, _ANSWER_S)

    def _call(
        self,
        method: Callable[..., object],
        arguments: Sequence[object],
        kind: type[_Answer],
        within_s: float,
    ) -> _Answer:
        with self._connected() as worker:
            answer = self.tasks.gateways.call(worker.address, method, *arguments, within_s=within_s)
        if not isinstance(answer, kind):
            raise malformed(method.__name__)
        return answer

    @contextlib.contextmanager
    def _connected(self) -> Iterator[GatewayWorker]:
        if self._worker is None:
            gateways = self.tasks.gateways
            self._worker = gateways.of(self.board, self.progress, within_s=FIRST_OFFER_S)
        try:
            yield self._worker
        except GoneError as gone:
            self._worker = None
            raise LostConnectionError(f"{self.board}: {gone.message}") from gone


class GatewayHost:
    """The Host protocol through a gateway."""

    def __init__(self, calls: GatewayCalls, launcher: tuple[str, ...]) -> None:
        self._calls = calls
        self._launcher = launcher
        self._line = uuid4().hex
        self._is_open = False

    @property
    def name(self) -> str:
        return self._calls.board

    @property
    def named(self) -> str:
        return f"--board {self.name} --scheduler {self._calls.tasks.gateways.address.url}"

    @property
    def launcher(self) -> tuple[str, ...]:
        return self._launcher

    def transports(self) -> tuple[TransportChoice, ...]:
        self._is_open = True
        told = self._calls.text(GatewayHosts.transports, self.name, self._line)
        return read_sent(TransportChoices, told).choices

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        self._is_open = True
        reply = self._calls.bytes(
            *(GatewayHosts.run, self.name, self._line, as_bytes(command), stdin, timeout_s),
            within_s=timeout_s + _ANSWER_S,
        )
        head, written = split_reply(reply)
        end = read_sent(CommandEnd, head)
        if end.status is None:
            raise SlowCommandError(self.name, timeout_s)
        at = end.stdout_bytes
        return Completed(status=end.status, stdout=written[:at], stderr=written[at:])

    def stream(
        self, command: str, *, silence_s: float = 30.0
    ) -> Generator[OutputChunk, None, None]:
        with self._flow("stream", as_bytes(command), silence_s) as flow:
            for kind, data in flow.pieces(silence_s):
                yield ("stderr" if kind == ERR else "stdout"), data

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        with self._flow("read", as_bytes(path)) as flow:
            for _, data in flow.pieces(TRANSFER_SILENCE_S):
                yield data

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        self._is_open = True
        at = offset_bytes
        for chunk in _regrouped(chunks):
            self._calls(GatewayHosts.write, self.name, self._line, as_bytes(path), at, chunk)
            at += len(chunk)

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        if local.stat().st_size <= _SMALL_BYTES:
            self.write(
                remote, reporting_chunks(local, offset_bytes, sent), offset_bytes=offset_bytes
            )
            return
        file = self._calls.send(local)
        last = offset_bytes
        sent(last)
        wanted = (file.model_dump_json(), as_bytes(remote), offset_bytes)
        with self._flow("send_file", *wanted) as flow:
            for _, told in flow.pieces(TRANSFER_SILENCE_S):
                for word in told.split():
                    position = int(word) if word.isdigit() and len(word) < _DIGITS else -1
                    if last < position <= file.size_bytes:
                        last = position
                        sent(position)

    @contextlib.contextmanager
    def forwarded(self, port: int, local_port: int = 0) -> Iterator[Forward]:
        with proxied(lambda: _Tunnel(self._calls, port), self.name, local_port) as proxy:
            yield proxy

    def reverse_forwarded(self, local_port: int) -> contextlib.AbstractContextManager[int]:
        del local_port
        raise BoardError(
            f"{self.name}: a board behind a gateway cannot reach ports of this machine.",
            "Type the command on the gateway.",
        )

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            _close(self._calls, self._line)

    @contextlib.contextmanager
    def _flow(self, kind: str, *arguments: object) -> Iterator[_Flow]:
        name = self._calls.text(GatewayHosts.flow, self.name, kind, *arguments)
        try:
            yield _Flow(self._calls, name)
        finally:
            _close(self._calls, name)


def _close(calls: GatewayCalls, name: str) -> None:
    with contextlib.suppress(ArmloadError):
        calls(GatewayHosts.close, name)


def _regrouped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in chunks that are worth a call; an empty one where there are none."""
    waiting = bytearray()
    is_first = True
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= CHUNK_BYTES:
            yield bytes(waiting[:CHUNK_BYTES])
            del waiting[:CHUNK_BYTES]
            is_first = False
    if waiting or is_first:
        yield bytes(waiting)


class _Flow:
    """What goes on at the gateway."""

    def __init__(self, calls: GatewayCalls, name: str) -> None:
        self._calls = calls
        self.name = name

    def pieces(self, silence_s: float) -> Iterator[tuple[bytes, bytes]]:
        """Yield what it gives, each with its kind, to its end.

        Raises:
            ConnectError: it gave nothing for so long, and the gateway did not say so.
        """
        left_bytes = MOST_STREAM_BYTES
        heard_s = time.monotonic()
        while True:
            piece = self._calls.bytes(GatewayHosts.take, self.name)
            kind, data = piece[:1], piece[1:]
            if kind == END:
                return
            if not piece:
                if time.monotonic() - heard_s > silence_s + _ANSWER_S:
                    raise ConnectError(f"{self._calls.board}: no data for {silence_s:g} s.")
                continue
            if kind not in (OUT, ERR):
                raise malformed("piece of output")
            left_bytes -= len(data)
            if left_bytes < 0:
                raise too_much(self._calls.board, MOST_STREAM_BYTES)
            heard_s = time.monotonic()
            yield kind, data


class _Tunnel:
    """See ``Tunnel``."""

    def __init__(self, calls: GatewayCalls, port: int) -> None:
        self._calls = calls
        self._name = calls.text(GatewayHosts.tunnel, calls.board, port)

    def dial(self) -> Endpoint | None:
        name = self._calls.text(GatewayHosts.dial, self._name)
        return _Client(self._calls, name) if name else None

    def close(self) -> None:
        _close(self._calls, self._name)


class _Client:
    """See ``Endpoint``."""

    def __init__(self, calls: GatewayCalls, name: str) -> None:
        self._calls = calls
        self._name = name
        self._pieces = _Flow(calls, name).pieces(math.inf)
        self._rest = b""
        self._is_closed = False

    def recv(self, size: int, /) -> bytes:
        with _as_socket():
            self._rest = self._rest or next(self._pieces, (OUT, b""))[1]
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def sendall(self, data: bytes, /) -> None:
        with _as_socket():
            for at in range(0, len(data), CHUNK_BYTES):
                self._calls(GatewayHosts.feed, self._name, data[at : at + CHUNK_BYTES])

    def shutdown(self, how: int, /) -> None:
        if how != socket.SHUT_WR:
            self.close()
            return
        with _as_socket():
            self._calls(GatewayHosts.feed, self._name, b"")

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            _close(self._calls, self._name)


@contextlib.contextmanager
def _as_socket() -> Iterator[None]:
    try:
        yield
    except ArmloadError as error:
        raise ConnectionError(error.message) from error
