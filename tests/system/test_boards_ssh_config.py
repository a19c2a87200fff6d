"""Boards that the SSH configuration leads to in other ways than by a name, at real servers."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.core.errors import ConnectError, DataError, PermanentConnectError
from tests.servers import openssh

pytestmark = pytest.mark.usefixtures("home")


def answer(address: SshAddress) -> str:
    with closing(SshHost(address, "my-board")) as host:
        return host.run('echo "$SSH_CONNECTION"').text


def known_line(server: SshAddress, name: str | None = None) -> str:
    return f"{name or f'[127.0.0.1]:{server.port}'} {server.host_key}\n"


def entry(alias: str, server: SshAddress, *more: str) -> str:
    lines = (
        f"Host {alias}",
        "HostName 127.0.0.1",
        f"Port {server.port}",
        f"User {server.user}",
        f"IdentityFile {server.key}",
        *more,
    )
    return "\n  ".join(lines) + "\n"


def test_an_alias_in_an_included_file_leads_to_its_board(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "work").write_text(entry("kitchen", server))
    (home / ".ssh" / "config").write_text(f"Include {tmp_path}/work\n")
    (home / ".ssh" / "known_hosts").write_text(known_line(server))
    assert answer(SshAddress(host="kitchen")).endswith(f" {server.port}")


def test_a_name_that_stands_nowhere_is_reported_with_what_to_add(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  AddKeysToAgent yes\n")
    with pytest.raises(ConnectError, match=r"the host name 'nowhere\.invalid' cannot be") as caught:
        answer(SshAddress(host="nowhere.invalid"))
    assert "Host nowhere.invalid" in caught.value.remedy


def test_a_key_that_is_kept_hashed_under_another_name_is_known(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    (home / ".ssh" / "config").write_text(
        entry("kitchen", server, "HostKeyAlias oven", "HashKnownHosts yes")
    )
    known = home / ".ssh" / "known_hosts"
    known.write_text(known_line(server, "other"))
    with pytest.raises(PermanentConnectError, match="is not known yet"):
        answer(SshAddress(host="kitchen"))
    known.write_text(known_line(server, "oven"))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "oven" not in known.read_text()
    assert answer(SshAddress(host="kitchen"))


def test_a_proxy_command_is_a_line_for_a_shell(server: SshAddress, home: Path) -> None:
    relay = f"python3 -c '{RELAY}' %h %p 2>/dev/null"
    (home / ".ssh" / "config").write_text(entry("kitchen", server, f"ProxyCommand {relay} | cat"))
    (home / ".ssh" / "known_hosts").write_text(known_line(server))
    with closing(SshHost(SshAddress(host="kitchen"), "my-board")) as host:
        assert host.run("echo in").text == "in"
        (bulk,) = (transport for transport in host.transports() if transport.purpose == "bulk data")
    assert bulk.chosen == "the system's ssh"


RELAY = (
    "import socket,sys,threading,os;s=socket.create_connection((sys.argv[1],sys.argv[2]));"
    "threading.Thread(target=lambda:[*[s.sendall(b) for b in iter(lambda:os.read(0,9999),bytes())],"
    "s.shutdown(1)],daemon=True).start();[os.write(1,b) for b in iter(lambda:s.recv(9999),bytes())]"
)


def test_hosts_on_the_way_are_passed_in_their_order(tmp_path: Path, home: Path) -> None:
    with ExitStack() as stack:
        board = stack.enter_context(openssh(tmp_path / "board"))
        second = stack.enter_context(
            openssh(tmp_path / "second", extra=f"PermitOpen 127.0.0.1:{board.port}\n")
        )
        first = stack.enter_context(
            openssh(tmp_path / "first", extra=f"PermitOpen 127.0.0.1:{second.port}\n")
        )
        (home / ".ssh" / "config").write_text(
            entry("first", first)
            + entry("second", second)
            + entry("kitchen", board, "ProxyJump first,second")
        )
        known = "".join(map(known_line, (first, second, board)))
        (home / ".ssh" / "known_hosts").write_text(known)
        assert answer(SshAddress(host="kitchen"))


def test_a_wildcard_that_leads_over_a_host_ends_there(
    server: SshAddress, tmp_path: Path, home: Path
) -> None:
    with openssh(tmp_path / "board") as board:
        (home / ".ssh" / "config").write_text(
            entry("gate", server) + entry("kitchen", board) + "Host *\n  ProxyJump gate\n"
        )
        (home / ".ssh" / "known_hosts").write_text(known_line(server) + known_line(board))
        assert answer(SshAddress(host="kitchen"))
    (home / ".ssh" / "config").write_text(
        "Host gate\n  ProxyJump other\nHost other\n  ProxyJump gate\nHost kitchen\n"
        "  ProxyJump gate\n"
    )
    with pytest.raises(DataError, match="ProxyJump leads from other to gate and back"):
        answer(SshAddress(host="kitchen"))
