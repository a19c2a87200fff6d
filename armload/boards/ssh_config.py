"""What the SSH configuration says of a host: as OpenSSH itself reads it, where it is installed."""

from __future__ import annotations

import getpass
import glob
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from armload.boards.failures import CONNECT_TIMEOUT_S, place_of_reach
from armload.core.errors import ConnectError, DataError
from armload.core.files import unreadable
from armload.core.shell import join
from armload.core.values import Value

_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")


class JumpHost(Value):
    """A host on the way, as ``ProxyJump`` names it."""

    host: str
    port: int | None = None
    user: str | None = None


class SshSettings(Value):
    """What the configuration says of a host; tokens and ``~`` are expanded.

    Attributes:
        host: the name or address to connect to.
        port, user, connect_timeout_s: none where it says nothing.
        identity_files: none for the usual ones.
        identities_only: the agent's keys are not to be offered.
        usual_agent: the agent to ask is that of ``SSH_AUTH_SOCK``: not another, and not none.
        jumps: the hosts on the way, the nearest to this machine first.
        proxy_command: a line for the person's shell.
        host_key_alias: the name under which known_hosts files keep the key.
        known_hosts: ``UserKnownHostsFile``, when it is not the usual one.
        openssh_only: the keywords set for it that Python's client does not support.
    """

    host: str
    port: int | None = None
    user: str | None = None
    connect_timeout_s: int | None = None
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    usual_agent: bool = True
    jumps: tuple[JumpHost, ...] = ()
    proxy_command: str | None = None
    host_key_alias: str | None = None
    known_hosts: str | None = None
    openssh_only: tuple[str, ...] = ()


# Several connections of one command ask for the same hosts; a later one may be made from another
# network, for which a "Match exec" decides anew.
_FRESH_S = 10.0
_read: dict[object, tuple[float, SshSettings]] = {}


def settings_of(host: str, port: int | None, user: str | None, board_name: str) -> SshSettings:
    """Read the configuration for a host.

    Args:
        port, user: if decided already; ``Match`` and tokens see them.

    Raises:
        ConnectError: ``ssh -G`` did not come to an end.
    """
    program = shutil.which("ssh")
    key = (host, port, user, program, os.environ.get("SSH_AUTH_SOCK"), *map(_state, _FILES))
    read_at, settings = _read.get(key, (0.0, None))
    if settings is None or time.monotonic() - read_at > _FRESH_S:
        values = None
        if program is not None:
            values = _by_openssh(program, host, port, user, board_name)
        if values is None:
            values = _by_paramiko(host, board_name)
        settings = _settings(values, host, port, user)
        _read[key] = (time.monotonic(), settings)
    return settings


def config_words() -> list[str]:
    """Return the options with which ``ssh`` reads the configuration that is read here.

    It goes by the password file, everything else of a person's, and of armload's, by ``HOME``.
    """
    if Path.home() == Path(pwd.getpwuid(os.getuid()).pw_dir):
        return []
    path = Path(_FILES[0]).expanduser()
    return ["-F", str(path) if path.is_file() else "none"]


# What changes where a connection leads or what opens it.
_NOT_READ = re.compile(
    r"\s*(Include|IdentityAgent(?!\s+none\s*$)|CertificateFile|PKCS11Provider"
    r"|SecurityKeyProvider|KnownHostsCommand)\b.*",
    re.IGNORECASE,
)


def ignored_lines() -> list[str]:
    """Return what the configuration says that only OpenSSH can read, where that is missing."""
    if shutil.which("ssh") is not None:
        return []
    return [
        f"{name}, line {number}: {line.strip()}"
        for name in _FILES
        for number, line in enumerate(_lines(Path(name).expanduser()), 1)
        if _NOT_READ.match(line) and not _includes_nothing(line)
    ]


