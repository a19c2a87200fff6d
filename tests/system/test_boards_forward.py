"""Forwarded ports where something is forbidden, missing, gone or changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from armload.boards.board import HdcReach, SshAddress
from armload.boards.failures import PoweredOffError
from armload.boards.forward import Proxy
from armload.boards.hdc import HdcHost
from armload.boards.host import TransportChoice
from armload.boards.ssh import SshHost
from armload.boards.virtual.process import free_port
from armload.core.errors import BoardError, ConnectError
from tests.devices import Hdc, hdc_device
from tests.faults import end_sessions
from tests.servers import dropbear, make_key, openssh
from tests.services import Echo, cut, echoed, is_listening, service

KEY = "7001005458323933328a01bce01c3800"

pytestmark = pytest.mark.usefixtures("home")

Server = Callable[[Path], AbstractContextManager[SshAddress]]


@pytest.fixture
def hdc(tmp_path: Path) -> Iterator[Hdc]:
    with hdc_device(tmp_path / "device") as device:
        yield device


def transport_of(host: SshHost) -> TransportChoice:
    (transport,) = (
        transport for transport in host.transports() if transport.purpose == "port forwarding"
    )
    return transport


def children() -> list[str]:
    return [child.name() for child in psutil.Process().children()]


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(lambda folder: openssh(folder, extra="AllowTcpForwarding no\n"), id="openssh"),
        pytest.param(
            lambda folder: dropbear(folder, shell="mksh", tools="toybox", extra="-j -k"),
            id="dropbear",
        ),
    ],
)
def test_a_server_that_forbids_forwarding_is_told_before_anything_listens(
    server: Server, tmp_path: Path
) -> None:
    with server(tmp_path / "server") as address:
        host = SshHost(address, "my-board")
        for port in (free_port(), address.port):
            assert port is not None
            with (
                pytest.raises(BoardError, match="SSH server forbids port forwarding") as caught,
                host.forwarded(port),
            ):
                pass
            assert "AllowTcpForwarding yes" in caught.value.remedy
            assert "-j" in caught.value.remedy
        with (
            pytest.raises(BoardError, match="SSH server forbids port forwarding"),
            host.reverse_forwarded(free_port()),
        ):
            pass
        transport = transport_of(host)
        assert transport.chosen == "none"
        assert "forbids port forwarding" in transport.reason
        assert host.run("echo in").text == "in"
        host.close()


def test_a_key_that_is_restricted_is_told(tmp_path: Path) -> None:
    with openssh(tmp_path / "server") as address:
        allowed = tmp_path / "server" / "authorized"
        allowed.write_text(f"restrict {allowed.read_text()}")
        host = SshHost(address, "my-board")
        with pytest.raises(BoardError, match="forbids") as caught, host.forwarded(free_port()):
            pass
        assert "restrict" in caught.value.remedy
        host.close()


def test_a_server_that_forbids_only_the_other_direction_does_not_matter(tmp_path: Path) -> None:
    with (
        dropbear(tmp_path / "server", shell="mksh", tools="toybox", extra="-k") as address,
        service(Echo) as port,
        SshHost(address, "my-board").forwarded(port) as forward,
    ):
        assert echoed(forward.port, b"through") == b"through"


def test_the_systems_ssh_is_used_where_it_can_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with openssh(tmp_path / "server") as address, service(Echo) as port:
        host = SshHost(address, "my-board")
        assert transport_of(host).chosen == "the system's ssh"
        with host.forwarded(port):
            assert "ssh" in children()
        assert "ssh" not in children()
        host.close()
        monkeypatch.setenv("PATH", str(tmp_path))
        transport = transport_of(host)
        assert transport.chosen == "a channel of the same connection"
        assert "no ssh in PATH" in transport.reason
        with host.forwarded(port) as forward:
            assert "ssh" not in children()
            assert echoed(forward.port, b"through") == b"through"
        host.close()


@contextmanager
def cut_off(
    folder: Path, why_gone: Callable[[], PoweredOffError | None] = lambda: None
) -> Iterator[tuple[SshAddress, Proxy]]:
    """Forward the port of an echo service over a server that is gone by now."""
    with service(Echo) as port, ExitStack() as stack:
        with openssh(folder) as address:
            host = SshHost(address, "my-board", why_gone)
            forward = stack.enter_context(host.forwarded(port))
        cut(forward.port, lambda: end_sessions(address.port))
        yield address, forward


def test_a_board_that_is_away_is_told_and_found_again(tmp_path: Path) -> None:
    with cut_off(tmp_path / "server") as (address, forward):
        assert echoed(forward.port, b"through") == b""
        with pytest.raises(ConnectError, match="no SSH server is listening"):
            forward.check()
        with openssh(tmp_path / "server", port=address.port):
            assert echoed(forward.port, b"again") == b"again"
            forward.check()


def test_a_server_that_comes_back_with_another_key_gets_no_client(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with cut_off(folder) as (address, forward):
        for half in ("host", "host.pub"):
            (folder / half).unlink()
        make_key(folder / "host")
        with openssh(folder, port=address.port):
            assert echoed(forward.port, b"secret") == b""
            with pytest.raises(ConnectError, match="THE SERVER'S KEY HAS CHANGED"):
                forward.check()


def test_a_virtual_board_that_is_off_is_told_as_such(tmp_path: Path) -> None:
    with cut_off(tmp_path / "server", lambda: PoweredOffError("It is off.")) as (_, forward):
        assert echoed(forward.port, b"through") == b""
        with pytest.raises(PoweredOffError):
            forward.check()


FORWARD_AND_WAIT = """
import sys, time
from pathlib import Path
from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.core.errors import ConnectError
try:
    with SshHost(SshAddress.model_validate_json(sys.argv[1]), "my-board").forwarded(1) as forward:
        print(forward.port, flush=True)
        time.sleep(600)
