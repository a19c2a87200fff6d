"""Ways to log in, each at a real server."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from armload.boards.board import SshAddress
from armload.boards.failures import LoginRefusedError
from armload.boards.ssh import SshHost
from armload.boards.virtual.process import free_port
from armload.core.errors import BoardError, ConnectError, PermanentConnectError
from tests.command_line import BIN
from tests.faults import Relay
from tests.servers import dropbear, make_key, openssh

PASSWORD = "correct horse"


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def takes_passwords(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshAddress]:
    folder = tmp_path_factory.mktemp("server")
    with dropbear(folder, shell="mksh", tools="toybox", password=PASSWORD) as address:
        yield address.model_copy(update={"key": None})


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    if shutil.which("ssh-agent") is None:
        pytest.skip("ssh-agent is not installed (Debian: openssh-client)")
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    for _ in range(200):
        if path.exists():
            break
        time.sleep(0.02)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    process.terminate()
    process.wait()


def test_a_login_shell_that_runs_no_command_is_reported_with_its_words(tmp_path: Path) -> None:
    refusal = "This account is currently not available."
    with (
        openssh(tmp_path, extra=f"ForceCommand echo '{refusal}'; exit 1\n") as address,
        closing(SshHost(address, "my-board")) as host,
        pytest.raises(BoardError) as caught,
    ):
        host.run("echo hello")
    assert caught.value.message.endswith(f"did not run the command, and wrote: {refusal}")


def says(address: SshAddress) -> str:
    host = SshHost(address, "my-board")
    try:
        return host.run("echo in").text
    finally:
        host.close()


def bulk_transport(address: SshAddress) -> tuple[str, str]:
    host = SshHost(address, "my-board")
    (transport,) = (
        transport for transport in host.transports() if transport.purpose == "bulk data"
    )
    host.close()
    return transport.chosen, transport.reason


def test_a_key_that_only_the_agent_holds_opens_both_lines(tmp_path: Path, agent: None) -> None:
    with openssh(tmp_path / "server") as address:
        assert address.key is not None
        held_by_agent = address.model_copy(update={"key": None})
        with pytest.raises(LoginRefusedError, match="the agent's keys"):
            says(held_by_agent)
        subprocess.run(["ssh-add", "-q", str(address.key)], check=True)
        address.key.unlink()
        assert says(held_by_agent) == "in"
        assert bulk_transport(held_by_agent)[0] == "the system's ssh"


def test_a_password_in_the_environment_opens_the_line(
    takes_passwords: SshAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_SSH_PASSWORD", PASSWORD)
    assert says(takes_passwords) == "in"
    chosen, reason = bulk_transport(takes_passwords)
    assert chosen == "a channel of the same connection"
    assert "Permission denied" in reason


def test_a_password_is_the_way_in_where_the_configuration_wants_no_keys(
    takes_passwords: SshAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Path.home() / ".ssh" / "config"
    config.write_text("Host *\n  PubkeyAuthentication no\n")
    with pytest.raises(LoginRefusedError) as caught:
        says(takes_passwords)
    assert caught.value.password_would_do
    assert "put the password in ARMLOAD_SSH_PASSWORD" in caught.value.remedy
    monkeypatch.setenv("ARMLOAD_SSH_PASSWORD", PASSWORD)
    assert says(takes_passwords) == "in"


def test_a_wrong_password_is_refused_and_named(
    takes_passwords: SshAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LoginRefusedError) as caught:
        says(takes_passwords)
    assert caught.value.password_would_do
    assert "For password login, put the password in ARMLOAD_SSH_PASSWORD" in caught.value.remedy
    monkeypatch.setenv("ARMLOAD_SSH_PASSWORD", "wrong")
    with pytest.raises(LoginRefusedError, match="the password in ARMLOAD_SSH_PASSWORD") as caught:
        says(takes_passwords)
    assert not caught.value.password_would_do


def probed_at_a_terminal(folder: Path, address: SshAddress, prompt: bytes, answer: str) -> bytes:
    """Run board.probe at a terminal, answer its question, and return what it printed as result."""
    known = Path.home() / ".ssh" / "known_hosts"
    known.write_text(f"[127.0.0.1]:{address.port} {address.host_key}\n")
    key = "" if address.key is None else f", key: {address.key}"
    (folder / "boards").mkdir()
    (folder / "boards" / "mine.yaml").write_text(
        "target: rk3568\n"
        f"reach: {{kind: ssh, host: 127.0.0.1, port: {address.port}, "
        f"user: {address.user}{key}}}\n"
        f"workdir: {folder}/work\n"
    )
    controller, terminal = pty.openpty()
    result = folder / "result"
    with result.open("wb") as output:
        process = subprocess.Popen(
            [
                "setsid",
                "-w",
                "-c",
                str(BIN / "armload"),
                "board.probe",
                "--board",
                "mine",
                "--json",
            ],
            cwd=folder,
            stdin=terminal,
            stdout=output,
            stderr=terminal,
        )
    os.close(terminal)
    said = b""
    while prompt not in said:
        ready, _, _ = select.select([controller], [], [], 60)
        assert ready, said
        said += os.read(controller, 4096)
    os.write(controller, answer.encode() + b"\n")
    while process.poll() is None:  # who does not read what it shows makes it wait
        if select.select([controller], [], [], 0.1)[0]:
            with suppress(OSError):
                said += os.read(controller, 4096)
    assert process.returncode == 0, said
    os.close(controller)
    assert answer.encode() not in said
    return result.read_bytes()


def test_a_person_at_a_terminal_is_asked_for_the_password(
    takes_passwords: SshAddress, tmp_path: Path
) -> None:
    result = probed_at_a_terminal(tmp_path, takes_passwords, b"Password: ", PASSWORD)
    assert json.loads(result)["workdir_writable"] is True


def test_a_person_at_a_terminal_is_asked_for_a_keys_passphrase_by_ssh(
    server: SshAddress, tmp_path: Path
) -> None:
    key = protected_key(server, tmp_path)
    address = server.model_copy(update={"key": key})
    result = json.loads(
        probed_at_a_terminal(tmp_path, address, b"Enter passphrase for key", PASSWORD)
    )
    assert result["workdir_writable"] is True
    assert "sessions of the system's ssh" in {
        transport["chosen"] for transport in result["transports"]
    }


def protected_key(server: SshAddress, folder: Path) -> Path:
    key = folder / "protected"
    assert server.key is not None
    shutil.copy(server.key, key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", PASSWORD, "-f", str(key)], check=True)
    return key


def test_a_passphrase_in_the_environment_opens_a_key(
    server: SshAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.model_copy(update={"key": protected_key(server, tmp_path)})
    with pytest.raises(PermanentConnectError, match="protected by a passphrase") as caught:
        says(address)
    assert "put the passphrase in ARMLOAD_SSH_PASSWORD" in caught.value.remedy
    monkeypatch.setenv("ARMLOAD_SSH_PASSWORD", PASSWORD)
    assert says(address) == "in"


def test_a_server_that_asks_for_nothing_lets_in(tmp_path: Path) -> None:
    with dropbear(tmp_path / "server", shell="mksh", tools="toybox", asks_nothing=True) as address:
        assert says(address.model_copy(update={"key": None})) == "in"


def test_a_host_between_that_refuses_the_login_is_named(tmp_path: Path, home: Path) -> None:
    with openssh(tmp_path / "jump") as jump, openssh(tmp_path / "server") as server:
        make_key(tmp_path / "stranger")
        (home / ".ssh" / "config").write_text(
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
            f"  IdentityFile {tmp_path}/stranger\n"
            f"Host behind\n  HostName 127.0.0.1\n  Port {server.port}\n  ProxyJump jump\n"
        )
        known = home / ".ssh" / "known_hosts"
        known.write_text(f"[127.0.0.1]:{jump.port} {jump.host_key}\n")
        address = server.model_copy(update={"host": "behind", "port": None})
        with pytest.raises(LoginRefusedError, match=f"port {jump.port}: login refused"):
            says(address)


def test_a_board_behind_another_host_that_refuses_a_connection_is_tried_again(
    tmp_path: Path, home: Path
) -> None:
    port = free_port()
    with openssh(tmp_path / "jump") as jump:
        (home / ".ssh" / "config").write_text(
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
            f"  IdentityFile {jump.key}\n"
            f"Host behind\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump jump\n"
        )
        known = home / ".ssh" / "known_hosts"
        known.write_text(f"[127.0.0.1]:{jump.port} {jump.host_key}\n")
        with pytest.raises(ConnectError, match=f"port {port}: the jump host"):
            says(SshAddress(host="behind"))
        with openssh(tmp_path / "server", port=port) as server:
            relay = Relay(port, refuses={1, 2})
            text = (home / ".ssh" / "config").read_text()
            (home / ".ssh" / "config").write_text(
                text.replace(f"Port {port}\n", f"Port {relay.port}\n")
            )
            address = server.model_copy(update={"host": "behind", "port": None})
            with closing(relay):
                assert says(address) == "in"


def test_a_host_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ssh_route", "failures"):
        monkeypatch.setattr(f"armload.boards.{module}.CONNECT_TIMEOUT_S", 0.5)
    # A full queue of connections leaves the next one unanswered.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.settimeout(0)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(ConnectError, match="no answer within") as caught:
            says(SshAddress(host="127.0.0.1", port=port))
        for one in waiting:
            one.close()
    assert "Is the board on?" in caught.value.remedy


def test_a_network_without_a_way_to_the_board_is_said(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a network of its own takes root")
    script = (
        "from armload.boards.board import SshAddress\n"
        "from armload.boards.ssh import SshHost\n"
        "from armload.core.errors import ConnectError\n"
        "try:\n    SshHost(SshAddress(host='192.0.2.1'), 'my-board').run('true')\n"
        "except ConnectError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "my-board: " in done.stdout
    assert "etwork is unreachable" in done.stdout
    assert "Is the board on? Check --host, --port and ~/.ssh/config." in done.stdout
