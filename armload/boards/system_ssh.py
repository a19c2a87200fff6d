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
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from armload.boards.board import SshAddress
from armload.boards.bulk import NotStartedError, StreamProcess
from armload.boards.failures import CONNECT_TIMEOUT_S
from armload.boards.forward import Endpoint, Tunnel
from armload.boards.framing import marked, shell_line
from armload.boards.ssh_connection import open_connection
from armload.boards.ssh_transport import SshTransport
from armload.core.errors import ConnectError

_BROKEN = 255


class SystemSsh:
    """``ssh`` to where an open connection leads.

    Args:
        ciphers: for the board itself, in order of preference.

    Raises:
        NotStartedError: there is no ``ssh``, or no way to tell it where to go.
        ConnectError: one of the connections has broken.
    """

    def __init__(self, connection: SshTransport, board_name: str, ciphers: Sequence[str]) -> None:
        self._board_name = board_name
        self._connection = connection
        self._folder = tempfile.TemporaryDirectory(prefix="armload-ssh-")
        try:
            self._words, self._name = connection.ssh_line(Path(self._folder.name), ciphers)
        except BaseException:
            self._folder.cleanup()
            raise

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
        return self.carrier("exec cat", *spelt, *words)

    def negotiated_cipher(self) -> str:
        """Log in for a trial; return the cipher that was agreed on, empty where nobody tells.

        Raises:
            NotStartedError: it cannot log in.
        """
        debug = self.carrier("true", "-o", "LogLevel=DEBUG1").check()
        return self._connection.ssh_cipher(debug)

    def carrier(self, command: str, *options: str) -> StreamProcess:
        """Return what carries bytes to or from a command on the board.

        Args:
            options: further ones of ``ssh``.
        """
        line = shell_line(marked(command))
        return StreamProcess(
            [*self._words, *options, "-T", self._name, line],
            self._board_name,
            begin_within_s=2 * CONNECT_TIMEOUT_S,
            broken_status=_BROKEN,
        )

    def close(self) -> None:
        self._folder.cleanup()


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
            by_connection = connection.tunnel(port, str(error))
            stack.pop_all()
            return by_connection
        if connection.carries_ssh:
            tunnel.keep(stack.pop_all())
        return tunnel


class _BySystemSsh:
    def __init__(
        self, connection: SshTransport, board_name: str, port: int, ciphers: Sequence[str]
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
            stack.enter_context(connection.reverse_tunnel(port, local_port, str(error)))
        yield
