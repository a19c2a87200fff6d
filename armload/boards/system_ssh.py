"""The system's own ``ssh``, configured as our connection: for bulk data and forwarded ports.

It encrypts two to three times as fast as Python does. It gets a configuration and a file of host
keys that are made from an open connection: the same hosts, users and keys, and of each host only
the very key that was checked then. It never asks. Where ``ssh`` itself holds the connection, these
are sessions of that.

It listens on a socket file, not on the local port: that stays with armload, whoever waits for it
while ``ssh`` logs in anew.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armload.boards.board import SshAddress
from armload.boards.bulk import NotStartedError, StreamProcess
from armload.boards.failures import CONNECT_TIMEOUT_S, FORBIDDEN_FORWARDING, translated
from armload.boards.forward import Endpoint, Tunnel, pass_on
from armload.boards.framing import marked, shell_line
from armload.boards.ssh_connection import AnyConnection, SshConnection, open_connection
from armload.boards.ssh_master import NAME, MasterConnection, cipher_in
from armload.core.errors import BoardError, ConnectError

if TYPE_CHECKING:
    import fabric


_BROKEN = 255
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


class SystemSsh:
    """``ssh`` to where an open connection leads.

    Args:
        ciphers: for the board itself, in order of preference. The whole list, because clients
            before 8.0 know no way to only put one in front.

    Raises:
        NotStartedError: there is no ``ssh``, or no way to tell it where to go.
        ConnectError: one of the connections has broken.
    """

    def __init__(self, connection: AnyConnection, board_name: str, ciphers: Sequence[str]) -> None:
        program = shutil.which("ssh")
        if program is None:
            raise NotStartedError("no ssh in PATH")
        self._board_name = board_name
        self._connection = connection
        if isinstance(connection, MasterConnection):
            self._folder = tempfile.TemporaryDirectory(prefix="armload-ssh-")
            self._words, self._name = connection.words, NAME
            return
        hosts = connection.hosts
        with translated(board_name):
            host_parts = "".join(_host_parts(hosts))
            keys = [host.transport.get_remote_server_key() for host in hosts]
            known = "".join(
                f"{_alias(place)} {key.get_name()} {key.get_base64()}\n"
                for place, key in enumerate(keys)
            )
        self._folder = tempfile.TemporaryDirectory(prefix="armload-ssh-")
        folder = Path(self._folder.name)
        config = folder / "config"
        self._words, self._name = (program, "-F", str(config)), _alias(0)
        known_hosts = folder / "known_hosts"
        known_hosts.write_text(known, encoding="ascii")
        shared = _FOR_ALL.format(
            ciphers=",".join(ciphers),
            timeout_s=CONNECT_TIMEOUT_S,
            known_hosts=_path(str(known_hosts)),
        )
        config.write_text(host_parts + shared, encoding="utf-8")

    def carrier(self, command: str) -> StreamProcess:
        """Return what carries bytes to or from a command on the board."""
        return self._carrier(command)

    def forwarder(self, port: int) -> tuple[Path, StreamProcess]:
        """Return a local socket, and what makes it lead to a port on the board's loopback.

        It does so while its command runs, which ends when its standard input does.
        """
        path = Path(self._folder.name, "forward")
        return path, self._forwarding("-L", f"{path}:127.0.0.1:{port}")

    def reverse_forwarder(self, port: int, local_port: int) -> StreamProcess:
        """Return what makes a port of the board's loopback lead to one of this machine's.

        It does so as long as what ``forwarder`` returns.
        """
        return self._forwarding("-R", f"127.0.0.1:{port}:127.0.0.1:{local_port}")

    def _forwarding(self, *words: str) -> StreamProcess:
        options = ("ClearAllForwardings=no", "ExitOnForwardFailure=yes")
        spelt = [word for option in options for word in ("-o", option)]
        return self._carrier("exec cat", *spelt, *words)

    def negotiated_cipher(self) -> str:
        """Log in for a trial; return the cipher that was agreed on, empty where nobody tells.

        Raises:
            NotStartedError: it cannot log in.
        """
        debug = self._carrier("true", "-o", "LogLevel=DEBUG1").check()
        if isinstance(self._connection, MasterConnection):
            return self._connection.cipher
        return cipher_in(debug)

    def _carrier(self, command: str, *options: str) -> StreamProcess:
        line = shell_line(marked(command))
        return StreamProcess(
            [*self._words, *options, "-T", self._name, line],
            self._board_name,
            begin_within_s=2 * CONNECT_TIMEOUT_S,
            broken_status=_BROKEN,
        )

    def close(self) -> None:
        self._folder.cleanup()


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


def open_tunnel(address: SshAddress, board_name: str, port: int, ciphers: Sequence[str]) -> Tunnel:
    """Log in and find the best way to a port of a board.

    Args:
        port: on the board's loopback.
        ciphers: for the system's ssh, in order of preference.
    """
    with contextlib.ExitStack() as stack:
        connection = open_connection(address, board_name)
        stack.callback(connection.close)
        # Only this tells that it is forbidden: ssh says so to each client, not to us.
        connection.check_forwarding(port)
        try:
            tunnel = _BySystemSsh(connection, board_name, port, ciphers)
        except NotStartedError as error:
            if isinstance(connection, MasterConnection):
                raise ConnectError(f"{board_name}: ssh cannot forward a port: {error}.") from error
            stack.pop_all()
            return _ByConnection(connection, port)
        if isinstance(connection, MasterConnection):
            tunnel.keep(stack.pop_all())
        return tunnel


class _ByConnection:
    def __init__(self, connection: SshConnection, port: int) -> None:
        self._connection = connection
        self._port = port

    def dial(self) -> Endpoint | None:
        return self._connection.channel_to_port(self._port)

    def close(self) -> None:
        self._connection.close()


class _BySystemSsh:
    def __init__(
        self, connection: AnyConnection, board_name: str, port: int, ciphers: Sequence[str]
    ) -> None:
        self._name = board_name
        self._kept = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            ssh = SystemSsh(connection, board_name, ciphers)
            stack.callback(ssh.close)
            self._path, carrier = ssh.forwarder(port)
            # With its own input it also ends when armload is killed.
            stack.enter_context(carrier.started(subprocess.PIPE))
            self._started = stack.pop_all()

    def keep(self, connection: contextlib.ExitStack) -> None:
        """Close a connection that this is a part of when this is closed."""
        self._kept = connection

    def dial(self) -> Endpoint | None:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(str(self._path))
        except OSError as error:
            end.close()
            raise ConnectError(f"{self._name}: the connection to the board dropped.") from error
        return end

    def close(self) -> None:
        self._started.close()
        self._kept.close()


@contextlib.contextmanager
def open_reverse_tunnel(
    address: SshAddress, board_name: str, port: int, local_port: int, ciphers: Sequence[str]
) -> Iterator[None]:
    """Log in, and let a port of the board's loopback lead here until the block ends.

    Args:
        port: on the board, where nothing listens.
        local_port, ciphers: of this machine; for the system's ssh.
    """
    with contextlib.ExitStack() as stack:
        connection = open_connection(address, board_name)
        stack.callback(connection.close)
        try:
            ssh = SystemSsh(connection, board_name, ciphers)
            stack.callback(ssh.close)
            forwarder = ssh.reverse_forwarder(port, local_port)
            stack.enter_context(forwarder.started(subprocess.PIPE))
        except NotStartedError as error:
            if isinstance(connection, MasterConnection):
                raise BoardError(
                    f"{board_name}: the board cannot reach ports of this machine: {error}.",
                    FORBIDDEN_FORWARDING,
                ) from error
            stack.enter_context(_by_connection_back(connection, board_name, port, local_port))
        yield


@contextlib.contextmanager
def _by_connection_back(
    connection: SshConnection, board_name: str, port: int, local_port: int
) -> Iterator[None]:
    """Do it over an open connection, in Python."""
    import paramiko

    def passed_on(channel: paramiko.Channel, _origin: object, _server: object) -> None:
        threading.Thread(target=pass_on, args=(channel, local_port), daemon=True).start()

    transport = connection.hosts[0].transport
    try:
        transport.request_port_forward("127.0.0.1", port, passed_on)
    except paramiko.SSHException as error:
        raise BoardError(
            f"{board_name}: the board's SSH server forbids port forwarding ({error}).",
            FORBIDDEN_FORWARDING,
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            transport.cancel_port_forward("127.0.0.1", port)
