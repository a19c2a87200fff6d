"""Runs over lines and servers that break: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.local import LocalHost
from armload.boards.ssh import SshHost
from armload.boards.virtual.process import free_port
from armload.core.progress import ProgressStep, Silent
from armload.deploy.collect import collect
from armload.deploy.follow import SEEN_TEXT, SEEN_TRACE, FollowBuffer, ProgressUpdate, follow
from armload.deploy.launch import launch
from tests.contract.launching import launched
from tests.servers import openssh

TOKENS = 120
PROGRAM = f"""
echo '{{"format":1}}' >"$ARMLOAD_TRACE"
n=0
while [ $n -lt {TOKENS} ]; do
  echo '{{"step":'$n'}}' >>"$ARMLOAD_TRACE"
  echo word $n
  n=$((n + 1))
  sleep 0.05
done
"""


class Server:
    """An SSH server that is killed with all its sessions, and comes back on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.address: SshAddress | None = None
        self._running = openssh(folder, port=self._port)
        self._start()

    def _start(self) -> None:
        self._running = openssh(self._folder, port=self._port)
        self.address = self._running.__enter__()

    def kill(self) -> None:
        """Kill it and everything that serves a connection, without a word to anybody."""
        config = str(self._folder / "sshd_config")
        listing = subprocess.run(
            ["pgrep", "-f", config], capture_output=True, text=True, check=False
        ).stdout.split()
        sessions = [pid for parent in listing for pid in descendants_called(parent, "sshd")]
        for pid in {*listing, *sessions}:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._running.__exit__(None, None, None)

    def restart(self) -> None:
        self.kill()
        self._start()

    def end(self) -> None:
        self._running.__exit__(None, None, None)


class BreaksOnce(Silent):
    """Kills the server as soon as that much has been fetched."""

    def __init__(self, server: Server, after_bytes: int) -> None:
        self.broken_at_bytes = 0.0
        self._server = server
        self._after_bytes = after_bytes

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        yield self

    def update(self, completed: float, **_more: object) -> None:
        if completed > self._after_bytes and not self.broken_at_bytes:
            self.broken_at_bytes = completed
            self._server.restart()


def descendants_called(pid: str, name: str) -> list[str]:
    """Return the sessions' own processes, not what runs in them."""
    found = subprocess.run(
        ["pgrep", "-P", pid, name], capture_output=True, text=True, check=False
    ).stdout.split()
    return [*found, *(deeper for each in found for deeper in descendants_called(each, name))]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "server")
    yield running
    running.end()


