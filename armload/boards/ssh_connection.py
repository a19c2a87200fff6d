"""Opening SSH connections, and what an open one can do."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from armload.boards.board import SshAddress
from armload.boards.bulk import NotStartedError
from armload.boards.failures import (
    CONNECT_TIMEOUT_S,
    FORBIDDEN_FORWARDING,
    PASSWORD_VARIABLE,
    DisconnectedError,
    LoginRefusedError,
    UnknownKeyError,
    UnsupportedKeywordError,
    UnsupportedLoginError,
    explained,
    translated,
)
from armload.boards.forward import Endpoint, Tunnel, pass_on
from armload.boards.host import TransportChoice
from armload.boards.known_keys import pinned_line
from armload.boards.ssh_config import config_words
from armload.boards.ssh_master import MasterConnection, cipher_in
from armload.boards.ssh_route import drop_keys, hops_of, known_password, prepared, require_supported
from armload.boards.ssh_transport import CipherChoice, SshTransport
from armload.boards.system_ssh_config import write_config
from armload.core.errors import BoardError, ConnectError
from armload.core.values import Value

if TYPE_CHECKING:
    import fabric
    import paramiko

DEAD_AFTER_MS = 20_000
KEEPALIVE_S = 5
_LOGIN_ATTEMPTS = 4
"""With a server that refuses or hangs up."""
# RFC 4254, 5.1: administratively prohibited, and the unknown channel type of servers built without.
_FORBIDDEN = (1, 3)

Done = TypeVar("Done")

logging.getLogger("paramiko").addHandler(logging.NullHandler())


class ServerKey(Value):
    """The key that a server showed.

    Attributes:
        host: its name or address after the SSH configuration was applied.
        port: its TCP port.
        line: ``ssh-ed25519 AAAA…``.
        fingerprint: ``SHA256:…``, as OpenSSH prints it.
    """

    host: str
    port: int
    line: str
    fingerprint: str

    @property
    def kind(self) -> str:
        return self.line.split(" ", 1)[0]


class SshConnection:
    """An ``SshTransport`` by Python's client."""

    carries_ssh = False
    commands = TransportChoice(
        purpose="commands", chosen="SSH exec", reason="the board is reached by SSH"
    )

    def __init__(self, connection: fabric.Connection, board_name: str) -> None:
        self._connection = connection
        self._board_name = board_name

    @property
    def hosts(self) -> tuple[fabric.Connection, ...]:
        """The open connections: to the board, then to the hosts on the way, nearest first."""
        return (self._connection, *hops_of(self._connection))

    @property
    def alive(self) -> bool:
        transport = self._connection.transport
        return bool(transport is not None and transport.is_active())

    def bulk(self, why_no_ssh: str) -> TransportChoice:
        chosen = "the system's ssh"
        why = "it can log in the same way, and encrypts faster than Python"
        if why_no_ssh:
            chosen = "a channel of the same connection"
            why = f"the system's ssh cannot be used: {why_no_ssh}"
        return TransportChoice(purpose="bulk data", chosen=chosen, reason=why)

    def encryption(
        self, negotiated: str, ciphers: CipherChoice, why_no_ssh: str
    ) -> TransportChoice:
        if why_no_ssh:
            negotiated = str(self._connection.transport.local_cipher)
        return ciphers.transport(negotiated, by_program=not why_no_ssh)

    def ssh_line(self, folder: Path, ciphers: Sequence[str]) -> tuple[tuple[str, ...], str]:
        program = shutil.which("ssh")
        if program is None:
            raise NotStartedError("no ssh in PATH")
        with translated(self._board_name):
            config, name = write_config(self.hosts, folder, ciphers)
        return (program, "-F", str(config)), name

    def ssh_cipher(self, debug: bytes) -> str:
        return cipher_in(debug)

    def tunnel(self, port: int, why_no_ssh: str) -> Tunnel:
        del why_no_ssh
        return _Tunnel(self, port)

    @contextlib.contextmanager
    def reverse_tunnel(self, port: int, local_port: int, why_no_ssh: str) -> Iterator[None]:
        import paramiko

        del why_no_ssh

        def passed_on(channel: paramiko.Channel, _origin: object, _server: object) -> None:
            threading.Thread(target=pass_on, args=(channel, local_port), daemon=True).start()

        transport = self._connection.transport
        try:
            transport.request_port_forward("127.0.0.1", port, passed_on)
        except paramiko.SSHException as error:
            raise BoardError(
                f"{self._board_name}: the board's SSH server forbids port forwarding ({error}).",
                FORBIDDEN_FORWARDING,
            ) from error
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                transport.cancel_port_forward("127.0.0.1", port)

    def channel(self) -> paramiko.Channel:
        with translated(self._board_name):
            channel: paramiko.Channel = self._connection.transport.open_session(
                timeout=CONNECT_TIMEOUT_S
            )
            return channel

    def channel_to_port(self, port: int) -> paramiko.Channel | None:
        """Connect to a port on the board's loopback; return none when nothing listens there."""
        import paramiko

        with translated(self._board_name):
            try:
                channel: paramiko.Channel = self._connection.transport.open_channel(
                    "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S
                )
            except paramiko.SSHException as error:
                if isinstance(error, paramiko.ChannelException) and error.code in _FORBIDDEN:
                    raise BoardError(
                        f"{self._board_name}: the board's SSH server forbids port forwarding "
                        f"({error.text}).",
                        FORBIDDEN_FORWARDING,
                    ) from error
                # Of several threads that are refused at once, only one gets the reason.
                if not self.alive:
                    raise
                return None
            return channel

    def check(self) -> None:
        self.channel().close()

    def check_forwarding(self, port: int) -> None:
        channel = self.channel_to_port(port)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """End the connection, and those to the hosts it jumps over."""
        import paramiko

        for connection in self.hosts:
            transport = connection.client.get_transport()
            with contextlib.suppress(Exception):
                connection.client.close()
            if transport is not None:
                sock: object = transport.sock
                if isinstance(sock, paramiko.ProxyCommand):  # paramiko leaves it running
                    transport.join(CONNECT_TIMEOUT_S)
                    sock.process.kill()
                    # What a shell started for it may live on, and ends with its input.
                    for pipe in (sock.process.stdin, sock.process.stdout, sock.process.stderr):
                        with contextlib.suppress(OSError, ValueError):
                            if pipe is not None:
                                pipe.close()
                    sock.process.wait()


