"""Plugs that answer over HTTP as Shelly's and Tasmota's do, and as broken ones do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


def shelly(watts: object) -> bytes:
    answer = {
        "id": 0,
        "source": "init",
        "output": True,
        "apower": watts,
        "voltage": 231.1,
        "current": 0.061,
        "aenergy": {"total": 1201.62, "by_minute": [92.1, 90.4, 91.0], "minute_ts": 1732600000},
    }
    return json.dumps(answer).encode()


def tasmota(watts: object) -> bytes:
    energy = {"Total": 3.185, "Yesterday": 0.058, "Today": 0.04, "Power": watts, "Voltage": 230}
    return json.dumps({"StatusSNS": {"Time": "2026-11-26T05:00:00", "ENERGY": energy}}).encode()


@contextmanager
def silent_plug(part: bytes = b"", every_s: float = 0.2) -> Iterator[str]:
    """Accept a request and never end the answer, of which a part comes again and again."""
    ended = Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if part:
                self.send_response(200)
                self.end_headers()
            while not ended.wait(every_s):
                with suppress(OSError):
                    self.wfile.write(part)

        def log_message(self, *words: object) -> None:
            pass

    with _serving(Silent) as url:
        try:
            yield url
        finally:
            ended.set()


@contextmanager
def plug(path: str, answer: bytes | Callable[[], bytes], *, status: int = 200) -> Iterator[str]:
    """Answer requests for one path until the block ends; give the URL of the plug."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == path
            self.send_response(status if known else 404)
            self.end_headers()
            content = answer() if callable(answer) else answer
            self.wfile.write(content if known else b"")

        def log_message(self, *words: object) -> None:
            pass

    with _serving(Answering) as url:
        yield url


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
