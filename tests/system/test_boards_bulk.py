"""Bulk data over the system's ssh: as checked as our own line, and never relied on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.host import TransportChoice
from armload.boards.ssh import BULK_BYTES, SshHost
from armload.core.errors import ConnectError
from tests import cpuinfo
from tests.servers import behind, cut_line, make_key, openssh

SIZE = BULK_BYTES + 12_345


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshAddress]:
    with openssh(tmp_path / "server") as address:
        yield address


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that has a line for each login with the real ``ssh``."""
    log, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    log.touch()
    (folder / "ssh").write_text(
        f'#!/bin/sh\ncase " $* " in *" -G "*) ;; *) echo called >>{log};; esac\n'
        f'exec {shutil.which("ssh")} "$@"\n'
    )
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "local"
    path.write_bytes(os.urandom(SIZE))
    return path


def arrives(address: SshAddress, local: Path, *, offset: int = 0) -> TransportChoice:
    """Send a file and read it back; return the way it took."""
    remote = local.with_name("remote file")
    if offset:
        remote.write_bytes(local.read_bytes()[:offset] + b"of no use")
    host = SshHost(address, "my-board")
    told: list[int] = []
    host.send_file(local, PurePosixPath(remote), offset_bytes=offset, sent=told.append)
    assert remote.read_bytes() == local.read_bytes()
    assert (told[0], told[-1]) == (offset, SIZE)
    assert b"".join(host.read(PurePosixPath(remote))) == local.read_bytes()
    (transport,) = (
        transport for transport in host.transports() if transport.purpose == "bulk data"
    )
    host.close()
    return transport


def test_a_large_file_goes_through_the_systems_ssh(
    server: SshAddress, local: Path, calls: Path
) -> None:
    assert arrives(server, local).chosen == "the system's ssh"
    assert len(calls.read_text().splitlines()) == 3, "there, back, and the question for the way"


def test_a_path_too_long_for_small_servers_is_read_over_our_own_line(
    server: SshAddress, local: Path, calls: Path
) -> None:
    deep = local.parent.joinpath(*["a folder with a long name " * 8] * 5)
    deep.mkdir(parents=True)
    remote = local.rename(deep / "file")
    host = SshHost(server, "my-board")
    assert b"".join(host.read(PurePosixPath(remote))) == remote.read_bytes()
    host.close()
    assert calls.read_text() == ""


def test_a_small_file_needs_no_second_login(
    server: SshAddress, tmp_path: Path, calls: Path
) -> None:
    (tmp_path / "small").write_bytes(bytes(BULK_BYTES - 1))
    host = SshHost(server, "my-board")
    host.send_file(
        tmp_path / "small", PurePosixPath(tmp_path / "x"), offset_bytes=0, sent=lambda _: None
    )
    assert b"".join(host.read(PurePosixPath(tmp_path / "x"))) == bytes(BULK_BYTES - 1)
    host.close()
    assert calls.read_text() == ""


def test_without_an_ssh_of_the_system_the_file_arrives_all_the_same(
    server: SshAddress, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(local.parent))
    transport = arrives(server, local)
    assert transport.chosen == "a channel of the same connection"
    assert "no ssh in PATH" in transport.reason


