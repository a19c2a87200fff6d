"""Forwarded ports: what every kind of host must do, and both ways over SSH."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from armload.boards import ports
from armload.boards.adb import AdbHost
from armload.boards.device import DeviceHost
from armload.boards.host import Host
from armload.boards.local import LocalHost
from armload.boards.ssh import SshHost
from armload.boards.virtual.process import free_port
from armload.core.errors import BoardError
from armload.fleet.gateway_host import GatewayHost
from tests.contract.conftest import KINDS, reached
from tests.faults import end_sessions
from tests.services import (
    Digest,
    Echo,
    Web,
    client,
    cut,
    echoed,
    everything,
    exchanged,
    is_listening,
    posted,
    service,
)
from tests.waiting import wait_until

IN_PYTHON = "without the system's ssh"


@pytest.fixture(scope="module", params=[*KINDS, IN_PYTHON])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """As elsewhere in this suite, and once more without ``ssh`` in PATH."""
    folder = tmp_path_factory.mktemp("server")
    kind = "openssh" if request.param == IN_PYTHON else request.param
    with reached(kind, folder) as (make, _), pytest.MonkeyPatch.context() as patch:
        if request.param == IN_PYTHON:
            patch.setenv("PATH", str(folder))
        connected = make()
        yield connected
        connected.close()


def drop_connections(host: Host) -> None:
    """End what carries the bytes of a host, at the board's side."""
    if isinstance(host, AdbHost):
        for word in ("disconnect", "connect"):
            subprocess.run(["adb", word, str(host._tool.key)], check=True, capture_output=True)
    elif isinstance(host, DeviceHost):
        state = Path(host._tool._program).with_name("state.json")
        attached = state.read_text()
        state.write_text('{"devices": {}}')
        wait_until(lambda: not list(state.parent.glob("rule-*")), within_s=10)
        state.write_text(attached)
    if isinstance(host, SshHost):
        end_sessions(host._address.port)


def test_the_way_is_told(host: Host) -> None:
    (transport,) = (
        transport for transport in host.transports() if transport.purpose == "port forwarding"
    )
    assert transport.chosen != "none"
    assert transport.reason


def test_many_clients_at_once_get_their_own_answers(host: Host) -> None:
    bodies = [b"%d " % number * 2000 for number in range(200)]
    with service(Web) as port, host.forwarded(port) as forward, ThreadPoolExecutor(20) as clients:
        answers = list(clients.map(lambda body: posted(forward.port, body), bodies))
        assert answers == bodies
        forward.check()


def test_megabytes_pass_in_both_directions_at_once(host: Host) -> None:
    data = os.urandom(6_000_000)
    with service(Echo) as port, host.forwarded(port) as forward, client(forward.port) as line:
        sender = threading.Thread(target=line.sendall, args=(data,))
        sender.start()
        received = bytearray()
        while len(received) < len(data) and (block := line.recv(1 << 16)):
            received += block
        sender.join()
    assert bytes(received) == data


def test_a_client_that_ends_its_side_still_gets_its_answer_except_over_a_tool(host: Host) -> None:
    data = os.urandom(2_000_000)
    with service(Digest) as port, host.forwarded(port) as forward, client(forward.port) as line:
        answer = exchanged(line, data)
    expected = b"" if isinstance(host, DeviceHost) else hashlib.sha256(data).hexdigest().encode()
    assert answer == expected


def test_what_the_service_ends_ends_for_the_client(host: Host) -> None:
    class Greeting(Echo):
        def handle(self) -> None:
            self.request.sendall(b"hello")

    with service(Greeting) as port, host.forwarded(port) as forward, client(forward.port) as line:
        assert everything(line) == b"hello"


def test_while_nothing_listens_clients_are_turned_away_and_the_forward_stays(host: Host) -> None:
    port = free_port()
    with host.forwarded(port) as forward:
        assert echoed(forward.port, b"anybody?") == b""
        forward.check()
        with service(Echo, port), client(forward.port) as early:
            assert echoed(forward.port, b"anybody?") == b"anybody?"
            early.sendall(b"early")
            assert early.recv(5) == b"early"
        assert echoed(forward.port, b"anybody?") == b""
        with service(Echo, port):
            assert echoed(forward.port, b"again") == b"again"


