"""Where an SSH server is and how to log in there."""

from __future__ import annotations

from pathlib import Path

from armload.core.values import Value


class SshAddress(Value):
    """Everything that a connection needs.

    Attributes:
        host: a name, an address, or an alias from ``~/.ssh/config``.
        port, user: as ``~/.ssh/config`` says when left out.
        key: a private key file, besides the agent's and the usual ones.
        host_key: the one key that the server must show, as ``ssh-ed25519 AAAA…``; none to
            look it up in the known hosts.
        launcher: words that go before a program that was built for the board.
    """

    host: str
    port: int | None = None
    user: str | None = None
    key: Path | None = None
    host_key: str | None = None
    launcher: tuple[str, ...] = ()
