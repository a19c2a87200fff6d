"""Processes that outlive armload, recognised for certain when it comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from armload.core.ids import boot_id, pid_namespace
from armload.core.values import Value


class CpuTime(NamedTuple):
    """CPU time of a thread since its start: what it had, and how long it was ready and waited."""

    ran_ns: int
    waited_ns: int


class Started(Value):
    """A process, distinguished from a later one with the same number, and from one elsewhere.

    Attributes:
        pid: its number.
        start_mark: of its start; a later process with the same number has another one.
        boot_id, pid_namespace: where the number has that meaning. In another one, as containers
            have it, nobody can say whether the process is alive.
    """

    pid: int
    start_mark: str
    boot_id: str = Field(default_factory=boot_id)
    pid_namespace: str = Field(default_factory=pid_namespace)

    @classmethod
    def of(cls, pid: int) -> Started | None:
        """Return the process that has this number now; none when there is none."""
        mark = _start_mark(pid)
        return None if mark is None else cls(pid=pid, start_mark=mark)

    @property
    def is_visible(self) -> bool:
        """Whether this machine can say if it is alive."""
        return (self.boot_id, self.pid_namespace) == (boot_id(), pid_namespace())

    def is_alive(self) -> bool:
        """Say whether exactly this process still runs, as far as can be seen."""
        return self.is_visible and _start_mark(self.pid) == self.start_mark

    def is_gone(self) -> bool:
        """Say whether exactly this process has ended for sure."""
        return self.is_visible and _start_mark(self.pid) != self.start_mark

    def listens_on(self, port: int) -> bool:
        """Say whether it is this process that takes connections on a loopback port."""
        import psutil

        try:
            connections = psutil.Process(self.pid).net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(
            item.status == psutil.CONN_LISTEN and item.laddr.port == port for item in connections
        )

    def cpu_times(self) -> dict[str, CpuTime]:
        """Return the CPU times of its threads by their numbers; nothing where no kernel tells.

        Format: "scheduler statistics" of the Linux kernel's documentation.
        """
        found = {}
        for file in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                ran, waited, *_ = file.read_text(encoding="ascii").split()
                found[file.parent.name] = CpuTime(int(ran), int(waited))
        return found

    def wait_gone(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def end(self) -> None:
        """End it: by request, after two seconds by force."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            if self.wait_gone(2.0):
                return


def _start_mark(pid: int) -> str | None:
    """Return what tells a live process from others: nothing that a clock's correction moves."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            threads = len(list(stat.with_name("task").iterdir()))
        except OSError:
            return None
        state, start_ticks = fields[0], fields[19]
        # A killed process keeps its files and ports until the last of its threads has ended.
        return None if state in "ZX" and threads <= 1 else start_ticks

    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.3f}"
    except psutil.Error:
        return None


def free_port() -> int:
    """Return a loopback port that nothing uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ssh_answers(port: int, timeout_s: float) -> bool:
    """Say whether an SSH server greets on a loopback port within the time."""
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as line:
            received = b""
            while b"SSH-" not in received and len(received) < 1024:
                line.settimeout(max(0.01, deadline - time.monotonic()))
                chunk = line.recv(256)
                if not chunk:
                    return False
                received += chunk
    except OSError:
        return False
    return b"SSH-" in received
