"""HTTP servers that need not keep to HTTP."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket], None]


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Answer each connection by a script; give the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer(line: socket.socket) -> None:
        with suppress(OSError), line:
            line.settimeout(5)
            heard = b""
            while b"\r\n\r\n" not in heard:
                if not (part := line.recv(1 << 16)):
                    return
                heard += part
            script(line)
            with suppress(OSError):
                line.shutdown(socket.SHUT_WR)
                line.recv(1)

    def accept() -> None:
        with suppress(OSError):
            while not ended.is_set():
                line, _ = listener.accept()
                threading.Thread(target=answer, args=(line,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def whole(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def sends(*parts: bytes, pause_s: float = 0.0) -> Script:
    def script(line: socket.socket) -> None:
        for part in parts:
            line.sendall(part)
            time.sleep(pause_s)

    return script


def endless(first: bytes, part: bytes, pause_s: float = 0.0) -> Script:
    def script(line: socket.socket) -> None:
        line.sendall(first)
        while True:
            line.sendall(part)
            time.sleep(pause_s)

    return script


def reset(first: bytes) -> Script:
    def script(line: socket.socket) -> None:
        line.sendall(first)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.close()

    return script


GOOD = {"with its length", "in chunks", "until it closes", "in two parts", "after 100 Continue"}


def http_forms(body: bytes, rng: random.Random) -> tuple[tuple[str, Script], ...]:
    """Return right ways to send a body."""
    size = rng.randint(1, len(body))
    slowly = whole(body)
    cut = rng.randint(1, len(slowly) - 1)
    more = b"HTTP/1.1 100 Continue\r\n\r\n" * rng.randint(1, 5)
    return (
        ("with its length", sends(whole(body))),
        ("in chunks", sends(chunked(body, size))),
        ("until it closes", sends(OK + b"\r\n" + body)),
        ("in two parts", sends(slowly[:cut], slowly[cut:], pause_s=0.05)),
        ("after 100 Continue", sends(more + whole(body))),
    )


def http_attacks(body: bytes, rng: random.Random) -> tuple[tuple[str, Script], ...]:
    """Return ways of sending a body that never deliver it."""
    cut = rng.randint(1, len(body) - 1)
    as_chunks = chunked(body, max(2, len(body) // 3))
    bad = rng.choice((b"zz", b"-5", b"f" * 16, b"", b" ", b"\xff", b"9" * 400))
    status = rng.choice((204, 301, 302, 401, 403, 404, 500, 503, 999))
    noise = rng.randbytes(rng.randint(1, 2000))
    return (
        ("truncated", sends(whole(body)[: -len(body) + cut])),
        ("truncated chunks", sends(as_chunks[: -rng.randint(6, len(body))])),
        ("a byte of the headers at a time", endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.1)),
        ("headers without end", endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")),
        ("one header without end", endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 10_000)),
        ("100 Continue without end", endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
        ("100 Continue, slowly", endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.1)),
        ("a body without end", endless(OK + b"\r\n", b" " * 65536)),
        ("chunks without end", endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n")),
        ("a byte of the body at a time", endless(OK + b"\r\n", b" ", 0.1)),
        ("a length that never comes", endless(OK + b"Content-Length: 999999\r\n\r\n", b" ", 0.1)),
        ("a bad chunk", sends(OK + b"Transfer-Encoding: chunked\r\n\r\n" + bad + b"\r\n" + body)),
        (
            "another status",
            sends(b"HTTP/1.1 %d No\r\nLocation: /\r\nContent-Length: 0\r\n\r\n" % status),
        ),
        ("noise", sends(noise)),
        ("noise as a body", sends(whole(noise))),
        ("nothing", sends(b"")),
        ("a reset", reset(whole(body)[:-cut])),
        ("nothing, for ever", endless(b"", b"", 0.1)),
        ("another protocol", sends(b"SSH-2.0-OpenSSH_9.6\r\n")),
        ("a bad version", sends(b"HTTP/9.9 abc\r\n\r\n" + body)),
        ("a packed body", sends(OK + b"Content-Encoding: gzip\r\n\r\n" + noise)),
    )
