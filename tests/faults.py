"""Faults that come at a chosen moment, for tests of what survives them."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import psutil
import pytest

from armload.boards.host import Host
from armload.core.progress import ProgressStep, Silent
from armload.core.shell import quote


class At(Silent):
    """A progress that does something once, when so many bytes of a step with a total are done."""

    def __init__(self, position: int, fault: Callable[[], None]) -> None:
        self._position = position
        self._fault: Callable[[], None] | None = fault
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        yield _Watched(self)

    def reached(self, completed: float) -> None:
        if self._fault is not None and completed >= self._position:
            fault, self._fault = self._fault, None
            fault()


class _Watched:
    def __init__(self, owner: At) -> None:
        self._owner = owner

    def update(self, completed: float, **_more: object) -> None:
        self._owner.reached(completed)


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A folder that is a storage of its own, of that size."""
    if os.geteuid() != 0:
        pytest.skip("a small file system takes root")
    folder.mkdir()
    size = f"size={size_mib}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def mounted(host: Host, place: PurePosixPath, options: str) -> Iterator[None]:
    """Mount a small memory file system where the board itself sees it."""
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    where = quote(place)
    made = host.run(f"mkdir -p {where} && mount -t tmpfs -o {options} tmpfs {where}")
    assert made.status == 0, made.stderr
    try:
        yield
    finally:
        assert host.run(f"umount -l {where}").status == 0


def end_sessions(port: int | None) -> None:
    """Kill the processes of a server that hold the open connections to its port."""
    for line in psutil.net_connections("tcp"):
        here = line.laddr and line.laddr.port == port
        if here and line.status == psutil.CONN_ESTABLISHED and line.pid:
            with suppress(psutil.NoSuchProcess):
                psutil.Process(line.pid).kill()


def listener(port: int) -> psutil.Process:
    """Return the server that takes the connections to a port."""
    (pid,) = {
        line.pid
        for line in psutil.net_connections("tcp")
        if line.laddr and line.laddr.port == port and line.status == psutil.CONN_LISTEN and line.pid
    }
    return psutil.Process(pid)


@contextmanager
def without_connection(port: int) -> Iterator[None]:
    """Cut the connections to an SSH server, and let it take no other one."""
    daemon = listener(port)
    daemon.suspend()
    try:
        end_sessions(port)
        yield
    finally:
        daemon.resume()


class TwoOfThree:
    """The numbers of the connections that are refused: two of each three."""

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number % 3 != 0


class Relay:
    """Passes a port on, and can let a line stall or refuse one.

    Args:
        port: of the server.
        stalls_after_bytes: the first line over which so many bytes went to the server stops
            moving, and stays open.
        cuts_after_bytes: the first line over which so many bytes went to the server is cut.
        refuses: the numbers of the connections, from 1, that are closed at once.
        bytes_per_s: no line carries more to the server.
    """

    def __init__(
        self,
        port: int,
        *,
        stalls_after_bytes: int | None = None,
        cuts_after_bytes: int | None = None,
        refuses: Container[int] = (),
        bytes_per_s: float = math.inf,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._server_port = port
        self._cuts_after_bytes = cuts_after_bytes
        self._stalls_after_bytes = stalls_after_bytes
        self._refuses = refuses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[socket.socket] = []
        self._over = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self._cuts_from: int | None = None
        self._allowances: Iterator[float] = iter(())
        self.passed_bytes = 0
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def cuts_next_command(self) -> None:
        """Cut the line once more of a command than its beginning has gone to the server."""
        self._cuts_from = self.passed_bytes + 100

    def cuts_lines_after(self, bytes_of_each: Iterable[float]) -> None:
        """Cut the lines that are made from now on once so many bytes went to the server."""
        self._allowances = iter(bytes_of_each)

    def close(self) -> None:
        self._over.set()
        for one in (self._listener, *self._lines):
            _shut(one)
            one.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.connections in self._refuses:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._lines += [client, server]
                allowance = next(self._allowances, math.inf)
                for copy, ends in (
                    (self._upwards, (client, server, allowance)),
                    (self._downwards, (client, server)),
                ):
                    threading.Thread(target=copy, args=ends, daemon=True).start()

    def _upwards(self, client: socket.socket, server: socket.socket, allowance: float) -> None:
        passed = 0
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
                passed += len(data)
                time.sleep(len(data) / self._bytes_per_s)
                self.passed_bytes += len(data)
                if passed >= allowance:
                    break
                if self._stalls_after_bytes is not None and passed >= self._stalls_after_bytes:
                    self._stalls_after_bytes = None
                    self._over.wait()
                if self._cuts_from is not None and self.passed_bytes >= self._cuts_from:
                    self._cuts_from = None
                    break
                if self._cuts_after_bytes is not None and passed >= self._cuts_after_bytes:
                    self._cuts_after_bytes = None
                    break
        _shut(client, server)

    def _downwards(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        _shut(client, server)


def _shut(*ends: socket.socket) -> None:
    for one in ends:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
