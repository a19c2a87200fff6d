"""The way to a port of a board over SSH: by the system's ssh where it can log in as armload does.

It listens on a socket file, not on the local port: that stays with armload, whoever waits for it
while ``ssh`` logs in anew.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Sequence

from armload.boards.address import SshAddress
from armload.boards.bulk import NotBegunError
from armload.boards.forward import End, Passage
from armload.boards.ssh_connection import SshConnection, open_connection
from armload.boards.system_ssh import SystemSsh
from armload.core.errors import ConnectError


def open_passage(
    address: SshAddress, board_name: str, port: int, ciphers: Sequence[str]
) -> Passage:
    """Log in and find the best way to a port of a board.

    Args:
        port: on the board's loopback.
        ciphers: for the system's ssh, in order of preference.

    Raises:
        BoardError: the server forbids it.
        ConnectError: as ``open_connection``.
    """
    with contextlib.ExitStack() as stack:
        connection = open_connection(address, board_name)
        stack.callback(connection.close)
        # Only this tells that it is forbidden: ssh says so to each client, not to us.
        trial = connection.channel_to_port(port)
        if trial is not None:
            trial.close()
        try:
            return _BySystemSsh(connection, board_name, port, ciphers)
        except NotBegunError:
            stack.pop_all()
            return _ByConnection(connection, port)


class _ByConnection:
    def __init__(self, connection: SshConnection, port: int) -> None:
        self._connection = connection
        self._port = port

    def dial(self) -> End | None:
        return self._connection.channel_to_port(self._port)

    def close(self) -> None:
        self._connection.close()


class _BySystemSsh:
    def __init__(
        self, connection: SshConnection, board_name: str, port: int, ciphers: Sequence[str]
    ) -> None:
        self._name = board_name
        with contextlib.ExitStack() as stack:
            ssh = SystemSsh(connection.hosts, board_name, ciphers)
            stack.callback(ssh.close)
            self._path, carrier = ssh.forwarder(port)
            # With its own input it also ends when armload is killed.
            stack.enter_context(carrier.started(subprocess.PIPE))
            self._started = stack.pop_all()

    def dial(self) -> End | None:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(str(self._path))
        except OSError as error:
            end.close()
            raise ConnectError(f"{self._name}: the connection to the board dropped.") from error
        return end

    def close(self) -> None:
        self._started.close()
