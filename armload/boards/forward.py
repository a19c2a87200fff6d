"""A local port whose clients are passed on to a port of the board, whatever carries their bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from armload.core.errors import ArmloadError, ConnectError, UsageError

LOOPBACK = "127.0.0.1"
_BLOCK_BYTES = 1 << 16
_BACKLOG = 1024
_PAUSE_S = 0.1


class Endpoint(Protocol):
    """One end of a connection: a socket, or a channel of an SSH connection."""

    def recv(self, size: int, /) -> bytes:
        """Return some bytes; none when the other side has sent all of its own."""

    def sendall(self, data: bytes, /) -> object:
        """Send all bytes."""

    def shutdown(self, how: int, /) -> object:
        """End one direction, or both."""

    def close(self) -> object:
        """End the connection."""


class Tunnel(Protocol):
    """A connection to the board that carries any number of clients to one of its ports."""

    def dial(self) -> Endpoint | None:
        """Connect to the board's port; return none when nothing listens there.

        Raises:
            ConnectError: the connection to the board has dropped; a new tunnel is needed.
        """

    def close(self) -> None:
        """End the connection to the board."""


def listening_on(local_port: int, board_name: str) -> socket.socket:
    """Listen on a loopback port of this machine.

    Args:
        local_port: 0 for a free one.
    """
    try:
        return socket.create_server((LOOPBACK, local_port), backlog=_BACKLOG)
    except OSError as error:
        if local_port:
            raise UsageError(
                f"Port {local_port} of this machine cannot be used: {error.strerror}.",
                "Use another one with --port, or omit it to use a free one.",
            ) from error
        raise ConnectError(
            f"{board_name}: no local port can be opened for forwarding: {error.strerror}.",
            "Close programs that hold many connections, or raise this machine's limits.",
        ) from error


@contextlib.contextmanager
def proxied(
    make_tunnel: Callable[[], Tunnel], board_name: str, local_port: int = 0
) -> Iterator[Proxy]:
    """Pass the clients of a loopback port on until the block ends.

    Args:
        make_tunnel: makes a tunnel, and another one when that has dropped; any thread calls it.
        local_port: to listen on; 0 for a free one.
    """
    with listening_on(local_port, board_name) as listener:
        proxy = Proxy(listener, make_tunnel)
        try:
            yield proxy
        finally:
            proxy.close()


class LocalTunnel:
    """A tunnel to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    def dial(self) -> Endpoint | None:
        try:
            return socket.create_connection((LOOPBACK, self._port))
        except OSError:
            return None

    def close(self) -> None:
        """Do nothing: nothing carries the clients."""


class Proxy:
    """What ``proxied`` gives; see ``Forward``.

    Attributes:
        sent_bytes, received_bytes: by all clients so far.
    """

    def __init__(self, listener: socket.socket, make_tunnel: Callable[[], Tunnel]) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._make_tunnel = make_tunnel
        self._tunnel: Tunnel | None = make_tunnel()
        self._renewing = threading.Lock()
        self._failure: ArmloadError | None = None
        self._failed_at = 0.0
        self.sent_bytes = self.received_bytes = 0
        self._closed = threading.Event()
        self._ends: set[Endpoint] = set()
        self._clients: set[threading.Thread] = set()
        self._changing = threading.Lock()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def check(self) -> None:
        """Raise what kept the latest client from the board, if something did."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop listening, disconnect all clients, and wait until nothing of them is left."""
        self._closed.set()
        # Not every system wakes a thread that waits for clients when its socket is closed.
        with contextlib.suppress(OSError):
            socket.create_connection((LOOPBACK, self.port)).close()
        self._acceptor.join()
        self._listener.close()
        with self._changing:
            ends, clients = list(self._ends), list(self._clients)
        for end in ends:
            _hang_up(end)
        with self._renewing:
            if self._tunnel is not None:
                self._tunnel.close()
        for client in clients:
            client.join()

    def _count_sent(self, size_bytes: int) -> None:
        with self._changing:
            self.sent_bytes += size_bytes

    def _count_received(self, size_bytes: int) -> None:
        with self._changing:
            self.received_bytes += size_bytes

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:  # the client has gone, or there are too many open files
                self._closed.wait(_PAUSE_S)
                continue
            if self._closed.is_set():
                client.close()
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            with self._changing:
                self._ends.add(client)
                self._clients.add(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        board = None
        try:
            board = self._dialled()
            if board is not None:
                with self._changing:
                    self._ends.add(board)
                if self._closed.is_set():
                    return
                _send_at_once(client)
                _send_at_once(board)
                _exchange(client, board, self._count_sent, self._count_received)
        finally:
            for end in (client, board):
                if end is not None:
                    _hang_up(end)
                    with contextlib.suppress(OSError, EOFError):
                        end.close()
                    with self._changing:
                        self._ends.discard(end)
            with self._changing:
                self._clients.discard(threading.current_thread())

    def _dialled(self) -> Endpoint | None:
        asked_at = time.monotonic()
        try:
            tunnel = self._renewed(None, asked_at)
            try:
                board = tunnel.dial()
            except ConnectError:
                board = self._renewed(tunnel, asked_at).dial()
        except ArmloadError as error:
            self._failure = error
            return None
        self._failure = None
        return board

    def _renewed(self, dropped: Tunnel | None, asked_at: float) -> Tunnel:
        """Return the tunnel; a new one if it is the one that dropped.

        All clients that wait for a new one share the failure to make it.
        """
        with self._renewing:
            if self._closed.is_set():
                raise ConnectError("The forwarding has been closed.")
            if self._tunnel is dropped and dropped is not None:
                dropped.close()
                self._tunnel = None
            if self._tunnel is None:
                if self._failure is not None and self._failed_at > asked_at:
                    raise self._failure
                try:
                    self._tunnel = self._make_tunnel()
                except ArmloadError as error:
                    self._failure, self._failed_at = error, time.monotonic()
                    raise
            return self._tunnel


def pass_on(client: Endpoint, local_port: int) -> None:
    """Pass a client on to a loopback port of this machine, until either side hangs up."""
    with (
        contextlib.closing(client),
        contextlib.suppress(OSError),
        socket.create_connection((LOOPBACK, local_port)) as service,
    ):
        _send_at_once(service)
        _exchange(client, service)


def _uncounted(_size_bytes: int) -> None:
    pass


def _exchange(
    client: Endpoint,
    service: Endpoint,
    sent: Callable[[int], None] = _uncounted,
    received: Callable[[int], None] = _uncounted,
) -> None:
    upwards = threading.Thread(target=_copy, args=(client, service, sent), daemon=True)
    upwards.start()
    _copy(service, client, received)
    upwards.join()


def _copy(source: Endpoint, sink: Endpoint, passed: Callable[[int], None]) -> None:
    """Pass bytes on to their end, and the end, too; hang up on both when either breaks."""
    try:
        while data := source.recv(_BLOCK_BYTES):
            sink.sendall(data)
            passed(len(data))
        sink.shutdown(socket.SHUT_WR)
    except (OSError, EOFError):
        _hang_up(source)
        _hang_up(sink)


def _send_at_once(end: Endpoint) -> None:
    # A service that streams sends small pieces, each of which would wait for the former's receipt.
    if isinstance(end, socket.socket) and end.family == socket.AF_INET:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _hang_up(end: Endpoint) -> None:
    """Wake whoever waits for an end: a socket's shutdown does, and a channel's closing."""
    with contextlib.suppress(OSError, EOFError):
        if isinstance(end, socket.socket):
            end.shutdown(socket.SHUT_RDWR)
        else:
            end.close()
