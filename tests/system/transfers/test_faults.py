"""Whatever goes wrong on the way: nothing is lost, and nothing is left to clean by hand."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.boards.virtual.process import free_port
from tests.faults import At
from tests.servers import openssh
from tests.system.transfers.pushing import SIZE, left_over, over_relay, pushed


class Server:
    """An SSH server that can be killed with all its sessions, and comes back on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._running = ExitStack()
        self.address = self.start()

    def start(self) -> SshAddress:
        self.address = self._running.enter_context(openssh(self._folder, port=self._port))
        return self.address

    def kill(self) -> None:
        listeners = [
            child
            for child in psutil.Process().children()
            if str(self._folder) in _command_of(child)
        ]
        for listener in listeners:
            for session in listener.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    session.kill()
            listener.kill()
        self._running.close()

    def close(self) -> None:
        self._running.close()


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a client of ours that has just ended
        return ""


@pytest.mark.exhaustive(covers=["armload/boards", "armload/deploy"])
def test_a_server_that_is_killed_at_any_moment_costs_no_file(tmp_path: Path, file: Path) -> None:
    chance = random.Random(4)
    server = Server(tmp_path / "server")
    with closing(server), closing(SshHost(server.address, "my-board")) as host:
        began = time.monotonic()
        assert pushed(host, file, tmp_path / "work" / "models" / "whole" / "file")
        took_s = time.monotonic() - began
        for number in range(4):
            remote = tmp_path / "work" / "models" / str(number) / "file"

            begun = threading.Event()

            def disturb(
                begun: threading.Event = begun, after_s: float = chance.uniform(0, took_s)
            ) -> None:
                begun.wait()
                time.sleep(after_s)
                server.kill()
                time.sleep(0.3)  # so that some connections are refused, too
                server.start()

            disturber = threading.Thread(target=disturb)
            disturber.start()
            try:
                assert pushed(host, file, remote, At(0, begun.set))
            finally:
                begun.set()
                disturber.join()
            host.close()  # as the next command would, which begins with a new connection
            assert remote.read_bytes() == file.read_bytes()
            assert left_over(remote) == set()
            assert not pushed(host, file, remote)


def test_a_connection_that_stalls_without_closing_is_given_up_and_the_rest_sent_over_another(
    server: SshAddress, tmp_path: Path, file: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armload.boards.bulk.TRANSFER_SILENCE_S", 1.5)
    with over_relay(server, stalls_after_bytes=SIZE // 2) as (host, relay):
        assert pushed(host, file, remote)
    assert remote.read_bytes() == file.read_bytes()
    assert relay.passed_bytes < SIZE + (8 << 20), "at most 8 MiB went twice"


def test_a_connection_that_is_refused_now_and_then_is_tried_again(
    server: SshAddress, file: Path, remote: Path
) -> None:
    with over_relay(server, refuses={2, 4}) as (host, relay):
        host.run("true")
        assert pushed(host, file, remote, At(0, host.close))
        assert relay.connections >= 4
    assert remote.read_bytes() == file.read_bytes()


NAMES = st.text(
    st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=40
).filter(lambda name: name not in {".", ".."} and len(name.encode()) < 200)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example("-rf")
@example("--")
@example("a b")
@example('it\'s "quoted"')
@example("$(id) `id` ${HOME}")
@example("two\nlines\n")
@example("Zürich 東京 .gguf")
@example("back\\slash *?[a]")
@given(NAMES)
def test_a_file_of_any_name_arrives_under_it(host: SshHost, tmp_path: Path, name: str) -> None:
    folder = tmp_path / os.urandom(4).hex()
    local, remote = folder / name, folder / "work" / "models" / "0" / name
    folder.mkdir()
    data = os.urandom(1000)
    local.write_bytes(data)
    assert pushed(host, local, remote)
    assert remote.read_bytes() == data
    assert left_over(remote) == set()
    assert not pushed(host, local, remote)