class _Tunnel:
    def __init__(self, connection: SshConnection, port: int) -> None:
        self._connection = connection
        self._port = port

    def dial(self) -> Endpoint | None:
        return self._connection.channel_to_port(self._port)

    def close(self) -> None:
        self._connection.close()


_SAID_ALREADY = ("Permission denied", "Host key verification failed")
_TAKES_PASSWORD = re.compile(r"denied \(.*(password|keyboard-interactive)")
# Asking these again would only count as another refused login there.
_beyond_python: dict[SshAddress, str] = {}


def open_connection(address: SshAddress, board_name: str) -> SshTransport:
    """Connect, check the server's key, and log in; a server that hangs up is tried again."""
    if address in _beyond_python:
        with contextlib.suppress(NotStartedError):
            return _by_system_ssh(address, board_name, _beyond_python[address])
    try:
        return _insistently(lambda: _opened(address, board_name))
    except UnsupportedLoginError as error:
        try:
            connection = _by_system_ssh(address, board_name, error.message)
        except NotStartedError as refusal:
            if isinstance(error, UnsupportedKeywordError):
                raise _not_by_ssh(error, str(refusal), board_name) from refusal
            is_said = any(words in str(refusal) for words in _SAID_ALREADY)
            if not (is_said or isinstance(error, UnknownKeyError)):
                error.remedy += f"\nThe system's ssh cannot log in either: {refusal}."
            raise error from refusal
        _beyond_python[address] = error.message
        return connection


