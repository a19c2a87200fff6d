"""Opening SSH lines: configuration, keys of both sides, and what can go wrong on the way.

The one file that imports Fabric and paramiko; their exceptions end here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armload.boards.address import SshAddress
from armload.boards.known_keys import known_keys_name, persons_key_files, pinned_keys_file
from armload.core.errors import ConnectError
from armload.core.values import Value

if TYPE_CHECKING:
    import fabric
    import paramiko

PASSWORD_VARIABLE = "ARMLOAD_SSH_PASSWORD"  # noqa: S105 - the variable's name
CONNECT_TIMEOUT_S = 10.0
DEAD_AFTER_MS = 20_000
KEEPALIVE_S = 5

logging.getLogger("paramiko").addHandler(logging.NullHandler())


class LoginRefusedError(ConnectError):
    """The server is the right one and lets nobody in with the keys at hand.

    Attributes:
        password_would_do: the server takes passwords, and none was given.
    """

    def __init__(self, message: str, remedy: str, *, password_would_do: bool) -> None:
        super().__init__(message, remedy)
        self.password_would_do = password_would_do


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
        """Such as ``ssh-ed25519``."""
        return self.line.split(" ", 1)[0]


class Line:
    """An open, authenticated connection."""

    def __init__(self, connection: fabric.Connection, board_name: str) -> None:
        self._connection = connection
        self._board_name = board_name

    @property
    def alive(self) -> bool:
        """Whether nothing is known yet that ended it."""
        transport = self._connection.transport
        return bool(transport is not None and transport.is_active())

    def channel(self) -> paramiko.Channel:
        """Open a channel for one command.

        Raises:
            ConnectError: the line has broken.
        """
        with translated(self._board_name):
            channel: paramiko.Channel = self._connection.transport.open_session(
                timeout=CONNECT_TIMEOUT_S
            )
            return channel

    def close(self) -> None:
        """End the connection, and those to the hosts it jumps over."""
        connection = self._connection
        while connection is not None and not isinstance(connection, str):
            with contextlib.suppress(Exception):
                connection.client.close()
            connection = connection.gateway


@contextlib.contextmanager
def translated(board_name: str) -> Iterator[None]:
    """Turn what paramiko and the sockets raise for a line that broke into ``ConnectError``."""
    import paramiko

    try:
        yield
    except TimeoutError as error:
        raise ConnectError(f"{board_name}: the board has gone silent.") from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        detail = f": {error}" if str(error) else ""
        raise ConnectError(f"{board_name}: the line to the board broke{detail}.") from error


def open_line(address: SshAddress, board_name: str) -> Line:
    """Connect, check the server's key, and log in.

    Raises:
        LoginRefusedError: the keys at hand do not open it.
        ConnectError: anything else; says which.
    """
    connection = _prepared(address, board_name, paramiko_policy=_refuse_unknown(board_name))
    try:
        with _explained(connection, board_name):
            connection.open()
    except BaseException:
        Line(connection, board_name).close()
        raise
    transport = connection.transport
    transport.set_keepalive(KEEPALIVE_S)
    _notice_silence(transport.sock)
    return Line(connection, board_name)


def shown_key(address: SshAddress, board_name: str) -> ServerKey:
    """Ask a server for its key without logging in.

    Raises:
        ConnectError: it does not answer.
    """
    import paramiko

    class Shown(Exception):  # noqa: N818 - it carries an answer
        def __init__(self, key: paramiko.PKey) -> None:
            super().__init__()
            self.key = key

    class Show(paramiko.MissingHostKeyPolicy):
        def missing_host_key(
            self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey
        ) -> None:
            raise Shown(key)

    connection = _prepared(address, board_name, paramiko_policy=Show())
    connection.client.get_host_keys().clear()
    connection.client._system_host_keys.clear()  # noqa: SLF001 - has no public way to be emptied
    try:
        with _explained(connection, board_name):
            connection.open()
    except Shown as shown:
        return ServerKey(
            host=connection.host,
            port=connection.port,
            line=f"{shown.key.get_name()} {shown.key.get_base64()}",
            fingerprint=shown.key.fingerprint,
        )
    finally:
        Line(connection, board_name).close()
    raise ConnectError(f"{board_name}: {connection.host} showed no key.")


def _prepared(
    address: SshAddress, board_name: str, *, paramiko_policy: paramiko.MissingHostKeyPolicy
) -> fabric.Connection:
    import fabric
    import paramiko

    if address.key is not None and not address.key.expanduser().is_file():
        raise ConnectError(
            f"{board_name}: there is no key file {address.key}.",
            f"Correct 'key' under 'reach' in boards/{board_name}.yaml.",
        )
    try:
        connection = fabric.Connection(
            address.host,
            user=address.user,
            port=address.port,
            connect_kwargs={
                "banner_timeout": CONNECT_TIMEOUT_S,
                "auth_timeout": CONNECT_TIMEOUT_S,
                "transport_factory": _fast_transport,
                "password": os.environ.get(PASSWORD_VARIABLE),
            },
        )
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise ConnectError(
            f"{board_name}: the SSH configuration cannot be used: {error}.",
            "Correct ~/.ssh/config.",
        ) from error
    hop = connection
    while hop is not None and not isinstance(hop, str):
        _set_keys(hop)
        hop = hop.gateway
    gateway = connection.gateway
    while gateway is not None and not isinstance(gateway, str):
        gateway.client.set_missing_host_key_policy(_refuse_unknown(board_name))
        gateway = gateway.gateway
    connection.client.set_missing_host_key_policy(paramiko_policy)
    if address.key is not None:
        connection.connect_kwargs["key_filename"].insert(0, str(address.key.expanduser()))
    if address.host_key is not None:
        kind, _, base64 = address.host_key.partition(" ")
        _pin(connection, kind, base64.split(" ")[0], board_name)
    return connection


def _set_keys(hop: fabric.Connection) -> None:
    hop.connect_timeout = hop.connect_timeout or CONNECT_TIMEOUT_S
    given = hop.connect_kwargs.get("key_filename") or []
    existing = [name for name in given if Path(name).expanduser().is_file()]
    hop.connect_kwargs["key_filename"] = [str(Path(name).expanduser()) for name in existing]
    hop.connect_kwargs["allow_agent"] = hop.ssh_config.get("identitiesonly", "no") != "yes"
    # What armload pinned comes first: the person asked for it later.
    pinned = pinned_keys_file()
    if pinned.is_file():
        hop.client.load_system_host_keys(str(pinned))
    for path in persons_key_files(hop.ssh_config.get("userknownhostsfile")):
        hop.client.get_host_keys().load(str(path))


def _pin(connection: fabric.Connection, kind: str, base64: str, board_name: str) -> None:
    import binascii

    import paramiko

    try:
        key = paramiko.PKey.from_type_string(kind, binascii.a2b_base64(base64))
    except (paramiko.SSHException, ValueError) as error:
        raise ConnectError(
            f"{board_name}: the pinned host key {kind!r} cannot be read: {error}."
        ) from error
    connection.client._system_host_keys.clear()  # noqa: SLF001 - has no public way to be emptied
    keys = connection.client.get_host_keys()
    keys.clear()
    keys.add(known_keys_name(connection.host, connection.port), kind, key)


def _fast_transport(sock: socket.socket, **options: Any) -> paramiko.Transport:
    import paramiko

    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = paramiko.Transport(sock, **options)
    security = transport.get_security_options()
    # A third quicker than paramiko's first choice on one laptop core; others stay on offer.
    fastest = [name for name in security.ciphers if name.startswith("aes128-gcm")]
    security.ciphers = [*fastest, *(name for name in security.ciphers if name not in fastest)]
    return transport


def _notice_silence(sock: object) -> None:
    # Linux only; elsewhere a dead line is noticed by the caller's time-outs.
    if isinstance(sock, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)


def _refuse_unknown(board_name: str) -> paramiko.MissingHostKeyPolicy:
    import paramiko

    class Refuse(paramiko.MissingHostKeyPolicy):
        def missing_host_key(
            self, _client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
        ) -> None:
            raise ConnectError(
                f"{board_name}: the key of {hostname} is not known yet: {key.fingerprint}"
                f" ({key.get_name()}).",
                f"Compare it with the board's own; to pin it: armload board.trust "
                f"--board {board_name}",
            )

    return Refuse()


@contextlib.contextmanager
def _explained(connection: fabric.Connection, board_name: str) -> Iterator[None]:
    import paramiko

    try:
        yield
    except (paramiko.SSHException, OSError, EOFError) as error:
        where = f"{board_name}: {connection.user}@{connection.host} port {connection.port}"
        if isinstance(error, paramiko.SSHException):
            raise _about_ssh(error, connection, where, board_name) from error
        raise _about_network(error, connection.host, where, board_name) from error


def _about_ssh(
    error: paramiko.SSHException, connection: fabric.Connection, where: str, board_name: str
) -> ConnectError:
    import paramiko

    if isinstance(error, paramiko.BadHostKeyException):
        return ConnectError(
            f"{where}: THE SERVER'S KEY HAS CHANGED. It shows {error.key.fingerprint}, known is "
            f"{error.expected_key.fingerprint}.",
            "Someone may be listening in, or the board was set up anew. When you know that it "
            f"was: armload board.trust --board {board_name}",
        )
    if isinstance(error, paramiko.PasswordRequiredException):
        return ConnectError(
            f"{where}: the private key is locked by a passphrase.",
            f"Add it to the agent with ssh-add, or put the passphrase in {PASSWORD_VARIABLE}.",
        )
    no_key = "No authentication methods" in str(error)
    if no_key or isinstance(error, paramiko.AuthenticationException):
        return _refused(connection, where)
    if "banner" in str(error) or "protocol version" in str(error):
        return ConnectError(
            f"{where}: what answers there is no SSH server.",
            f"Check the port. {_check(board_name)}",
        )
    return ConnectError(f"{where}: SSH failed: {error}.", _check(board_name))


def _about_network(
    error: OSError | EOFError, host: str, where: str, board_name: str
) -> ConnectError:
    import paramiko

    if isinstance(error, socket.gaierror):
        return ConnectError(f"{board_name}: there is no host called {host!r}.", _check(board_name))
    is_it_on = f"Is the board on? {_check(board_name)}"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return ConnectError(f"{where}: {_reason(error)}.", is_it_on)
    if isinstance(error, TimeoutError):
        return ConnectError(f"{where}: no answer within {CONNECT_TIMEOUT_S:.0f} s.", is_it_on)
    said = error.strerror if isinstance(error, OSError) else ""
    return ConnectError(f"{where}: {said or str(error) or 'the server hung up'}.", is_it_on)


def _check(board_name: str) -> str:
    return f"Check 'reach' in boards/{board_name}.yaml and ~/.ssh/config."


def _reason(error: paramiko.ssh_exception.NoValidConnectionsError) -> str:
    import errno

    numbers = {one.errno for one in error.errors.values() if isinstance(one, OSError)}
    if errno.ECONNREFUSED in numbers:
        return "connection refused; no SSH server listens there"
    return "no route to the host"


def _refused(connection: fabric.Connection, where: str) -> LoginRefusedError:
    tried = [*connection.connect_kwargs["key_filename"]]
    usual = (Path.home() / ".ssh" / f"id_{kind}" for kind in ("rsa", "ecdsa", "ed25519"))
    tried += [str(path) for path in usual if path.is_file() and str(path) not in tried]
    if connection.connect_kwargs["allow_agent"] and os.environ.get("SSH_AUTH_SOCK"):
        tried.append("the agent's keys")
    with_password = connection.connect_kwargs["password"] is not None
    if with_password:
        tried.append(f"the password in {PASSWORD_VARIABLE}")
    allowed = _allowed_methods(connection)
    would_do = not with_password and bool({"password", "keyboard-interactive"} & allowed)
    hint = f" It takes a password: put it in {PASSWORD_VARIABLE}." if would_do else ""
    return LoginRefusedError(
        f"{where}: the login is refused. Tried: {', '.join(tried) or 'nothing, there is no key'}.",
        f"Put your public key into the board's authorized_keys, or name a key as 'key' under "
        f"'reach'.{hint}",
        password_would_do=would_do,
    )


def _allowed_methods(connection: fabric.Connection) -> set[str]:
    import paramiko

    transport = connection.client.get_transport()
    if transport is None:
        return set()
    try:
        transport.auth_none(connection.user)
    except paramiko.BadAuthenticationType as error:
        return set(error.allowed_types)
    except (paramiko.SSHException, OSError, EOFError):
        return set()
    return set()
