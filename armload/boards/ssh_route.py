"""A connection to an SSH server before it is opened: over which hosts, with which keys."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armload.boards.board import SshAddress
from armload.boards.failures import (
    CONNECT_TIMEOUT_S,
    PASSWORD_VARIABLE,
    UnsupportedKeywordError,
    place_of_reach,
    refuse_unknown,
)
from armload.boards.known_keys import known_keys_name, load_keys, pinned_keys_file, user_key_files
from armload.boards.ssh_config import JumpHost, SshSettings, settings_of
from armload.boards.ssh_transport import TransportMaker
from armload.core.errors import DataError, PermanentConnectError
from armload.core.shell import join

if TYPE_CHECKING:
    import fabric
    import paramiko

_typed_password: str | None = None


def use_password(password: str) -> None:
    """Log in with a password that a person typed, for as long as this process runs.

    It is kept out of the environment, which every child process inherits.
    """
    global _typed_password  # noqa: PLW0603 - it holds for every connection, as the variable does
    _typed_password = password


def known_password() -> str | None:
    """Return the password that was typed, or that the environment holds."""
    return _typed_password or os.environ.get(PASSWORD_VARIABLE)


def prepared(address: SshAddress, board_name: str) -> fabric.Connection:
    """Return what will connect to a server, with all that the configuration says of it."""
    if address.key is not None and not address.key.expanduser().is_file():
        raise DataError(
            f"{board_name}: there is no key file {address.key}.",
            f"Correct {place_of_reach(board_name, 'key')}.",
        )
    named = JumpHost(host=address.host, port=address.port, user=address.user)
    connection = _routed(named, board_name, ())
    connection.connect_kwargs["password"] = known_password()
    for hop in (connection, *hops_of(connection)):
        policy = refuse_unknown(hop, board_name, is_board=hop is connection)
        hop.client.set_missing_host_key_policy(policy)
    if address.key is not None:
        connection.connect_kwargs["key_filename"].insert(0, str(address.key.expanduser()))
    if address.host_key is not None:
        kind, _, base64 = address.host_key.partition(" ")
        import binascii

        import paramiko

        try:
            key = paramiko.PKey.from_type_string(kind, binascii.a2b_base64(base64.split(" ")[0]))
        except (paramiko.SSHException, ValueError) as error:
            raise PermanentConnectError(
                f"{board_name}: the pinned host key {kind!r} cannot be read: {error}."
            ) from error
        drop_keys(connection)
        keys = connection.client.get_host_keys()
        keys.add(known_keys_name(connection.host, connection.port), kind, key)
    return connection


def hops_of(connection: fabric.Connection) -> Iterator[fabric.Connection]:
    """Yield the hosts that a connection jumps over, the nearest to the board first."""
    gateway = connection.gateway
    while gateway is not None and not isinstance(gateway, str):
        yield gateway
        gateway = gateway.gateway


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
        openssh_only = settings.openssh_only

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
    hop.connect_kwargs["allow_agent"] = settings.usual_agent and not settings.identities_only
    # What armload pinned comes first: the person asked for it later.
    pinned = pinned_keys_file()
    if pinned.is_file():
        load_keys(hop.client.load_system_host_keys, pinned, board_name)
    keys = hop.client.get_host_keys()
    for path in user_key_files(settings.known_hosts):
        load_keys(keys.load, path, board_name)
    if settings.host_key_alias is not None:
        own = dict(keys.lookup(settings.host_key_alias) or {})
        keys.clear()
        for kind, key in own.items():
            keys.add(known_keys_name(hop.host, hop.port), kind, key)


def require_supported(connection: fabric.Connection, board_name: str) -> None:
    """Check that Python's client can do all that the configuration says of a route."""
    for hop in (connection, *hops_of(connection)):
        if hop.client.openssh_only:
            raise UnsupportedKeywordError(
                f"{board_name}: the SSH configuration of {hop.original_host} sets "
                f"{', '.join(hop.client.openssh_only)}, which only OpenSSH supports.",
                "Install OpenSSH's client, or correct ~/.ssh/config.",
            )


def drop_keys(connection: fabric.Connection) -> None:
    """Let a connection know no server's key."""
    connection.client.get_host_keys().clear()
    connection.client._system_host_keys.clear()  # noqa: SLF001 - has no public way to be emptied