def _not_by_ssh(error: UnsupportedKeywordError, refusal: str, board_name: str) -> ConnectError:
    """Return the error of a login that is for the system's ``ssh`` alone."""
    if shutil.which("ssh") is None:
        return error
    message = f"{board_name}: the system's ssh cannot log in: {refusal}."
    remedy = f"{error.message} Log in with ssh first, which also asks about an unknown host key."
    if not any(words in refusal for words in _SAID_ALREADY):
        return ConnectError(message, remedy)
    would_do = known_password() is None and bool(_TAKES_PASSWORD.search(refusal))
    hint = f" For password login, put the password in {PASSWORD_VARIABLE}." if would_do else ""
    return LoginRefusedError(message, remedy + hint, password_would_do=would_do)


def _by_system_ssh(address: SshAddress, board_name: str, why: str) -> MasterConnection:
    hop = prepared(address, board_name)
    options = config_words()
    if options and "userknownhostsfile" not in hop.ssh_config:
        options += ["-o", f"UserKnownHostsFile={Path.home()}/.ssh/known_hosts"]
    if address.key is not None:
        options += ["-i", str(address.key.expanduser())]
    return MasterConnection(
        (*options, "-p", str(hop.port), "-l", hop.user, "--", hop.original_host),
        address.host_key or pinned_line(hop.host, hop.port),
        known_password(),
        board_name,
        why,
    )


def shown_key(address: SshAddress, board_name: str) -> ServerKey:
    """Ask a server for its key without logging in; one that hangs up is asked again."""
    return _insistently(lambda: _shown(address, board_name))


def _insistently(attempt: Callable[[], Done]) -> Done:
    """Try for a second or so: nothing has been asked of a board before the login is done."""
    import tenacity

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(DisconnectedError),
        wait=tenacity.wait_exponential(multiplier=0.1, exp_base=3),
        stop=tenacity.stop_after_attempt(_LOGIN_ATTEMPTS),
        reraise=True,
    )(attempt)


def _shown(address: SshAddress, board_name: str) -> ServerKey:
    import paramiko

    class KeyShown(Exception):  # noqa: N818 - it carries an answer
        def __init__(self, key: paramiko.PKey) -> None:
            super().__init__()
            self.key = key

    class Show(paramiko.MissingHostKeyPolicy):
        def missing_host_key(
            self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey
        ) -> None:
            raise KeyShown(key)

    connection = prepared(address, board_name)
    connection.client.set_missing_host_key_policy(Show())
    drop_keys(connection)
    try:
        _open(connection, board_name)
    except KeyShown as shown:
        return ServerKey(
            host=connection.host,
            port=connection.port,
            line=f"{shown.key.get_name()} {shown.key.get_base64()}",
            fingerprint=shown.key.fingerprint,
        )
    finally:
        SshConnection(connection, board_name).close()
    raise ConnectError(f"{board_name}: {connection.host} presented no host key.")


def _opened(address: SshAddress, board_name: str) -> SshConnection:
    connection = prepared(address, board_name)
    require_supported(connection, board_name)
    try:
        _open(connection, board_name)
    except BaseException:
        SshConnection(connection, board_name).close()
        raise
    transport = connection.transport
    transport.set_keepalive(KEEPALIVE_S)
    # Linux only; elsewhere a dead connection is noticed by the caller's time-outs.
    if isinstance(transport.sock, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
    return SshConnection(connection, board_name)


def _open(connection: fabric.Connection, board_name: str) -> None:
    # Hop by hop, so that a failure names the hop at which it happened.
    for hop in reversed([connection, *hops_of(connection)]):
        with explained(hop, board_name, is_board=hop is connection):
            hop.open()
