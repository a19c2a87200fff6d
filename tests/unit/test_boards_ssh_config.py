"""The SSH configuration means what OpenSSH says; without it, what cannot be read is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from armload.boards.board import Board
from armload.boards.connect import connect
from armload.boards.ssh_config import JumpHost, SshSettings, ignored_lines, settings_of
from armload.core.errors import DataError
from armload.core.progress import Silent

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def settings(text: str, host: str = "kitchen", port: int | None = None) -> SshSettings:
    Path("~/.ssh/config").expanduser().write_text(text)
    return settings_of(host, port, None, "my-board")


def program(folder: Path, script: str) -> str:
    (folder / "bin").mkdir(exist_ok=True)
    ssh = folder / "bin" / "ssh"
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    return str(ssh.parent)


@needs_ssh
def test_an_alias_in_an_included_file_is_found(home: Path) -> None:
    (home / "work").write_text("Host kitchen\n  HostName 192.0.2.%h.example\n  User jo\n")
    found = settings(f"Include {home}/work\n")
    assert (found.host, found.user) == ("192.0.2.kitchen.example", "jo")


@needs_ssh
def test_a_condition_that_a_command_decides_holds(home: Path) -> None:
    assert settings('Match host kitchen exec "true"\n  Port 2200\n').port == 2200
    assert settings('Match host kitchen exec "false"\n  Port 2200\n').port == 22


@needs_ssh
def test_defaults_for_all_hosts_change_nothing_for_one_that_has_none(home: Path) -> None:
    usual = settings("")
    assert usual == settings(
        "Host *\n  ControlMaster auto\n  ControlPath ~/.ssh/%C\n  ControlPersist yes\n"
        "  ForwardAgent yes\n  AddKeysToAgent yes\n  ProxyCommand none\n  HashKnownHosts yes\n"
        "  ServerAliveInterval 5\n  IdentityAgent SSH_AUTH_SOCK\n"
    )
    assert (usual.identity_files, usual.jumps, usual.identities_only) == ((), (), False)
    assert (usual.host, usual.known_hosts, usual.usual_agent) == ("kitchen", None, True)
    assert settings("Host *\n  IdentitiesOnly yes\n").identities_only


@needs_ssh
def test_tokens_and_tildes_are_expanded(home: Path) -> None:
    found = settings(
        "Host kitchen\n  HostName 192.0.2.1\n  User jo\n  ProxyCommand say %n %h:%p %r 100%%\n"
        "  IdentityFile %d/%n-key\n  IdentityFile ~/${WHICH}\n"
        f"  UserKnownHostsFile {home}/of-%n\n"
        "  HostKeyAlias oven\n  ConnectTimeout 7\n",
        port=2022,
    )
    assert found.proxy_command == "say kitchen 192.0.2.1:2022 jo 100%"
    assert found.identity_files == (f"{home}/kitchen-key", f"{home}/${{WHICH}}")
    assert found.known_hosts == f"{home}/of-kitchen"
    assert (found.host_key_alias, found.connect_timeout_s) == ("oven", 7)
    # What the board's file says is not for the configuration to say.
    assert found.port is None


@needs_ssh
def test_hosts_on_the_way_may_have_users_ports_and_ipv6_addresses() -> None:
    found = settings("Host kitchen\n  ProxyJump jo@gate:33,second,[::1]:44\n")
    assert found.jumps == (
        JumpHost(host="gate", port=33, user="jo"),
        JumpHost(host="second"),
        JumpHost(host="::1", port=44),
    )
    assert settings("Host *\n  ProxyJump none\n").jumps == ()


@needs_ssh
@pytest.mark.parametrize("address", ["::1", "fe80::1%eth0"])
def test_an_ipv6_address_is_a_host(address: str) -> None:
    assert settings("", address).host == address


@needs_ssh
@pytest.mark.parametrize(
    ("value", "usual"),
    [("~/.1password/agent.sock", False), ("/a", False), ("none", False), ("SSH_AUTH_SOCK", True)],
)
def test_the_usual_agent_is_asked_unless_there_is_another_or_none(
    value: str, *, usual: bool
) -> None:
    assert settings(f"Host *\n  IdentityAgent {value}\n").usual_agent is usual


@needs_ssh
def test_keywords_that_only_openssh_supports_are_named() -> None:
    assert (
        settings(
            "Host *\n  RevokedHostKeys none\n  AddressFamily any\n  PubkeyAuthentication yes\n"
        ).openssh_only
        == ()
    )
    assert settings(
        "Host *\n  RevokedHostKeys ~/revoked\n  BindAddress 192.0.2.1\n  AddressFamily inet6\n"
        "  PubkeyAuthentication no\n  BindInterface eth0\n"
    ).openssh_only == (
        "AddressFamily",
        "BindAddress",
        "BindInterface",
        "PubkeyAuthentication",
        "RevokedHostKeys",
    )


@needs_ssh
def test_a_malformed_line_is_named() -> None:
    with pytest.raises(DataError, match=r"config: line 2: Bad configuration option: bogus"):
        settings("Host *\n  Bogus yes\n")
    with pytest.raises(DataError, match="hostname contains invalid characters"):
        settings("", "-oProxyCommand=x")


def test_it_is_asked_once_for_several_connections(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = f"echo x >>{home}/asked; printf 'hostname h\\nport 22\\nuser jo\\n'"
    monkeypatch.setenv("PATH", program(home, counted))
    assert {settings_of("kitchen", None, None, "my-board").host for _ in range(3)} == {"h"}
    assert (home / "asked").read_text() == "x\n"
    assert settings_of("kitchen", 2200, None, "my-board").port is None
    assert (home / "asked").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    "script",
    ["echo 'unknown option -- G' >&2; exit 255", "echo 'Usage: ssh [options] host' >&2; exit 1"],
)
def test_an_ssh_without_that_option_is_not_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("PATH", program(home, script))
    found = settings("Host kitchen\n  HostName 192.0.2.1\n  ProxyJump a,b\n  IdentityFile ~/k\n")
    assert found.host == "192.0.2.1"
    assert [jump.host for jump in found.jumps] == ["a", "b"]
    assert found.identity_files == (f"{home}/k",)


def test_without_ssh_what_cannot_be_read_is_named_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home / "nothing"))
    # Debian 13's file of the system includes others.
    monkeypatch.setattr("armload.boards.ssh_config._FILES", ("~/.ssh/config",))
    (home / ".ssh" / "work").touch()
    text = "Include work\nHost kitchen\n  HostName 192.0.2.1\n  IdentityAgent ~/a\n  User jo\n"
    assert settings(text).host == "192.0.2.1"
    named = [f"~/.ssh/config, line {line}" for line in ("1: Include work", "4: IdentityAgent ~/a")]
    assert ignored_lines() == named

    said: list[str] = []

    class Heard(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    board = Board.model_validate(
        {
            "name": "kitchen",
            "target": "rk3568",
            "reach": {"kind": "ssh", "host": "kitchen"},
            "workdir": "/w",
        }
    )
    for _ in range(2):
        connect(board, Heard()).close()
    assert [line.split(" (ignored")[0] for line in said] == named
