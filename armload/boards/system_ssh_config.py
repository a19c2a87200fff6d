"""A configuration for the system's ``ssh`` that leads where an open connection leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armload.boards.bulk import NotStartedError
from armload.boards.failures import CONNECT_TIMEOUT_S

if TYPE_CHECKING:
    import fabric


_FOR_ALL = """Host *
  BatchMode yes
  Ciphers {ciphers}
  ClearAllForwardings yes
  Compression no
  ConnectTimeout {timeout_s:.0f}
  ControlMaster no
  ControlPath none
  ForwardAgent no
  GlobalKnownHostsFile /dev/null
  LogLevel ERROR
  PermitLocalCommand no
  RequestTTY no
  ServerAliveCountMax 4
  ServerAliveInterval 5
  StrictHostKeyChecking yes
  UpdateHostKeys no
  UserKnownHostsFile {known_hosts}
"""


def write_config(
    hosts: Sequence[fabric.Connection], folder: Path, ciphers: Sequence[str]
) -> tuple[Path, str]:
    """Write the configuration and the hosts' keys; return its path and what it calls the first.

    The same hosts, users and keys, and of each host only the very key that was checked. It never
    asks.

    Args:
        hosts: open: the board, then those on the way, nearest first.
        ciphers: for the board, in order of preference. The whole list, because clients before 8.0
            know no way to only put one in front.

    Raises:
        NotStartedError: a name or path cannot be written in it.
    """
    parts = "".join(_host_parts(hosts))
    keys = [host.transport.get_remote_server_key() for host in hosts]
    known_hosts, config = folder / "known_hosts", folder / "config"
    known_hosts.write_text(
        "".join(
            f"{_alias(place)} {key.get_name()} {key.get_base64()}\n"
            for place, key in enumerate(keys)
        ),
        encoding="ascii",
    )
    shared = _FOR_ALL.format(
        ciphers=",".join(ciphers), timeout_s=CONNECT_TIMEOUT_S, known_hosts=_path(str(known_hosts))
    )
    config.write_text(parts + shared, encoding="utf-8")
    return config, _alias(0)


def _alias(place: int) -> str:
    return f"armload-{place}"


def _host_parts(hosts: Sequence[fabric.Connection]) -> Iterator[str]:
    for place, host in enumerate(hosts):
        yield f"Host {_alias(place)}\n"
        yield f"  HostName {_word(host.host)}\n  Port {host.port}\n  User {_word(host.user)}\n"
        yield f"  HostKeyAlias {_alias(place)}\n"
        for path in _key_files(host):
            yield f"  IdentityFile {_path(path)}\n"
        if not host.connect_kwargs["allow_agent"]:
            yield "  IdentitiesOnly yes\n"
        if place + 1 < len(hosts):
            yield f"  ProxyJump {_alias(place + 1)}\n"
        elif "proxycommand" in host.ssh_config:
            command = host.ssh_config["proxycommand"].replace("%", "%%")
            yield f"  ProxyCommand {command}\n"


def _key_files(host: fabric.Connection) -> Iterator[str]:
    # Naming one makes ssh ignore the usual ones, which were tried for the open connection, too.
    yield from host.connect_kwargs["key_filename"]
    for kind in ("rsa", "ecdsa", "ed25519"):
        usual = Path.home() / ".ssh" / f"id_{kind}"
        if usual.is_file():
            yield str(usual)


def _path(path: str) -> str:
    return f'"{_plain(path, also_not=chr(34))}"'


def _word(word: str) -> str:
    return _plain(word, also_not=" \t\"'")


def _plain(text: str, *, also_not: str) -> str:
    if any(letter in "\\\n\r" + also_not for letter in text):
        raise NotStartedError(f"{text!r} cannot be written in ssh's configuration")
    return text.replace("%", "%%")
