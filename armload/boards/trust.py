"""Getting to know a server's key and pinning it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from armload.boards.board import Board, RealReach, SshAddress, SshReach
from armload.boards.known_keys import pin_key, pinned_keys_file, pinned_line
from armload.boards.ssh_connection import ServerKey, shown_key
from armload.core.errors import UsageError


class PinnedKey(ServerKey):
    """A key that is pinned now; ``replaced_fingerprint`` is of the one that was before, if any."""

    replaced_fingerprint: str | None


def fetch_host_key(board: Board) -> ServerKey:
    """Ask a board's SSH server for its key; nobody logs in."""
    return shown_key(ssh_address(board), board.name)


def pinned_key(key: ServerKey) -> ServerKey | None:
    """Return the key that is pinned for the server that showed one; none where none is."""
    line = pinned_line(key.host, key.port)
    if line is None:
        return None
    return key.model_copy(update={"line": line, "fingerprint": _fingerprint(line)})


def pin(key: ServerKey) -> Path:
    """Make this key the one that its server must show; return the file that says so."""
    pin_key(key.host, key.port, key.line)
    return pinned_keys_file()


def ssh_address(board: Board) -> SshAddress:
    if isinstance(board.reach, RealReach) and not isinstance(board.reach, SshReach):
        raise UsageError(f"{board.name} is not reached by SSH: it has no host key to pin.")
    if not isinstance(board.reach, SshReach):
        raise UsageError(
            f"{board.name} is a virtual board: its key is generated and pinned when it starts."
        )
    reach = board.reach
    return SshAddress(host=reach.host, port=reach.port, user=reach.user, key=reach.key)


def _fingerprint(line: str) -> str:
    """Return a key's fingerprint as OpenSSH prints it; says so where the line is damaged."""
    try:
        blob = base64.b64decode(line.split()[1], validate=True)
    except (ValueError, IndexError):
        return "(a malformed line)"
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii")
    return f"SHA256:{digest.rstrip('=')}"
