"""Opening SSH connections: configuration, and the keys of both sides."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from armload.boards.board import SshAddress
from armload.boards.bulk import NotBegunError
from armload.boards.failures import (
    CONNECT_TIMEOUT_S,
    FORBIDDEN_FORWARDING,
    PASSWORD_VARIABLE,
    HungUpError,
    UnableClientError,
    UnknownKeyError,
    explained,
    refuse_unknown,
    translated,
)
from armload.boards.known_keys import (
    known_keys_name,
    load_keys,
    persons_key_files,
    pinned_keys_file,
    pinned_line,
)
from armload.boards.ssh_config import JumpHost, SshSettings, config_words, settings_of
from armload.boards.ssh_master import MasterConnection
from armload.boards.ssh_transport import TransportMaker
from armload.core.errors import BoardError, ConnectError, DataError, LastingConnectError
from armload.core.shell import join
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


_typed_password: str | None = None


def use_password(password: str) -> None:
    """Log in with a password that a person typed, for as long as this process runs.

    It is kept out of the environment, which every child process inherits.
    """
    global _typed_password  # noqa: PLW0603 - it holds for every connection, as the variable does
    _typed_password = password


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


class SshConnection:
    """An open, authenticated connection."""

    def __init__(self, connection: fabric.Connection, board_name: str) -> None:
        self._connection = connection
        self._board_name = board_name

    @property
    def hosts(self) -> tuple[fabric.Connection, ...]:
        """The open connections: to the board, then to the hosts on the way, nearest first."""
        return (self._connection, *_hops(self._connection))

    @property
    def alive(self) -> bool:
        """Whether nothing is known yet that ended it."""
        transport = self._connection.transport
        return bool(transport is not None and transport.is_active())

    @property
    def cipher(self) -> str:
        """The cipher of what is sent."""
        return str(self._connection.transport.local_cipher)

    def channel(self) -> paramiko.Channel:
        """Open a channel for one command.

        Raises:
            ConnectError: the connection has dropped.
        """
        with translated(self._board_name):
            channel: paramiko.Channel = self._connection.transport.open_session(
                timeout=CONNECT_TIMEOUT_S
            )
            return channel

    def channel_to_port(self, port: int) -> paramiko.Channel | None:
        """Connect to a port on the board's loopback; return none when nothing listens there.

        Raises:
            BoardError: the server forbids it.
            ConnectError: the connection has dropped.
        """
        import paramiko

        with translated(self._board_name):
            try:
                channel: paramiko.Channel = self._connection.transport.open_channel(
                    "direct-tcpip",
                    ("127.0.0.1", port),
                    ("127.0.0.1", 0),
                    timeout=CONNECT_TIMEOUT_S,
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
        """Return if the board answers.

        Raises:
            ConnectError: it does not.
        """
        self.channel().close()

    def check_forwarding(self, port: int) -> None:
        """Return if the server lets a port of the board's loopback be reached.

        Raises:
            BoardError: it forbids that.
            ConnectError: the connection has dropped.
        """
        channel = self.channel_to_port(port)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """End the connection, and those to the hosts it jumps over."""
        for connection in self.hosts:
            transport = connection.client.get_transport()
            with contextlib.suppress(Exception):
                connection.client.close()
            if transport is not None:
                _end_command(transport)


AnyConnection = SshConnection | MasterConnection
"""By Python's client, or by the system's ``ssh`` where that client cannot log in."""

_SAID_ALREADY = ("Permission denied", "Host key verification failed")
# Asking these again would only count as another refused login there.
_beyond_python: dict[SshAddress, str] = {}


def open_connection(address: SshAddress, board_name: str) -> AnyConnection:
    """Connect, check the server's key, and log in; a server that hangs up is tried again.

    Raises:
        DataError: the key file that the board's file names is missing, or SSH's configuration is
            malformed.
        LoginRefusedError: the keys at hand do not open it.
        ConnectError: anything else; says which.
    """
    if address in _beyond_python:
        with contextlib.suppress(NotBegunError):
            return _by_system_ssh(address, board_name, _beyond_python[address])
    try:
        return _insistently(lambda: _opened(address, board_name))
    except UnableClientError as error:
        try:
            connection = _by_system_ssh(address, board_name, error.message)
        except NotBegunError as refusal:
            is_said = any(words in str(refusal) for words in _SAID_ALREADY)
            if not (is_said or isinstance(error, UnknownKeyError)):
                error.remedy += f"\nThe system's ssh cannot log in either: {refusal}."
            raise error from refusal
        _beyond_python[address] = error.message
        return connection


def _by_system_ssh(address: SshAddress, board_name: str, why: str) -> MasterConnection:
    hop = _prepared(address, board_name)
    options = config_words()
    if options and "userknownhostsfile" not in hop.ssh_config:
        options += ["-o", f"UserKnownHostsFile={Path.home()}/.ssh/known_hosts"]
    if address.key is not None:
        options += ["-i", str(address.key.expanduser())]
    return MasterConnection(
        (*options, "-p", str(hop.port), "-l", hop.user, "--", hop.original_host),
        address.host_key or pinned_line(hop.host, hop.port),
        _secret(),
        board_name,
        why,
    )


def _secret() -> str | None:
    return _typed_password or os.environ.get(PASSWORD_VARIABLE)


def shown_key(address: SshAddress, board_name: str) -> ServerKey:
    """Ask a server for its key without logging in; one that hangs up is asked again.

    Raises:
        ConnectError: it does not answer.
    """
    return _insistently(lambda: _shown(address, board_name))


def _insistently(attempt: Callable[[], Done]) -> Done:
    """Try for a second or so: nothing has been asked of a board before the login is done."""
    import tenacity

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(HungUpError),
        wait=tenacity.wait_exponential(multiplier=0.1, exp_base=3),
        stop=tenacity.stop_after_attempt(_LOGIN_ATTEMPTS),
        reraise=True,
    )(attempt)


def _shown(address: SshAddress, board_name: str) -> ServerKey:
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

    connection = _prepared(address, board_name)
    connection.client.set_missing_host_key_policy(Show())
    _drop_keys(connection)
    try:
        _open(connection, board_name)
    except Shown as shown:
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
    connection = _prepared(address, board_name)
    try:
        _open(connection, board_name)
    except BaseException:
        SshConnection(connection, board_name).close()
        raise
    transport = connection.transport
    transport.set_keepalive(KEEPALIVE_S)
    _notice_silence(transport.sock)
    return SshConnection(connection, board_name)


def _open(connection: fabric.Connection, board_name: str) -> None:
    # Hop by hop, so that a failure names the hop at which it happened.
    for hop in reversed([connection, *_hops(connection)]):
        with explained(hop, board_name, is_board=hop is connection):
            hop.open()


def _hops(connection: fabric.Connection) -> Iterator[fabric.Connection]:
    """Yield the hosts that a connection jumps over, the nearest to the board first."""
    gateway = connection.gateway
    while gateway is not None and not isinstance(gateway, str):
        yield gateway
        gateway = gateway.gateway


def _prepared(address: SshAddress, board_name: str) -> fabric.Connection:
    if address.key is not None and not address.key.expanduser().is_file():
        raise DataError(
            f"{board_name}: there is no key file {address.key}.",
            f"Correct 'key' under 'reach' in boards/{board_name}.yaml.",
        )
    named = JumpHost(host=address.host, port=address.port, user=address.user)
    connection = _routed(named, board_name, ())
    connection.connect_kwargs["password"] = _secret()
    for hop in (connection, *_hops(connection)):
        policy = refuse_unknown(hop, board_name, is_board=hop is connection)
        hop.client.set_missing_host_key_policy(policy)
    if address.key is not None:
        connection.connect_kwargs["key_filename"].insert(0, str(address.key.expanduser()))
    if address.host_key is not None:
        kind, _, base64 = address.host_key.partition(" ")
        _pin(connection, kind, base64.split(" ")[0], board_name)
    return connection


def _routed(
    place: JumpHost,
    board_name: str,
    on_the_way: tuple[str, ...],
    gateway: fabric.Connection | str | None = None,
) -> fabric.Connection:
    """Return what will connect to a host, over those on the way that the configuration names.

    Args:
        on_the_way: the hosts that this one is to lead to.
        gateway: what leads to it, if that is decided.
    """
    import fabric
    import paramiko

    short = fabric.connection.derive_shorthand(place.host)
    user, port = place.user or short["user"], place.port or short["port"]
    name: str = short["host"] or place.host
    settings = settings_of(name, port, user, board_name)
    if gateway is None:
        # The wildcard that leads everything over a host holds for that host, too.
        for jump in (one for one in settings.jumps if one.host not in (name, settings.host)):
            if jump.host in on_the_way:
                raise DataError(
                    f"{board_name}: the SSH configuration cannot be used: ProxyJump leads from "
                    f"{name} to {jump.host} and back.",
                    "Correct ~/.ssh/config.",
                )
            gateway = _routed(jump, board_name, (name, *on_the_way), gateway)
        if gateway is None and settings.proxy_command is not None:
            gateway = join(
                [os.environ.get("SHELL", "/bin/sh"), "-c", f"exec {settings.proxy_command}"]
            )

    class CheckingClient(paramiko.SSHClient):
        def _auth(self, username: str, *ways: Any) -> None:
            # Some servers know who comes by other means, such as Tailscale's.
            transport = self.get_transport()
            with contextlib.suppress(paramiko.BadAuthenticationType):
                if transport is not None:
                    transport.auth_none(username)
                    return
            try:
                super()._auth(username, *ways)  # type: ignore[misc] # has no public way before it
            except (paramiko.SSHException, ValueError) as error:
                # The last of the files that it could not read is no better reason.
                if isinstance(error, paramiko.PasswordRequiredException) or not (
                    transport is not None and transport.is_active()
                ):
                    raise
                raise paramiko.AuthenticationException(str(error)) from error

    class Read(paramiko.SSHConfig):
        def lookup(self, _hostname: str) -> paramiko.SSHConfigDict:
            said = {
                "hostname": settings.host,
                "port": settings.port,
                "user": settings.user,
                "proxycommand": settings.proxy_command,
                "connecttimeout": settings.connect_timeout_s,
                "userknownhostsfile": settings.known_hosts,
            }
            return paramiko.SSHConfigDict(
                {key: str(value) for key, value in said.items() if value is not None}
            )

    connection = fabric.Connection(
        name,
        user=user,
        port=port,
        # SSH's files alone: Fabric's own have no say here.
        config=fabric.Config(lazy=True, ssh_config=Read()),
        gateway=gateway,
        connect_kwargs={"password": None},
    )
    connection.client = CheckingClient()
    _set_keys(connection, settings, board_name)
    return connection


def _set_keys(hop: fabric.Connection, settings: SshSettings, board_name: str) -> None:
    hop.connect_timeout = hop.connect_timeout or CONNECT_TIMEOUT_S
    hop.connect_kwargs["banner_timeout"] = CONNECT_TIMEOUT_S
    hop.connect_kwargs["auth_timeout"] = CONNECT_TIMEOUT_S
    hop.connect_kwargs["transport_factory"] = TransportMaker()
    existing = [name for name in settings.identity_files if Path(name).is_file()]
    hop.connect_kwargs["key_filename"] = existing
    hop.connect_kwargs["allow_agent"] = not (settings.identities_only or settings.other_agent)
    # What armload pinned comes first: the person asked for it later.
    pinned = pinned_keys_file()
    if pinned.is_file():
        load_keys(hop.client.load_system_host_keys, pinned, board_name)
    keys = hop.client.get_host_keys()
    for path in persons_key_files(settings.known_hosts):
        load_keys(keys.load, path, board_name)
    if settings.host_key_alias is not None:
        own = dict(keys.lookup(settings.host_key_alias) or {})
        keys.clear()
        for kind, key in own.items():
            keys.add(known_keys_name(hop.host, hop.port), kind, key)


def _drop_keys(connection: fabric.Connection) -> None:
    connection.client.get_host_keys().clear()
    connection.client._system_host_keys.clear()  # noqa: SLF001 - has no public way to be emptied


def _pin(connection: fabric.Connection, kind: str, base64: str, board_name: str) -> None:
    import binascii

    import paramiko

    try:
        key = paramiko.PKey.from_type_string(kind, binascii.a2b_base64(base64))
    except (paramiko.SSHException, ValueError) as error:
        raise LastingConnectError(
            f"{board_name}: the pinned host key {kind!r} cannot be read: {error}."
        ) from error
    _drop_keys(connection)
    keys = connection.client.get_host_keys()
    keys.add(known_keys_name(connection.host, connection.port), kind, key)


def _end_command(transport: paramiko.Transport) -> None:
    """Take leave of the ``ProxyCommand`` that a connection went through; paramiko leaves it."""
    import paramiko

    sock: object = transport.sock
    if isinstance(sock, paramiko.ProxyCommand):
        transport.join(CONNECT_TIMEOUT_S)
        sock.process.kill()
        # What a shell started for it may live on, and ends with its input.
        for pipe in (sock.process.stdin, sock.process.stdout, sock.process.stderr):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()
        sock.process.wait()


def _notice_silence(sock: object) -> None:
    # Linux only; elsewhere a dead connection is noticed by the caller's time-outs.
    if isinstance(sock, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