def test_a_server_killed_ten_times_in_a_run_loses_and_doubles_nothing(
    server: Server, tmp_path: Path
) -> None:
    """From before the launch to after the fetch; the moments are random and are shown."""
    assert server.address is not None
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    ended = threading.Event()
    kills: list[float] = []

    def disturb() -> None:
        while len(kills) < 10:
            if ended.wait(chance.uniform(0.05, 1.2)):
                return
            kills.append(time.monotonic())
            server.restart()

    workdir = PurePosixPath(tmp_path / "work")
    seen = tmp_path / "home"
    disturber = threading.Thread(target=disturb)
    with closing(SshHost(server.address, "my-board")) as host:
        disturber.start()
        try:
            folder = launched(host, workdir, "sh", "-c", PROGRAM, limit_s=120)
            steps = []
            status = follow(host, folder, lambda now: steps.append(now.steps), keep=seen)
            collect(host, folder, tmp_path / "local")
        finally:
            ended.set()
            disturber.join()
    assert status == 0, seed
    assert len(kills) >= 3, seed
    lines = (tmp_path / "local" / "trace.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines[1:]] == list(range(TOKENS)), seed
    assert (seen / SEEN_TRACE).read_text().splitlines() == lines, seed
    words = (tmp_path / "local" / "stdout").read_text().splitlines()
    assert (seen / SEEN_TEXT).read_text().splitlines() == words, seed
    assert words == [f"word {n}" for n in range(TOKENS)], seed
    assert [path.name for path in Path(workdir / "runs").iterdir()] == ["run"]


def test_what_was_seen_before_a_restart_is_kept_once(tmp_path: Path) -> None:
    def lines(words: str) -> list[bytes]:
        return [json.dumps({"step": word}).encode() for word in words]

    seen = FollowBuffer(tmp_path)
    seen.lines(0, lines("ab"))
    seen.lines(2, lines("c"))
    seen.lines(0, lines("a"))
    seen.lines(1, lines("b"))
    seen.lines(3, lines("d"))
    seen.text(0, b"One")
    seen.text(3, b" two")
    with (tmp_path / SEEN_TRACE).open("ab") as file:
        file.write(b'{"half": "a l')
    again = FollowBuffer(tmp_path)
    again.lines(0, lines("abc"))
    again.lines(3, lines("de"))
    again.text(0, b"One t")
    again.text(5, b"wo three")
    assert (tmp_path / SEEN_TRACE).read_bytes().splitlines() == lines("abcde")
    assert (tmp_path / SEEN_TEXT).read_bytes() == b"One two three"


def test_half_a_line_that_is_followed_is_no_line_yet(tmp_path: Path) -> None:
    """A board may be looked at in the middle of a write, and storage may be full there for long."""
    folder, seen = tmp_path / "work" / "runs" / "run", tmp_path / "home"
    steps: list[int] = []
    program = (
        'printf \'{"format":1}\\n{"step":\' >"$ARMLOAD_TRACE"; echo word; '
        f"until [ -e '{tmp_path}/gate' ]; do sleep 0.05; done; "
        'printf \'0}\\n{"step":1}\\n{"st\' >>"$ARMLOAD_TRACE"'
    )

    def grown(now: ProgressUpdate) -> None:
        steps.append(now.steps)
        if now.text:
            (tmp_path / "gate").touch()

    with closing(LocalHost("my-board")) as host:
        on_board = PurePosixPath(folder)
        argv = ["sh", "-c", program]
        launch(host, run_folder=on_board, argv=argv, trace=True, time_limit_s=60, job=b"{}")
        assert follow(host, on_board, grown, keep=seen) == 0
    assert (seen / SEEN_TRACE).read_text() == '{"format":1}\n{"step":0}\n{"step":1}\n'
    assert steps[-1] == 2


def test_what_is_passed_on_while_a_run_ends_comes_before_its_end(tmp_path: Path) -> None:
    """One look at the trace is slow, and the run ends meanwhile."""
    tools, gate = tmp_path / "tools", tmp_path / "gate"
    tools.mkdir()
    for name in ("sh", "bash", "wc", "mkdir", "mkfifo", "mv", "rm", "sleep", "sync"):
        (tools / name).symlink_to(Path("/bin") / name)
    slow = tools / "cat"
    slow.write_text(
        '#!/bin/sh\ndata=$(/bin/cat "$@"; echo x)\n'
        f"case $data in '{{\"format\"'*) : >'{gate}'; sleep 2 ;; esac\n"
        'printf %s "${data%x}"\n'
    )
    slow.chmod(0o755)
    program = tmp_path / "program"
    program.write_text(
        'echo \'{"format":1}\' >"$ARMLOAD_TRACE"\n'
        f"until [ -e '{gate}' ]; do sleep 0.05; done\n"
        'echo \'{"step":0}\' >>"$ARMLOAD_TRACE"\n'
    )
    folder = PurePosixPath(tmp_path / "work" / "runs" / "run")
    force = f'ForceCommand PATH={tools} exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    with (
        openssh(tmp_path / "server", extra=force) as address,
        closing(SshHost(address, "my-board")) as host,
    ):
        argv = ["sh", str(program)]
        launch(host, run_folder=folder, argv=argv, trace=True, time_limit_s=60, job=b"{}")
        assert follow(host, folder, lambda now: None, keep=tmp_path / "seen") == 0
    assert (tmp_path / "seen" / SEEN_TRACE).read_text() == '{"format":1}\n{"step":0}\n'


def test_large_output_is_fetched_piece_by_piece_and_goes_on_after_a_break(
    server: Server, tmp_path: Path
) -> None:
    assert server.address is not None
    folder = PurePosixPath(tmp_path / "work" / "runs" / "run")
    size = 64_000_000
    with closing(SshHost(server.address, "my-board")) as host:
        launch(
            host,
            run_folder=folder,
            argv=["sh", "-c", f"head -c {size} /dev/urandom >big"],
            trace=False,
            time_limit_s=120,
            job=b"{}",
        )
        follow(host, folder, lambda now: None)
        local = tmp_path / "local"
        breaking = BreaksOnce(server, size // 4)
        collect(host, folder, local, breaking)
    assert size // 4 < breaking.broken_at_bytes < size
    assert (local / "files" / "big").read_bytes() == Path(folder / "files" / "big").read_bytes()


def test_files_are_compared_without_any_tool_for_checksums(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "cat", "wc", "mkdir", "mv", "rm", "sleep", "tail", "head", "sync"):
        (tools / name).symlink_to(Path("/bin") / name)
    folder = PurePosixPath(tmp_path / "work" / "runs" / "run")
    force = f'ForceCommand PATH={tools} exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    with (
        openssh(tmp_path / "server", extra=force) as address,
        closing(SshHost(address, "my-board")) as host,
    ):
        assert host.run("sha256sum </dev/null").status == 127
        launch(
            host,
            run_folder=folder,
            argv=["sh", "-c", "head -c 3000000 /dev/zero; echo done"],
            trace=False,
            time_limit_s=60,
            job=b"{}",
        )
        assert follow(host, folder, lambda now: None) == 0
        collect(host, folder, tmp_path / "local")
        collect(host, folder, tmp_path / "local")
    assert (tmp_path / "local" / "stdout").read_bytes() == bytes(3_000_000) + b"done\n"
