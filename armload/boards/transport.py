"""What carries an SSH connection: quick ciphers first, and an ear for what is no SSH server."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, cast

from armload.boards.ciphers import PYTHONS_CIPHERS

if TYPE_CHECKING:
    import paramiko

_HEARD_BYTES = 256


class TransportMaker:
    """Makes the transport of one host, as Fabric wants it made.

    Attributes:
        heard: the first bytes that came, whatever it is that answers there.
    """

    def __init__(self) -> None:
        self.heard = b""

    def __call__(self, sock: socket.socket, **options: Any) -> paramiko.Transport:
        """Return a transport over an open socket, or over what stands in for one."""
        import paramiko

        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.heard = b""
        transport = paramiko.Transport(cast("socket.socket", _Heard(sock, self)), **options)
        transport.sock = sock
        security = transport.get_security_options()
        fastest = [name for name in PYTHONS_CIPHERS if name in security.ciphers]
        security.ciphers = [*fastest, *(name for name in security.ciphers if name not in fastest)]
        return transport


class _Heard:
    """A socket of which the first bytes are kept."""

    def __init__(self, sock: socket.socket, maker: TransportMaker) -> None:
        self._sock = sock
        self._maker = maker

    def recv(self, count: int) -> bytes:
        data = self._sock.recv(count)
        if len(self._maker.heard) < _HEARD_BYTES:
            self._maker.heard += data[:_HEARD_BYTES]
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
