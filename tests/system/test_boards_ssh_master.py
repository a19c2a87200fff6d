"""Logins that only the system's ``ssh`` can do, each at a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.failures import LoginRefusedError
from armload.boards.ssh import BULK_BYTES, SshHost
from armload.boards.virtual.process import free_port
from armload.core.errors import BoardError, ConnectError, PermanentConnectError
from tests.security_keys import SecurityKeyAgent, security_key_agent
from tests.servers import make_key, openssh
from tests.services import Echo, echoed, service

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[SecurityKeyAgent]:
    with security_key_agent(tmp_path / "agent") as found:
        yield found


@pytest.fixture
def token_only(tmp_path: Path, home: Path, agent: SecurityKeyAgent) -> Iterator[SshAddress]:
    """A server that lets in who touches the token, which an agent of its own holds."""
    with openssh(tmp_path / "server") as address:
        (tmp_path / "server" / "authorized").write_text(f"{agent.public_line}\n")
        (home / ".ssh" / "config").write_text(f"Host *\n  IdentityAgent {agent.path}\n")
        yield address.model_copy(update={"key": None})


def transports(host: SshHost) -> dict[str, tuple[str, str]]:
    return {
        transport.purpose: (transport.chosen, transport.reason) for transport in host.transports()
    }


def test_a_security_key_is_touched_once_for_all_that_a_command_does(
    token_only: SshAddress, agent: SecurityKeyAgent, tmp_path: Path
) -> None:
    with closing(SshHost(token_only, "my-board")) as host:
        done = host.run("cat; echo no >&2; exit 7", stdin=b"yes\0")
        assert (done.status, done.stdout, done.stderr) == (7, b"yes\0", b"no\n")
        assert host.run("exit 255").status == 255
        assert host.run("sh -c 'kill -9 $$'").status == 137
        chosen = transports(host)
        assert chosen["commands"][0] == "sessions of the system's ssh"
        assert "Python's SSH client cannot log in: my-board: " in chosen["commands"][1]
        assert chosen["bulk data"][0] == chosen["port forwarding"][0] == "the system's ssh"
        assert "-" in chosen["encryption"][0]
        large = tmp_path / "large"
        large.write_bytes(os.urandom(BULK_BYTES))
        copy = PurePosixPath(tmp_path / "copy")
        host.send_file(large, copy, offset_bytes=0, sent=lambda _: None)
        assert b"".join(host.read(copy)) == large.read_bytes()
        with closing(SshHost(token_only, "my-board")) as beside:
            assert beside.run("echo in").text == "in"
        assert host.run("echo still").text == "still"
    assert agent.touched == 1


def test_a_key_of_which_only_the_public_half_lies_here_is_used(
    token_only: SshAddress, agent: SecurityKeyAgent, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "token.pub").write_text(f"{agent.public_line}\n")
    with (home / ".ssh" / "config").open("a") as config:
        config.write(f"  IdentitiesOnly yes\n  IdentityFile {tmp_path}/token.pub\n")
    with closing(SshHost(token_only, "my-board")) as host:
        assert host.run("echo in").text == "in"


def test_a_port_is_reached_over_the_same_login(
    token_only: SshAddress, agent: SecurityKeyAgent
) -> None:
    with service(Echo) as port, closing(SshHost(token_only, "my-board")) as host:
        host.run("true")
        with host.forwarded(port) as forward:
            assert [echoed(forward.port, b"hello") for _ in range(2)] == [b"hello", b"hello"]
            host.close()
            assert echoed(forward.port, b"still") == b"still"
    assert agent.touched == 1


def test_a_server_that_forbids_forwarding_is_reported(
    tmp_path: Path, home: Path, agent: SecurityKeyAgent
) -> None:
    with openssh(tmp_path / "server", extra="AllowTcpForwarding no\n") as address:
        (tmp_path / "server" / "authorized").write_text(f"{agent.public_line}\n")
        (home / ".ssh" / "config").write_text(f"Host *\n  IdentityAgent {agent.path}\n")
        with (
            closing(SshHost(address, "my-board")) as host,
            pytest.raises(BoardError, match="forbids port forwarding"),
            host.forwarded(80),
        ):
            pass


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_running_when_a_host_is_closed_or_its_process_killed(
    token_only: SshAddress,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    *,
    killed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    script = (
        "import sys\n"
        "from armload.boards import ssh_master\n"
        "from armload.boards.board import SshAddress\n"
        "from armload.boards.ssh import SshHost\n"
        "ssh_master.STAYS_S = 3\n"
        f"host = SshHost(SshAddress.model_validate_json({token_only.model_dump_json()!r}), 'b')\n"
        "print(host.run('echo in').text, flush=True)\n"
        "sys.stdin.read()\n"
        "host.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        assert programs_that_name(folder)
        if killed:
            process.kill()
    for _ in range(200):
        if not programs_that_name(folder):
            break
        time.sleep(0.05)
    assert not programs_that_name(folder)


def programs_that_name(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def test_a_connection_that_drops_is_reported_and_renewed(
    tmp_path: Path, home: Path, agent: SecurityKeyAgent
) -> None:
    with openssh(tmp_path / "server") as address:
        (tmp_path / "server" / "authorized").write_text(f"{agent.public_line}\n")
        (home / ".ssh" / "config").write_text(f"Host *\n  IdentityAgent {agent.path}\n")
        with closing(SshHost(address, "my-board")) as host:
            with pytest.raises(ConnectError, match="the connection dropped"):
                host.run('kill -9 "$PPID"; sleep 5')
            assert host.run("echo again").text == "again"
    assert agent.touched == 2


def test_a_certificate_in_a_place_of_its_own_opens_the_line(tmp_path: Path, home: Path) -> None:
    make_key(tmp_path / "authority")
    make_key(tmp_path / "mine")
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "authority"), "-I", "me", "-n", "root"]
    subprocess.run([*sign, str(tmp_path / "mine.pub")], check=True)
    (tmp_path / "mine-cert.pub").rename(tmp_path / "certificate.pub")
    extra = f"TrustedUserCAKeys {tmp_path}/authority.pub\n"
    with openssh(tmp_path / "server", extra=extra) as address:
        other = address.model_copy(update={"key": tmp_path / "mine"})
        with closing(SshHost(other, "my-board")) as host, pytest.raises(LoginRefusedError):
            host.run("true")
        (home / ".ssh" / "config").write_text(
            f"Host *\n  CertificateFile {tmp_path}/certificate.pub\n"
        )
        with closing(SshHost(other, "my-board")) as host:
            assert host.run("echo in").text == "in"


def test_a_host_that_an_authority_vouches_for_is_known(tmp_path: Path, home: Path) -> None:
    authority = make_key(tmp_path / "authority")
    (tmp_path / "server").mkdir()
    make_key(tmp_path / "server" / "host")
    make_key(tmp_path / "server" / "login")
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "authority"), "-I", "board", "-h"]
    subprocess.run([*sign, str(tmp_path / "server" / "host.pub")], check=True)
    extra = f"HostCertificate {tmp_path}/server/host-cert.pub\n"
    with openssh(tmp_path / "server", extra=extra) as address:
        unknown = address.model_copy(update={"host_key": None})
        with closing(SshHost(unknown, "my-board")) as host:
            with pytest.raises(PermanentConnectError, match="is not known yet"):
                host.run("true")
            known = home / ".ssh" / "known_hosts"
            known.write_text(f"@cert-authority * {authority}\n")
            (home / ".ssh" / "config").write_text(f"Host *\n  UserKnownHostsFile {known}\n")
            assert host.run("echo in").text == "in"


def test_a_host_key_that_the_configuration_revokes_gets_no_login(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    revoked = tmp_path / "revoked"
    (home / ".ssh" / "config").write_text(f"Host *\n  RevokedHostKeys {revoked}\n")
    revoked.write_text(f"{make_key(tmp_path / 'other')}\n")
    with closing(SshHost(server, "my-board")) as host:
        assert host.run("echo in").text == "in"
        assert "sets RevokedHostKeys, which only OpenSSH" in transports(host)["commands"][1]
    revoked.write_text(f"{server.host_key}\n")
    with (
        closing(SshHost(server, "my-board")) as host,
        pytest.raises(PermanentConnectError, match="Host key verification failed") as caught,
    ):
        host.run("true")
    assert "sets RevokedHostKeys" in caught.value.remedy


def test_the_address_to_connect_from_is_that_of_the_configuration(
    server: SshAddress, home: Path
) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  BindAddress 127.0.0.2\n  AddressFamily inet\n")
    with closing(SshHost(server, "my-board")) as host:
        assert host.run('echo "$SSH_CONNECTION"').text.startswith("127.0.0.2 ")


def test_keys_stay_unused_where_the_configuration_says_so(server: SshAddress, home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  PubkeyAuthentication no\n")
    with (
        closing(SshHost(server, "my-board")) as host,
        pytest.raises(LoginRefusedError, match="Permission denied") as caught,
    ):
        host.run("true")
    assert "sets PubkeyAuthentication" in caught.value.remedy


def test_a_host_that_is_off_is_no_refused_login(server: SshAddress, home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  BindAddress 127.0.0.1\n")
    off = server.model_copy(update={"port": free_port()})
    with (
        closing(SshHost(off, "my-board")) as host,
        pytest.raises(ConnectError, match="Connection refused") as caught,
    ):
        host.run("true")
    assert not isinstance(caught.value, PermanentConnectError)


def test_a_server_that_shows_another_key_gets_no_login(
    token_only: SshAddress, agent: SecurityKeyAgent, tmp_path: Path
) -> None:
    with closing(SshHost(token_only, "my-board")) as host:
        assert host.run("echo in").text == "in"
    other = token_only.model_copy(update={"host_key": make_key(tmp_path / "other")})
    with (
        closing(SshHost(other, "my-board")) as host,
        pytest.raises(PermanentConnectError, match="KEY HAS CHANGED"),
    ):
        host.run("true")
    assert agent.touched == 1