def test_what_the_systems_ssh_cannot_unlock_goes_over_our_own_line(
    server: SshAddress, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret words", "-f", str(server.key)]
    subprocess.run(words, check=True)
    monkeypatch.setenv("ARMLOAD_SSH_PASSWORD", "secret words")
    transport = arrives(server, local)
    assert transport.chosen == "a channel of the same connection"
    assert "Permission denied" in transport.reason


def test_a_server_with_another_key_than_our_line_saw_gets_nothing(
    tmp_path: Path, local: Path, home: Path
) -> None:
    with openssh(tmp_path / "first") as address:
        host = SshHost(address, "my-board")
        assert host.run("echo in").text == "in"
    (home / ".ssh" / "config").write_text("Host *\n  StrictHostKeyChecking no\n")
    (tmp_path / "second").mkdir()
    shutil.copy(tmp_path / "first" / "login", tmp_path / "second" / "login")
    shutil.copy(tmp_path / "first" / "login.pub", tmp_path / "second" / "login.pub")
    make_key(tmp_path / "second" / "host")
    with openssh(tmp_path / "second", port=address.port):
        (transport,) = (
            transport for transport in host.transports() if transport.purpose == "bulk data"
        )
        host.close()
    assert transport.chosen == "a channel of the same connection"
    assert "Host key verification failed" in transport.reason


def test_hosts_on_the_way_are_passed_and_checked_as_our_line_did(
    server: SshAddress, tmp_path: Path, home: Path, local: Path, calls: Path
) -> None:
    with openssh(tmp_path / "jump") as jump:
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{jump.port} {jump.host_key}\n")
        address = behind(jump, server, home)
        assert arrives(address, local).chosen == "the system's ssh"
        host = SshHost(address, "my-board")
        host.transports()
        assert host._system_ssh is not None
        known = Path(host._system_ssh._folder.name, "known_hosts").read_text()
        host.close()
    assert known == f"armload-0 {server.host_key}\narmload-1 {jump.host_key}\n"


def test_a_command_that_makes_the_connection_is_used(
    server: SshAddress,
    tmp_path: Path,
    home: Path,
    local: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relay = tmp_path / "the relay"
    relay.write_text(
        "import os, socket, sys, threading\n"
        "line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): line.sendall(data)\n"
        "    line.shutdown(socket.SHUT_WR)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := line.recv(65536): os.write(1, data)\n"
    )
    command = f"{sys.executable} '{relay}' %p"
    (home / ".ssh" / "config").write_text(
        f"Host behind\n  HostName nowhere.invalid\n  Port {server.port}\n  User {server.user}\n"
        f"  IdentityFile {server.key}\n  ProxyCommand {command}\n"
    )
    address = SshAddress(host="behind", host_key=server.host_key)
    assert arrives(address, local).chosen == "the system's ssh"
    relay.write_text("exit(1)\n")
    monkeypatch.setattr("armload.boards.ssh_route.CONNECT_TIMEOUT_S", 1.0)
    with pytest.raises(ConnectError, match="ProxyCommand") as caught:
        SshHost(address, "my-board").run("true")
    assert "the relay" in caught.value.message
    assert caught.value.remedy == "Correct ~/.ssh/config. To test it: ssh behind"


def test_a_line_that_breaks_or_falls_silent_is_noticed_and_the_rest_goes_over_the_next(
    server: SshAddress, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armload.boards.bulk.TRANSFER_SILENCE_S", 1.0)
    assert server.port is not None
    remote = PurePosixPath(local.with_name("remote"))
    for stays_open, words in ((False, "dropped"), (True, "stopped responding")):
        with cut_line(
            server.port, after_bytes=[float("inf"), SIZE / 2], stays_open=stays_open
        ) as port:
            host = SshHost(server.model_copy(update={"port": port}), "my-board")
            with pytest.raises(ConnectError, match=words):
                host.send_file(local, remote, offset_bytes=0, sent=lambda _: None)
            host.send_file(local, remote, offset_bytes=1_000_000, sent=lambda _: None)
            assert Path(remote).read_bytes() == local.read_bytes()
            host.close()


def test_a_file_that_is_continued_is_sent_from_there(server: SshAddress, local: Path) -> None:
    data = local.read_bytes()
    local.write_bytes(data)
    assert arrives(server, local, offset=1000).chosen == "the system's ssh"


def encryption(address: SshAddress) -> TransportChoice:
    host = SshHost(address, "my-board")
    (transport,) = (
        transport for transport in host.transports() if transport.purpose == "encryption"
    )
    host.close()
    return transport


@pytest.mark.parametrize(
    ("board", "offered", "chosen", "without_ssh"),
    [
        (cpuinfo.ODROID_M1, "", "aes128-gcm@openssh.com", "aes128-gcm@openssh.com"),
        pytest.param(
            cpuinfo.RASPBERRY_PI_4,
            "",
            "chacha20-poly1305@openssh.com",
            "aes128-gcm@openssh.com",
            marks=pytest.mark.exhaustive(covers=["armload/boards"]),
        ),
        (cpuinfo.RASPBERRY_PI_4, "aes256-ctr", "aes256-ctr", "aes256-ctr"),
    ],
    ids=["AES", "no AES", "a server with one cipher"],
)
def test_files_are_encrypted_as_suits_both_cpus_and_the_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local: Path,
    board: str,
    offered: str,
    chosen: str,
    without_ssh: str,
) -> None:
    (tmp_path / "theirs").write_text(board)
    (tmp_path / "ours").write_text(cpuinfo.X86)
    monkeypatch.setattr("armload.boards.ssh_transport._CPUINFO", tmp_path / "ours")
    with openssh(
        tmp_path / "server",
        extra=f"LogLevel DEBUG1\n{f'Ciphers {offered}' if offered else ''}\n",
        over={"/proc/cpuinfo": tmp_path / "theirs"},
    ) as address:
        assert arrives(address, local).chosen == "the system's ssh"
        log = (tmp_path / "server" / "sshd.log").read_text()
        used = re.findall(r"kex: client->server cipher: (\S+)", log)
        assert chosen in used, "the copy itself"
        assert encryption(address).chosen == chosen
        monkeypatch.setenv("PATH", str(tmp_path))
        assert encryption(address).chosen == without_ssh
        assert arrives(address, local).chosen == "a channel of the same connection"
