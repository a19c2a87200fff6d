"""A service's folder as it lies on a board, and the program that keeps it running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from armload.boards.virtual.process import free_port
from armload.core.progress import Silent
from armload.core.shell import join
from tests.waiting import wait_until

_SERVER = """
import http.server, os, sys, time
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while os.path.exists("hang"):
            time.sleep(0.05)
        self.send_response(503 if os.path.exists("load") else 200)
        self.end_headers()
        self.wfile.write(b'{"status":"ok"}')
    def log_message(self, form, *values):
        print(self.path, values[1], flush=True)
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Answers).serve_forever()
"""


_BEHIND = """
import http.server, json, os, socketserver, sys, time
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/health":
            return self.answer(b"ok")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(self.path.rpartition("/")[2])):
            text = f"{sys.argv[1]} {number}\\n".encode()
            self.wfile.write(f"{len(text):x}\\r\\n".encode() + text + b"\\r\\n")
            time.sleep(0.1)
        self.wfile.write(b"0\\r\\n\\r\\n")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/slots/"):
            with open("slots", "a") as file:
                print(sys.argv[1], self.path, self.headers["Authorization"], file=file)
            while os.path.exists("hold"):
                time.sleep(0.05)
            file = "private/" + json.loads(body)["filename"]
            if self.path.endswith("save"):
                open(file, "w").close()
            assert os.path.exists(file)
        self.answer(body)
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Version", sys.argv[1])
        self.send_header("X-Connection", ",".join(self.headers.get_all("Connection") or []))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return "-"
    def log_message(self, form, *values):
        pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
time.sleep(float(sys.argv[2]))
Server("private/server.sock", Answers).serve_forever()
"""


class Heard(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said = ""

    def say(self, text: str) -> None:
        self.said += f"{text}\n"


class ServiceFolder:
    """Versions of a service, and ``supervise`` with its words.

    Attributes:
        folder: it is made.
        words: that start ``supervise``, without the folder.
        port: that the versions' settings name.
    """

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        self.folder = folder
        self.words = tuple(words)
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None
        folder.mkdir(exist_ok=True)

    def version(self, name: str, start: str, **settings: object) -> None:
        """Write a version that runs a script; by default it fails once and for all, at once."""
        place = self.folder / "versions" / name
        place.mkdir(parents=True)
        (place / "start").write_text(f"{start}\n")
        lines = {"port": self.port, "pause_s": 0, "failures": 1, **settings}
        (place / "supervisor").write_text("".join(f"{key} {lines[key]}\n" for key in lines))

    def server(self, name: str, **settings: object) -> None:
        """Write a version that answers at the port.

        It answers 503 while there is a file ``load``, and not at all while there is ``hang``.
        """
        address = str(settings.get("address", "127.0.0.1"))
        words = [sys.executable, "-S", "-c", _SERVER, address, str(self.port)]
        self.version(name, f"exec {join(words)}", **settings)

    def behind(self, name: str, load_s: float = 0.0, **settings: object) -> None:
        """Write a version whose port is held for it.

        It sends bodies back, and its name so many times as a path says, each after a tenth of a
        second.
        """
        words = [sys.executable, "-S", "-c", _BEHIND, name, str(load_s)]
        self.version(name, f"exec {join(words)}", **{"listen": "127.0.0.1", **settings})

    def use(self, name: str) -> None:
        (self.folder / "version").write_text(f"{name}\n")

    def start(self, environment: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [*self.words, str(self.folder)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def run(self, environment: Mapping[str, str] = {}) -> tuple[int, str]:
        """Start it, and return how it ends by itself, and what it says."""
        process = self.start(environment)
        said = process.communicate(timeout=60)[1]
        return process.returncode, said

    def stop(self) -> int:
        """End it as an init does, and return its exit status."""
        assert self.process is not None
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode

    def state(self) -> dict[str, Any]:
        """Return what is told of the service; nothing where that has not been written yet."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "state").read_text())
        except FileNotFoundError:
            return {}
        return found

    def waits_for(self, **wanted: object) -> dict[str, Any]:
        """Return the state once it has these values."""
        wait_until(lambda: wanted.items() <= self.state().items(), self.process)
        return self.state()

    def log(self) -> str:
        try:
            return (self.folder / "log").read_text()
        except FileNotFoundError:
            return ""

    def logs(self, text: str) -> None:
        """Wait until its log has a text."""
        wait_until(lambda: text in self.log(), self.process)

    def close(self) -> None:
        """End it, if it has not ended, with what it has started."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.communicate(timeout=60)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, whoever is to be told."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
