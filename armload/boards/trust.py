"""Getting to know a server's key and pinning it."""

from __future__ import annotations

from pathlib import Path

from armload.boards.address import SshAddress
from armload.boards.board import Board, RealReach, SshReach
from armload.boards.known_keys import pin_key, pinned_keys_file
from armload.boards.line import ServerKey, shown_key
from armload.core.errors import UsageError


def fetch_host_key(board: Board) -> ServerKey:
    """Ask a board's SSH server for its key; nobody logs in.

    Raises:
        UsageError: the board is not reached by SSH, or its key is made by armload itself.
        ConnectError: it does not answer.
    """
    return shown_key(ssh_address(board), board.name)


def pin(key: ServerKey) -> Path:
    """Make this key the one that its server must show; return the file that says so."""
    pin_key(key.host, key.port, key.line)
    return pinned_keys_file()


def ssh_address(board: Board) -> SshAddress:
    """Return where a real board's SSH server is.

    Raises:
        UsageError: the board is a virtual one, or has none.
    """
    if isinstance(board.reach, RealReach) and not isinstance(board.reach, SshReach):
        raise UsageError(f"{board.name} is not reached by SSH: it has no host key to pin.")
    if not isinstance(board.reach, SshReach):
        raise UsageError(
            f"{board.name} is a virtual board: its key is made and pinned when it is started."
        )
    reach = board.reach
    return SshAddress(host=reach.host, port=reach.port, user=reach.user, key=reach.key)