except ConnectError as error:
    print(error)
"""


def test_an_armload_that_is_killed_leaves_nothing_behind(
    tmp_path: Path, server: SshAddress
) -> None:
    words = [sys.executable, "-c", FORWARD_AND_WAIT, server.model_dump_json()]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as armload:
        assert armload.stdout is not None
        port = int(armload.stdout.readline())
        left = psutil.Process(armload.pid).children(recursive=True)
        # The shell ends what an armload that is killed leaves.
        assert sorted(child.name() for child in left) == ["sh", "ssh"]
        armload.kill()
    _, alive = psutil.wait_procs(left, timeout=30)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert not is_listening(port)


def test_a_machine_without_a_local_port_to_give_says_so(server: SshAddress) -> None:
    no_more_files = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\ntry:"
    code = FORWARD_AND_WAIT.replace("try:", no_more_files)
    words = [sys.executable, "-c", code, server.model_dump_json()]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    expected = "my-board: no local port can be opened for forwarding: Too many open files.\n"
    assert done.stdout.startswith(expected)


def hdc_host(hdc: Hdc) -> HdcHost:
    return HdcHost(HdcReach(kind="hdc", program=str(hdc.program)), "my-board")


def test_an_hdc_that_would_listen_on_the_network_is_refused(hdc: Hdc) -> None:
    hdc.has(KEY, listens_on="0.0.0.0")
    with (
        pytest.raises(ConnectError, match="to this machine's networks") as caught,
        hdc_host(hdc).forwarded(free_port()),
    ):
        pass
    assert "Update hdc" in caught.value.remedy
    assert not list(hdc.program.parent.glob("rule-*"))


def test_an_hdc_that_finds_its_local_port_taken_tries_another_and_then_says_so(
    hdc: Hdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(Echo) as taken:
        free = free_port()
        ports = iter([taken, taken, free])
        monkeypatch.setattr("armload.boards.device_forward.free_port", lambda: next(ports))
        with hdc_host(hdc).forwarded(taken) as forward:
            assert echoed(forward.port, b"through") == b"through"
        monkeypatch.setattr("armload.boards.device_forward.free_port", lambda: taken)
        with (
            pytest.raises(ConnectError, match="hdc cannot listen on any local port"),
            hdc_host(hdc).forwarded(taken),
        ):
            pass


HDC_FORWARD_AND_WAIT = """
import sys, time
from armload.boards.board import HdcReach
from armload.boards.hdc import HdcHost

reach = HdcReach(kind="hdc", program=sys.argv[1])
with HdcHost(reach, "my-board").forwarded(int(sys.argv[2])) as forward:
    print(forward.port, flush=True)
    time.sleep(600)
"""


def rules(hdc: Hdc) -> set[str]:
    return {path.name for path in hdc.program.parent.glob("rule-*")}


def test_rules_of_a_command_that_was_killed_are_removed_by_the_next(hdc: Hdc) -> None:
    with service(Echo) as port:
        words = [sys.executable, "-c", HDC_FORWARD_AND_WAIT, str(hdc.program), str(port)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as armload:
            assert armload.stdout is not None
            assert armload.stdout.readline()
            of_the_killed = rules(hdc)
            assert of_the_killed
            with hdc_host(hdc).forwarded(port):
                assert of_the_killed < rules(hdc), "its command still runs"
            armload.kill()
        assert rules(hdc) == of_the_killed
        with hdc_host(hdc).forwarded(port) as forward:
            assert not of_the_killed & rules(hdc)
            assert echoed(forward.port, b"through") == b"through"
        assert not rules(hdc)


def test_a_device_that_is_pulled_out_is_told_and_found_again(hdc: Hdc) -> None:
    with service(Echo) as port, hdc_host(hdc).forwarded(port) as forward:
        cut(forward.port, hdc.has)
        assert echoed(forward.port, b"through") == b""
        with pytest.raises(ConnectError, match="sees no device"):
            forward.check()
        hdc.has(KEY)
        assert echoed(forward.port, b"again") == b"again"
        forward.check()
