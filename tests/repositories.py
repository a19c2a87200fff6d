"""Git repositories of our own, and servers for them."""

from __future__ import annotations

import base64
import functools
import http.server
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest

from armload.boards.virtual.process import free_port
from armload.build.source import Source, choose
from armload.core.places import cache_folder
from armload.core.progress import Silent
from tests.servers import end

FILES = 400
PROVIDE = """
import sys
from armload.build.source import choose
from armload.core.progress import Silent

class Told(Silent):
    def say(self, text):
        print(text, flush=True)

source = choose(sys.argv[1], ref=sys.argv[2], progress=Told())
print("ready", flush=True)
print(source.provide(Told()), flush=True)
"""


class Repository:
    """A repository with three commits on ``main``, each with a tag."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.does("init", "-q", "-b", "main")
        (folder / "include").mkdir()
        (folder / "include" / "llama.h").write_text("header")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755)
        (folder / ".gitattributes").write_text("* text=auto\n/left-out export-ignore\n")
        (folder / "left-out").write_text("and yet it is there\n")
        (folder / "many").mkdir()
        for number in range(FILES):
            (folder / "many" / f"{number}").write_text(f"{number}\n" * 50)
        self.commits = [self.commit("one"), self.commit("two"), self.commit("three")]
        for number, commit in enumerate(self.commits, 1):
            self.does("tag", f"b{number}", commit)
        self.does("tag", "-a", "-m", "annotated", "v1", self.commits[1])

    def does(self, *words: str) -> str:
        who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
        done = subprocess.run(
            ["git", *who, "-c", "commit.gpgSign=false", *words],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, text: str) -> str:
        (self.folder / "file").write_text(text)
        self.does("add", "-A")
        self.does("commit", "-q", "-m", text)
        return self.does("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return self.folder.as_uri()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder's files by HTTP; yield the address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with serving(functools.partial(Quiet, directory=str(folder))) as address:
        yield address


@contextmanager
def serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """Let a handler answer at a port of the loopback; yield the address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def guarded(folder: Path, user: str, password: str) -> Iterator[str]:
    """Serve a folder's repositories by git's own program to whoever knows the password.

    Args:
        folder: that they lie in.
        user, password: that let in.
    """
    backend = _git_http_backend()
    login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Guarded(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != login:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run(
                [backend],
                input=body,
                env={
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "PATH_INFO": unquote(path),
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
                },
                capture_output=True,
                check=True,
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            lines = [line.split(": ", 1) for line in head.decode().splitlines()]
            status = next((text.split()[0] for name, text in lines if name == "Status"), "200")
            self.send_response(int(status))
            for name, text in lines:
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the base's name

    with serving(Guarded) as address:
        yield address


def _git_http_backend() -> str:
    words = ["git", "--exec-path"]
    folder = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    backend = Path(folder, "git-http-backend")
    if not backend.exists():
        pytest.skip("this git has no http-backend")
    return str(backend)


@contextmanager
def git_daemon(folder: Path) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [
            "git",
            "daemon",
            "--export-all",
            "--listen=127.0.0.1",
            f"--port={port}",
            f"--base-path={folder}",
            str(folder),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                pytest.skip("this git has no daemon")
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        end(process)


def chosen(name: str, ref: str = "") -> Source:
    return choose(name, ref=ref, progress=Silent())


def provided(name: str, ref: str = "") -> Path:
    return chosen(name, ref).provide(Silent())


def kept() -> set[str]:
    """Return what counts as fetched."""
    return {path.name for path in (cache_folder() / "sources" / "git").glob("llama.cpp-*[!k]")}
