"""Git repositories of our own, and servers for them."""

from __future__ import annotations

import functools
import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.build.source import Source, choose
from armload.core.progress import Silent
from armload.core.workspace import cache_folder
from tests.servers import end, free_port

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

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


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
