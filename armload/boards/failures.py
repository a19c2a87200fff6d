"""What went wrong on the way to a board, in words that say what to do.

What Fabric and paramiko raise is translated here and goes no further.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from armload.boards.known_keys import known_keys_name
from armload.core.errors import (
    ConnectError,
    LostConnectionError,
    PermanentConnectError,
    UnresolvedNameError,
)
from armload.core.shell import join
from armload.core.workspace import data_names, workspace

if TYPE_CHECKING:
    import fabric
    import paramiko

PASSWORD_VARIABLE = "ARMLOAD_SSH_PASSWORD"  # noqa: S105 - the variable's name
CONNECT_TIMEOUT_S = 10.0

FORBIDDEN_FORWARDING = (
    "Allow it there: AllowTcpForwarding yes in OpenSSH's sshd_config, no option -j for dropbear, "
    "no restrict or no-port-forwarding before the key in authorized_keys."
)

# What paramiko says when its time-outs pass; other reasons follow the first one's words.
_SILENT = ("Error reading SSH protocol banner", "No existing session")
# The first line of one that works, and of OpenSSH's before 9.8 and since, when it has too many.
_SSH_SERVER_BANNERS = ("SSH-", "Exceeded MaxStartups", "Not allowed at this time")
_LOGIN_SILENT = "Authentication timeout."
_LOGIN_CUT = "Authentication failed: transport shut down or saw EOF"


class DisconnectedError(ConnectError):
    """A connection was refused or ended before the login was done.

    Nothing has been asked of the board by then, so the next attempt may be made at once.
    """


class UnsupportedLoginError(PermanentConnectError):
    """Python's client cannot log in; the system's ``ssh``, which knows more ways, might."""


class UnsupportedKeywordError(UnsupportedLoginError):
    """The SSH configuration sets a keyword that Python's client does not support."""


class LoginRefusedError(UnsupportedLoginError):
    """The server is the right one and lets nobody in with the keys at hand.

    Attributes:
        password_would_do: the server takes passwords, and none was given.
    """

    def __init__(self, message: str, remedy: str, *, password_would_do: bool) -> None:
        super().__init__(message, remedy)
        self.password_would_do = password_would_do


class UnknownKeyError(UnsupportedLoginError):
    """A server shows a host key that nobody has compared yet."""


class ChangedKeyError(PermanentConnectError):
    """A server shows another host key than the one that is known."""


class SlowCommandError(PermanentConnectError):
    """A board that answers has not done a command in time: a second one would run beside it."""

    def __init__(self, board_name: str, timeout_s: float) -> None:
        super().__init__(
            f"{board_name}: a command took longer than {timeout_s:g} s.",
            "The board answers, so it is overloaded or its storage is slow; the command may "
            "still be running there. Repeat the command when it has ended.",
        )


class PoweredOffError(PermanentConnectError):
    """A virtual board's machine has gone: it cannot be reached any more."""


def place_of_reach(board_name: str, key: str) -> str:
    """Return where a person says how a board is reached: in its file, or as an option before."""
    if board_name in data_names("boards"):
        return f"{key!r} under 'reach' in {_own_file(board_name)}"
    return f"--{key}"


def _own_file(board_name: str) -> str:
    """Name a board's file in the workspace, and how it is begun where only the shipped one is."""
    file = f"boards/{board_name}.yaml"
    if (workspace() / file).is_file():
        return file
    return f"your own {file} (create it with the line 'extends: {board_name}')"


@contextlib.contextmanager
def translated(board_name: str) -> Iterator[None]:
    """Turn what paramiko and the sockets raise for a dropped connection into a ``ConnectError``."""
    import paramiko

    try:
        yield
    except TimeoutError as error:
        raise ConnectError(f"{board_name}: the board stopped responding.") from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        detail = f": {error}" if str(error) else ""
        raise LostConnectionError(f"{board_name}: the connection dropped{detail}.") from error


@contextlib.contextmanager
def explained(connection: fabric.Connection, board_name: str, *, is_board: bool) -> Iterator[None]:
    """Turn what paramiko and the sockets raise during a host's login into ``ConnectError``.

    Args:
        board_name: the board that it is, or that it leads to.
        is_board: which of the two.
    """
    import paramiko

    try:
        yield
    except (paramiko.SSHException, OSError, EOFError) as error:
        where = f"{board_name}: {connection.user}@{connection.host} port {connection.port}"
        if isinstance(error, paramiko.SSHException):
            if isinstance(error, paramiko.BadHostKeyException):
                raise _changed(error, connection, where, board_name, is_board=is_board) from error
            raise _about_ssh(error, connection, where, board_name) from error
        raise _about_network(error, connection, where, board_name) from error


