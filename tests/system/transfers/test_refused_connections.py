"""Servers that refuse connections, and lines that break early: every stage goes on all the same."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.failures import LoginRefusedError
from armload.boards.host import Completed
from armload.boards.ssh import SshHost
from armload.boards.ssh_connection import open_connection
from armload.boards.virtual.process import free_port
from armload.core.errors import ConnectError
from armload.core.progress import Silent
from armload.deploy.board_runs import list_runs, mark_collected
from armload.deploy.claims import claims
from armload.deploy.collect import collect
from armload.deploy.follow import follow, stop
from armload.deploy.holder import this_process
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import leased
from tests.faults import Relay, TwoOfThree
from tests.servers import openssh
from tests.system.transfers.pushing import pushed, through


class AlwaysAnew(SshHost):
    """Opens a new connection for each command."""

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        self.close()
        return super().run(command, stdin=stdin, timeout_s=timeout_s)


@pytest.mark.exhaustive(covers=["armload/boards", "armload/deploy"])
def test_every_stage_survives_a_server_that_refuses_two_of_three_connections(
    server: SshAddress, tmp_path: Path, file: Path, remote: Path
) -> None:
    assert server.port is not None
    workdir = PurePosixPath(tmp_path / "work")
    folder = Layout(workdir=workdir).run("run")
    with (
        closing(Relay(server.port, refuses=TwoOfThree())) as relay,
        closing(AlwaysAnew(through(server, relay), "my-board")) as host,
        leased(
            host,
            workdir,
            Silent(),
            wait_s=0,
            beside=lambda: AlwaysAnew(through(server, relay), "my-board"),
        ) as lease,
    ):
        assert pushed(host, file, remote)
        assert remote.read_bytes() == file.read_bytes()
        lease.hand_to_run()
        argv = ["sh", "-c", "echo done"]
        launch(
            host,
            run_folder=folder,
            argv=argv,
            trace=False,
            time_limit_s=60,
            job=b"{}",
            lease=lease,
        )
        assert follow(host, folder, lambda now: None) == 0
        collect(host, folder, tmp_path / "local")
        mark_collected(host, folder)
        stop(host, folder)
        (run,) = list_runs(host, workdir)
        assert run.collected
        assert relay.connections >= 20
    assert (tmp_path / "local" / "stdout").read_text() == "done\n"


def test_a_server_that_refuses_every_connection_is_given_up_soon(server: SshAddress) -> None:
    assert server.port is not None
    with closing(Relay(server.port, refuses=range(100))) as relay:
        host = SshHost(through(server, relay), "my-board")
        began = time.monotonic()
        with pytest.raises(ConnectError, match="closed it immediately") as caught:
            host.run("true")
        assert relay.connections == 4
        assert time.monotonic() - began < 30
    assert not isinstance(caught.value, LoginRefusedError)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.8, 0.95])
def test_a_login_that_is_cut_off_is_made_again_and_not_called_refused(
    server: SshAddress, share: float
) -> None:
    assert server.port is not None
    with closing(Relay(server.port)) as relay:
        open_connection(through(server, relay), "my-board").close()
        login_bytes = relay.passed_bytes
    with (
        closing(Relay(server.port, cuts_after_bytes=int(share * login_bytes))) as relay,
        closing(SshHost(through(server, relay), "my-board")) as host,
    ):
        assert host.run("echo in").text == "in"
        assert relay.connections == 2


def test_the_first_question_of_a_push_is_asked_again_when_its_connection_drops(
    server: SshAddress, tmp_path: Path, file: Path, remote: Path
) -> None:
    assert server.port is not None
    with closing(Relay(server.port)) as relay:
        host = SshHost(through(server, relay), "my-board")
        host.run("true")
        relay.cuts_next_command()
        with closing(host):
            assert pushed(host, file, remote)
            assert remote.read_bytes() == file.read_bytes()
        assert relay.connections >= 2


def test_waiting_for_a_board_outlives_its_server(tmp_path: Path) -> None:
    port = free_port()
    workdir = PurePosixPath(tmp_path / "work")
    lease = Path(Layout(workdir=workdir).lease)
    lease.mkdir(parents=True)
    somebody = this_process().model_copy(update={"workstation": "thinkpad-0a1b"})
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    until = int(Path("/proc/uptime").read_text().split(".")[0]) + 1000
    claim = lease / f"other.{boot}.{until}"
    claim.write_text(f"{somebody.model_dump_json()}\n1\n")
    waits, had = threading.Event(), threading.Event()

    class Told(Silent):
        def say(self, text: str) -> None:
            assert "is in use by" in text
            waits.set()

    def wait(address: SshAddress) -> None:
        host = SshHost(address, "my-board")
        with closing(host), leased(host, workdir, Told(), wait_s=300, beside=lambda: host):
            assert len(claims(host, workdir)) == 1
            had.set()

    with openssh(tmp_path / "server", port=port) as address:
        waiting = threading.Thread(target=wait, args=(address,))
        waiting.start()
        assert waits.wait(60)
    time.sleep(2)  # it asks every second or so, and nobody answers
    assert waiting.is_alive()
    with openssh(tmp_path / "server", port=port):
        claim.unlink()
        waiting.join(120)
        assert had.is_set()