def test_clients_that_are_turned_away_at_once_disturb_no_other(host: Host) -> None:
    with ExitStack() as stack:
        listening = stack.enter_context(ExitStack())
        port = listening.enter_context(service(Echo))
        forward = stack.enter_context(host.forwarded(port))
        early = stack.enter_context(client(forward.port))
        early.sendall(b"early")
        assert early.recv(5) == b"early"
        listening.close()
        clients = stack.enter_context(ThreadPoolExecutor(20))
        answers = clients.map(lambda _: echoed(forward.port, b"late"), range(60))
        assert set(answers) == {b""}
        early.sendall(b"still")
        assert early.recv(5) == b"still"


def test_after_a_dropped_connection_the_next_client_reaches_the_board(host: Host) -> None:
    if isinstance(host, LocalHost | GatewayHost):
        pytest.skip("nothing lies between that could drop, or not here")
    with service(Echo) as port, host.forwarded(port) as forward:
        for _ in range(2):
            cut(forward.port, lambda: drop_connections(host))
            assert echoed(forward.port, b"after") == b"after"
            forward.check()
    assert host.run("echo again").text == "again"


def test_closing_a_host_leaves_its_forwards_alone(host: Host) -> None:
    with service(Echo) as port, host.forwarded(port) as forward:
        host.run("true")
        host.close()
        assert echoed(forward.port, b"still") == b"still"


def test_two_ports_are_forwarded_side_by_side(host: Host) -> None:
    with (
        service(Echo) as one,
        service(Web) as other,
        host.forwarded(one) as first,
        host.forwarded(other) as second,
    ):
        assert echoed(first.port, b"first") == b"first"
        assert posted(second.port, b"second") == b"second"


def test_nothing_but_the_loopback_listens_and_nothing_is_left_in_the_end(host: Host) -> None:
    host.close()
    before = resources()
    with service(Echo) as port:
        with host.forwarded(port) as forward, client(forward.port) as line:
            line.sendall(b"here")
            assert line.recv(4) == b"here"
            assert not is_listening(forward.port, "127.0.0.2")
        if not isinstance(host, LocalHost):
            assert not is_listening(forward.port)
        host.close()
    wait_until(lambda: resources() <= before, within_s=10)
    if isinstance(host, AdbHost):
        assert not subprocess.run(
            ["adb", "forward", "--list"], check=True, capture_output=True
        ).stdout.strip()
    elif isinstance(host, DeviceHost):
        assert not list(Path(host._tool._program).parent.glob("rule-*"))


def test_programs_on_the_board_reach_a_port_of_this_machine(host: Host) -> None:
    host.close()
    before = resources()
    data = os.urandom(2_000_000)
    with service(Digest) as port:
        if isinstance(host, DeviceHost | GatewayHost):
            with pytest.raises(BoardError, match="cannot reach ports of this machine") as caught:
                host.reverse_forwarded(port)
            assert caught.value.remedy.endswith((" by SSH.", "on the gateway."))
            return
        with host.reverse_forwarded(port) as there:
            for _ in range(2):
                with client(there) as line:
                    assert exchanged(line, data) == hashlib.sha256(data).hexdigest().encode()
            assert ports.is_listening(host, there)
            if not isinstance(host, LocalHost):
                assert not is_listening(there, "127.0.0.2")
        if not isinstance(host, LocalHost):
            wait_until(lambda: not ports.is_listening(host, there), within_s=10)
        host.close()
    wait_until(lambda: resources() <= before, within_s=10)


def test_a_free_port_of_the_board_is_one_that_nothing_listens_on(host: Host) -> None:
    port = ports.free_port(host)
    assert not ports.is_listening(host, port)
    with service(Echo, port):
        assert ports.is_listening(host, port)


def resources() -> set[object]:
    """Return the threads, children and listening ports of this process."""
    this = psutil.Process()
    listening = {
        ("port", line.laddr)
        for line in this.net_connections("tcp")
        if line.status == psutil.CONN_LISTEN
    }
    children = {("child", child.pid) for child in this.children(recursive=True)}
    return {*listening, *children, *threading.enumerate()}