def _changed(
    error: paramiko.BadHostKeyException,
    connection: fabric.Connection,
    where: str,
    board_name: str,
    *,
    is_board: bool,
) -> ConnectError:
    trust = _way_to_trust(connection, board_name, is_board=is_board)
    if not is_board:
        name = known_keys_name(connection.host, connection.port)
        trust = f"{join(['ssh-keygen', '-R', name])} && {trust}"
    return ChangedKeyError(
        f"{where}: THE SERVER'S KEY HAS CHANGED. The server shows {error.key.fingerprint}; "
        f"{error.expected_key.fingerprint} is pinned.",
        "Someone may be intercepting the connection, or the host was reinstalled. If you know "
        f"that it was: {trust}",
    )


def _about_ssh(
    error: paramiko.SSHException, connection: fabric.Connection, where: str, board_name: str
) -> ConnectError:
    import paramiko

    if isinstance(error, paramiko.PasswordRequiredException):
        return UnsupportedLoginError(
            f"{where}: the private key is protected by a passphrase.",
            f"Add it to the agent with ssh-add, or put the passphrase in {PASSWORD_VARIABLE}.",
        )
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return UnsupportedLoginError(
            f"{where}: the server and Python's SSH client have no algorithm in common: {error}.",
            "Update the server, or install OpenSSH's client here.",
        )
    if str(error) == _LOGIN_CUT:
        return DisconnectedError(
            f"{where}: the server closed the connection during login.",
            "Servers also do this after too many key offers: name one as "
            f"{place_of_reach(board_name, 'key')}.",
        )
    if str(error) == _LOGIN_SILENT:
        return ConnectError(
            f"{where}: no response to the login within {CONNECT_TIMEOUT_S:g} s.",
            "Check that the board is not overloaded, then repeat the command.",
        )
    if isinstance(error, paramiko.ChannelException):
        return DisconnectedError(
            f"{where}: the jump host cannot connect to it ({error.text}).",
            f"Is the board on? {_check(board_name)}",
        )
    no_key = "No authentication methods" in str(error)
    if no_key or isinstance(error, paramiko.AuthenticationException):
        return _refused(connection, where, board_name)
    if isinstance(connection.gateway, str) and str(error) in _SILENT:
        return ConnectError(
            f"{where}: its ProxyCommand does not reach an SSH server: "
            f"{connection.ssh_config.get('proxycommand', '')}",
            f"Correct ~/.ssh/config. To test it: {_way_in(connection)}",
        )
    # A server's first line, and its version line before all others.
    heard: bytes = connection.connect_kwargs["transport_factory"].heard
    lines = heard.decode("latin-1").strip().splitlines() or [""]
    banner = next((line for line in lines if line.startswith("SSH-")), lines[0].strip())
    if banner and not banner.startswith(_SSH_SERVER_BANNERS):
        return PermanentConnectError(
            f"{where}: not an SSH server; it answered {banner!a}.", _check(board_name)
        )
    if isinstance(error.__context__, EOFError | ConnectionError):
        words = f", saying {banner!a}" if banner and not banner.startswith("SSH-") else ""
        return DisconnectedError(
            f"{where}: it accepted the connection and closed it immediately{words}.",
            f"The server may have too many connections. {_check(board_name)}",
        )
    if str(error) in _SILENT:
        return ConnectError(
            f"{where}: it accepts connections, but no SSH server answered within "
            f"{CONNECT_TIMEOUT_S:g} s.",
            f"The board may still be booting, or be overloaded. {_check(board_name)}",
        )
    return ConnectError(f"{where}: SSH failed: {error}.", _check(board_name))