def _includes_nothing(line: str) -> bool:
    # Distributions include a folder that is empty.
    word, *patterns = line.split()
    return word.lower() == "include" and not any(
        glob.glob(str(Path("~/.ssh").expanduser() / Path(pattern).expanduser()))  # noqa: PTH207
        for pattern in patterns
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _state(name: str) -> tuple[str, int, int] | None:
    path = Path(name).expanduser()
    try:
        found = path.stat()
    except OSError:
        return None
    return (str(path), found.st_mtime_ns, found.st_size)


_OPENSSH_ONLY = {
    "AddressFamily": ("any",),
    "BindAddress": (),
    "BindInterface": (),
    "PubkeyAuthentication": ("yes", "true", "unbound", "host-bound"),
    "RevokedHostKeys": ("none",),
}
"""Keywords that Python's client does not support, with the values that it need not know."""

Values = Mapping[str, Sequence[str]]


def _by_openssh(
    program: str, host: str, port: int | None, user: str | None, board_name: str
) -> Values | None:
    """Return what ``ssh -G`` prints; none where ``ssh`` knows no such option."""
    words = [program, *config_words(), "-T", "-G"]
    words += [] if port is None else ["-p", str(port)]
    words += [] if user is None else ["-l", user]
    try:
        done = subprocess.run(
            [*words, "--", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=2 * CONNECT_TIMEOUT_S,
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        raise ConnectError(
            f"{board_name}: the SSH configuration could not be read within "
            f"{2 * CONNECT_TIMEOUT_S:g} s.",
            f"A 'Match exec' may hang, or a name server may not answer. Try: ssh -G {join([host])}",
        ) from error
    values: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name, []).append(value)
    if done.returncode == 0 and "hostname" in values:
        return values
    complaint = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == 0 or "option -- " in complaint or "sage:" in complaint:
        return None
    first = complaint.partition("\n")[0].rstrip(".")
    raise _unusable(board_name, first or f"ssh -G ended with status {done.returncode}")


def _by_paramiko(host: str, board_name: str) -> Values:
    import paramiko

    config = paramiko.SSHConfig()
    for name in _FILES:
        path = Path(name).expanduser()
        if path.is_file():
            try:
                with path.open(encoding="utf-8") as file:
                    config.parse(file)
            except OSError as error:
                raise unreadable(path, error) from error
            except (paramiko.SSHException, ValueError) as error:
                raise _unusable(board_name, str(error)) from error
    try:
        found = config.lookup(host)
    except (paramiko.SSHException, ValueError) as error:
        raise _unusable(board_name, str(error)) from error
    return {
        name: [value] if isinstance(value, str) else list(value)
        for name, value in found.items()
        if value is not None
    }


def _unusable(board_name: str, complaint: str) -> DataError:
    return DataError(
        f"{board_name}: the SSH configuration cannot be used: {complaint}.",
        f"Correct ~/.ssh/config, or {place_of_reach(board_name, 'host')}.",
    )


def _settings(values: Values, host: str, port: int | None, user: str | None) -> SshSettings:
    def said(name: str) -> str | None:
        return next(iter(values.get(name, ())), None)

    def first(name: str) -> str | None:
        value = said(name)
        return None if value is None or value.lower() == "none" else value

    name = first("hostname") or host
    said_port, said_user = first("port"), first("user")
    alias = first("hostkeyalias")
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": name,
        "i": str(os.getuid()),
        "k": alias or host,
        "l": socket.gethostname(),
        "L": socket.gethostname().partition(".")[0],
        "n": host,
        "p": str(port or said_port or 22),
        "r": user or said_user or getpass.getuser(),
        "u": getpass.getuser(),
    }
    agent = said("identityagent")
    timeout = first("connecttimeout")
    command = first("proxycommand")
    return SshSettings(
        host=name,
        port=None if port is not None or said_port is None else int(said_port),
        user=None if user is not None else said_user,
        connect_timeout_s=int(timeout) if timeout and timeout.isdecimal() else None,
        identity_files=tuple(
            os.path.expanduser(os.path.expandvars(_expanded(file, tokens)))  # noqa: PTH111
            for file in _configured_files(values.get("identityfile", ()))
        ),
        identities_only=(first("identitiesonly") or "no").lower() in ("yes", "true"),
        usual_agent=agent
        in (None, "SSH_AUTH_SOCK", "$SSH_AUTH_SOCK", os.environ.get("SSH_AUTH_SOCK")),
        jumps=tuple(_jumps(first("proxyjump") or "")),
        proxy_command=None if command is None else _expanded(command, tokens),
        host_key_alias=alias,
        known_hosts=_known_hosts(first("userknownhostsfile"), tokens),
        openssh_only=tuple(
            keyword
            for keyword, supported in _OPENSSH_ONLY.items()
            if (value := said(keyword.lower())) and value.lower() not in supported
        ),
    )


def _expanded(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub("%(.)", lambda found: tokens.get(found[1], found[0]), text)


_USUAL_FILE = re.compile(r"~/\.ssh/id_\w+")


def _configured_files(files: Sequence[str]) -> Sequence[str]:
    # Without any in the configuration, ssh -G prints those of every kind of key.
    if "~/.ssh/id_ed25519_sk" in files and all(map(_USUAL_FILE.fullmatch, files)):
        return ()
    return [file for file in files if file.lower() != "none"]


def _known_hosts(files: str | None, tokens: Mapping[str, str]) -> str | None:
    usual = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "known_hosts")
    if files is None or files == f"{usual} {usual}2":
        return None
    return _expanded(files, tokens)


_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>.+)@)?(?:\[(?P<six>[^]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?"
)


def _jumps(text: str) -> Iterator[JumpHost]:
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = _JUMP.fullmatch(word)
        if found is None:
            yield JumpHost(host=word)
        else:
            port = found["port"]
            yield JumpHost(
                host=found["six"] or found["host"],
                port=int(port) if port else None,
                user=found["user"],
            )
