"""Services on a board's loopback, which here is this machine's, and clients of a local port."""

from __future__ import annotations

import hashlib
import http.client
import socket
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil

LOOPBACK = "127.0.0.1"
PATIENCE_S = 30.0


def rpc_servers(folder: Path) -> list[psutil.Process]:
    """Return ggml's RPC servers that run in a folder."""
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if any(
            word.startswith(f"{folder}/") and word.endswith("/ggml-rpc-server")
            for word in each.info["cmdline"] or ()
        )
    ]


class Echo(socketserver.BaseRequestHandler):
    """Sends back what it gets, at once."""

    def handle(self) -> None:
        with suppress(OSError):
            while data := self.request.recv(1 << 16):
                self.request.sendall(data)


class Digest(socketserver.BaseRequestHandler):
    """Answers when the client has ended its side."""

    def handle(self) -> None:
        digest = hashlib.sha256()
        with suppress(OSError):
            while data := self.request.recv(1 << 16):
                digest.update(data)
            self.request.sendall(digest.hexdigest().encode())


class Web(BaseHTTPRequestHandler):
    """Answers with what was posted."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class _WebServer(ThreadingHTTPServer):
    request_queue_size = 128


@contextmanager
def service(handler: type[socketserver.BaseRequestHandler], port: int = 0) -> Iterator[int]:
    kind = _WebServer if handler is Web else _Server
    with kind((LOOPBACK, port), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            chosen: int = server.server_address[1]
            yield chosen
        finally:
            server.shutdown()
            thread.join()


def client(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)


def exchanged(line: socket.socket, data: bytes) -> bytes:
    """Send bytes, end this side, and return all that comes back."""
    sender = Thread(target=_send, args=(line, data))
    sender.start()
    answer = everything(line)
    sender.join()
    return answer


def _send(line: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)


def everything(line: socket.socket) -> bytes:
    """Return what comes until the other side ends, or the connection does."""
    answer = bytearray()
    with suppress(ConnectionError):
        while data := line.recv(1 << 16):
            answer += data
    return bytes(answer)


def echoed(port: int, data: bytes) -> bytes:
    """Send a few bytes and return as many that come back; fewer when the connection ends."""
    with suppress(ConnectionError), client(port) as line:
        line.sendall(data)
        return _received(line, len(data))
    return b""


def _received(line: socket.socket, size: int) -> bytes:
    answer = b""
    while len(answer) < size and (block := line.recv(size - len(answer))):
        answer += block
    return answer


def posted(port: int, body: bytes) -> bytes:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/", body)
        return connection.getresponse().read()
    finally:
        connection.close()


def is_listening(port: int, address: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def cut(port: int, fault: Callable[[], None]) -> None:
    """Let a fault end a client's connection, so that it has been noticed afterwards."""
    with client(port) as line:
        line.sendall(b"before")
        assert _received(line, 6) == b"before"
        fault()
        assert everything(line) == b""