def _about_network(
    error: OSError | EOFError, connection: fabric.Connection, where: str, board_name: str
) -> ConnectError:
    import paramiko

    if isinstance(error, socket.gaierror):
        return UnresolvedNameError(
            f"{board_name}: the host name {connection.host!r} cannot be resolved.",
            _way_to_address(connection, board_name),
        )
    is_it_on = f"Is the board on? {_check(board_name)}"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        if any(isinstance(one, ConnectionRefusedError) for one in error.errors.values()):
            words = f"{where}: connection refused; no SSH server is listening."
            return DisconnectedError(words, is_it_on)
        return ConnectError(f"{where}: no route to the host.", is_it_on)
    if isinstance(error, TimeoutError):
        return ConnectError(f"{where}: no answer within {CONNECT_TIMEOUT_S:.0f} s.", is_it_on)
    reason = error.strerror if isinstance(error, OSError) else ""
    kind = DisconnectedError if isinstance(error, EOFError | ConnectionError) else ConnectError
    return kind(f"{where}: {reason or str(error) or 'the server hung up'}.", is_it_on)


def _way_to_address(connection: fabric.Connection, board_name: str) -> str:
    alias = connection.original_host
    if connection.host != alias:  # ~/.ssh/config leads there
        return f"Correct the HostName of {alias!r} in ~/.ssh/config."
    entry = ["printf", r"%s\n", f"Host {alias}", "  HostName ADDRESS", "  User USER"]
    return (
        "Check the spelling. If it is correct, give the host's IP address as "
        f"{place_of_reach(board_name, 'host')}.\n"
        f"Or add it to ~/.ssh/config: mkdir -p ~/.ssh; {join(entry)} >> ~/.ssh/config"
    )


def _check(board_name: str) -> str:
    is_added = board_name in data_names("boards")
    places = f"'reach' in {_own_file(board_name)}" if is_added else "--host, --port"
    return f"Check {places} and ~/.ssh/config."


def _refused(connection: fabric.Connection, where: str, board_name: str) -> LoginRefusedError:
    tried = [*connection.connect_kwargs["key_filename"]]
    usual = (Path.home() / ".ssh" / f"id_{kind}" for kind in ("rsa", "ecdsa", "ed25519"))
    tried += [str(path) for path in usual if path.is_file() and str(path) not in tried]
    if connection.connect_kwargs["allow_agent"] and os.environ.get("SSH_AUTH_SOCK"):
        tried.append("the agent's keys")
    with_password = connection.connect_kwargs.get("password") is not None
    if with_password:
        password = connection.connect_kwargs["password"]
        from_variable = password == os.environ.get(PASSWORD_VARIABLE)
        tried.append(f"the password in {PASSWORD_VARIABLE}" if from_variable else "the password")
    allowed = _allowed_methods(connection)
    would_do = not with_password and bool({"password", "keyboard-interactive"} & allowed)
    hint = f" For password login, put the password in {PASSWORD_VARIABLE}." if would_do else ""
    return LoginRefusedError(
        f"{where}: login refused. Tried: {', '.join(tried) or 'nothing, no key found'}.",
        f"Add your public key to the board's authorized_keys, or name a key as "
        f"{place_of_reach(board_name, 'key')}.{hint}",
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


def refuse_unknown(
    connection: fabric.Connection, board_name: str, *, is_board: bool
) -> paramiko.MissingHostKeyPolicy:
    """Return the policy that refuses a host whose key is not known; as for ``explained``."""
    import paramiko

    trust = _way_to_trust(connection, board_name, is_board=is_board)

    class Refuse(paramiko.MissingHostKeyPolicy):
        def missing_host_key(
            self, _client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
        ) -> None:
            kind = key.get_name().removeprefix("ssh-").partition("-")[0]
            raise UnknownKeyError(
                f"{board_name}: the host key of {hostname} is not known yet: {key.fingerprint}"
                f" ({key.get_name()}).",
                "Compare it with what the host itself prints: ssh-keygen -lf "
                f"/etc/ssh/ssh_host_{kind}_key.pub (OpenSSH). To pin it: {trust}",
            )

    return Refuse()


def _way_to_trust(hop: fabric.Connection, board_name: str, *, is_board: bool) -> str:
    """Return the command that makes the key known which a host shows now."""
    if is_board:
        return f"armload board.trust --board {board_name}"
    return _way_in(hop)


def _way_in(hop: fabric.Connection) -> str:
    """Return the command with which a person logs in to a host."""
    words = ["ssh"]
    if hop.port != int(hop.ssh_config.get("port", 22)):
        words += ["-p", str(hop.port)]
    named = hop.user == hop.ssh_config.get("user", hop.config.user)
    return join([*words, hop.original_host if named else f"{hop.user}@{hop.original_host}"])
