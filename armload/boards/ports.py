"""The TCP ports of a board, as its kernel lists them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from armload.boards.host import Host
from armload.core.errors import BoardError

_LISTENING = "0A"
_FIRST, _LAST = 20_000, 32_000
"""Below those that Linux gives to clients."""


def free_port(host: Host) -> int:
    """Return a port that nothing on a board uses now."""
    used = {port for port, _ in _sockets(host)}
    free = [port for port in range(_FIRST, _LAST) if port not in used]
    if not free:
        raise BoardError(f"{host.name}: no TCP port between {_FIRST} and {_LAST} is free.")
    return random.choice(free)  # noqa: S311 - no secret


def is_listening(host: Host, port: int) -> bool:
    """Say whether something on a board waits for clients at a port."""
    return port in listening_ports(host)


def listening_ports(host: Host) -> frozenset[int]:
    """Return the ports at which something on a board waits for clients."""
    return frozenset(port for port, state in _sockets(host) if state == _LISTENING)


def _sockets(host: Host) -> Iterator[tuple[int, str]]:
    for line in host.run("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null").text.splitlines():
        words = line.split()
        if len(words) > 3 and words[0].endswith(":"):
            yield int(words[1].rpartition(":")[2], 16), words[3]
