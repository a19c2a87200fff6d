"""What carries an SSH connection: whoever holds it, and its cipher by what both CPUs can do."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from armload.boards.host import TransportChoice
from armload.boards.probe import common_features, cores_of
from armload.core.values import Value

if TYPE_CHECKING:
    import paramiko

    from armload.boards.forward import Tunnel


_GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_CHACHA20 = ("chacha20-poly1305@openssh.com",)
# In software their checksum makes them no faster than GCM.
_CTR = ("aes128-ctr", "aes192-ctr", "aes256-ctr")

PYTHONS_CIPHERS = (*_GCM, *_CTR)
"""Those that paramiko knows, in the order that suits all CPUs."""

# AES itself, and the multiplication that GCM's checksum takes, as ARM and x86 call them.
_HARDWARE = (frozenset({"aes", "pmull"}), frozenset({"aes", "pclmulqdq"}))
_CPUINFO = Path("/proc/cpuinfo")


class CipherChoice(Value):
    """An order of preference; a server takes the first that it has, too.

    Attributes:
        order: by OpenSSH's names: the usual ones, all of them.
        reason: why in this order.
    """

    order: tuple[str, ...]
    reason: str

    def transport(self, negotiated: str, *, by_program: bool) -> TransportChoice:
        """Return what to say of the cipher that client and server agreed on.

        Args:
            negotiated: its name; empty if unknown.
            by_program: the client is the system's ``ssh``, which knows all ciphers.
        """
        if negotiated not in self.order:
            reason = f"{self.reason}; the negotiated cipher is unknown"
            return TransportChoice(
                purpose="encryption", chosen=negotiated or self.order[0], reason=reason
            )
        better = self.order[: self.order.index(negotiated)]
        unknown = [name for name in better if not by_program and name not in PYTHONS_CIPHERS]
        not_offered = [name for name in better if name not in unknown]
        but = [f"Python's SSH client does not support {unknown[0]}"] if unknown else []
        but += [f"the server does not offer {not_offered[0]}"] if not_offered else []
        reason = ", but ".join([self.reason, *([" and ".join(but)] if but else [])])
        return TransportChoice(purpose="encryption", chosen=negotiated, reason=reason)


class Ending(Protocol):
    """Tells when a command has ended."""

    def wait(self, timeout_s: float, /) -> bool:
        """Wait so long; say whether it has."""
        ...


class Channel(Protocol):
    """One command, with the names that paramiko gives to what a channel does."""

    @property
    def exit_status(self) -> int:
        """The command's status; negative when it is not known."""
        ...

    @property
    def status_event(self) -> Ending: ...

    def exec_command(self, line: str, /) -> None: ...

    def settimeout(self, timeout_s: float | None, /) -> None: ...

    def recv(self, count: int, /) -> bytes: ...

    def recv_stderr(self, count: int, /) -> bytes: ...

    def sendall(self, data: bytes, /) -> None: ...

    def shutdown_write(self) -> None: ...

    def exit_status_ready(self) -> bool: ...

    def close(self) -> None: ...


class SshTransport(Protocol):
    """An open, authenticated connection: by Python's client, or where that cannot log in, by ssh.

    What the system's ``ssh`` does quicker for bulk data and ports, it does beside either.
    """

    @property
    def alive(self) -> bool:
        """Whether nothing is known yet that ended it."""
        ...

    @property
    def carries_ssh(self) -> bool:
        """Whether what ``ssh`` does beside it are sessions of it, and end with it."""
        ...

    @property
    def commands(self) -> TransportChoice:
        """How commands reach the board."""
        ...

    def bulk(self, why_no_ssh: str) -> TransportChoice:
        """Return how much data reaches the board.

        Args:
            why_no_ssh: what keeps ``ssh`` from logging in beside it; empty where it does.
        """
        ...

    def encryption(
        self, negotiated: str, ciphers: CipherChoice, why_no_ssh: str
    ) -> TransportChoice:
        """Return what encrypts bulk data.

        Args:
            negotiated: the cipher that ``ssh`` agreed on; empty if unknown.
            ciphers: that were asked for.
            why_no_ssh: as for ``bulk``.
        """
        ...

    def channel(self) -> Channel:
        """Open a channel for one command.

        Raises:
            ConnectError: the connection has dropped.
        """
        ...

    def check(self) -> None:
        """Return if the board answers.

        Raises:
            ConnectError: it does not.
        """
        ...

    def check_forwarding(self, port: int) -> None:
        """Return if the server lets a port of the board's loopback be reached.

        Raises:
            BoardError: it forbids that.
        """
        ...

    def ssh_line(self, folder: Path, ciphers: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Return what begins a line of ``ssh`` that leads to the board, and the host's name in it.

        Args:
            folder: for the configuration that it may need.
            ciphers: for the board itself, in order of preference.

        Raises:
            NotStartedError: there is no way to tell ``ssh`` where to go.
        """
        ...

    def ssh_cipher(self, debug: bytes) -> str:
        """Return the cipher of a login by such a line from its log; empty where nothing tells."""
        ...

    def tunnel(self, port: int, why_no_ssh: str) -> Tunnel:
        """Return what leads to a port of the board's loopback without ``ssh``; closes this, too.

        Raises:
            ConnectError: this cannot.
        """
        ...

    def reverse_tunnel(
        self, port: int, local_port: int, why_no_ssh: str
    ) -> contextlib.AbstractContextManager[None]:
        """Let a port of the board's loopback lead here without ``ssh`` until the block ends.

        Raises:
            BoardError: this cannot, or the server forbids it.
        """
        ...

    def close(self) -> None:
        """End it, once for each that opened it."""
        ...


def choose_ciphers(board: Collection[str], here: Collection[str]) -> CipherChoice:
    """Put the ciphers into an order.

    AES in GCM is the fastest where the CPUs of both ends have instructions for it, and several
    times as slow as ChaCha20 in software. The slower end decides.

    Args:
        board: the features of the board's CPU; empty where they are not known.
    """
    lacking = [
        words
        for words, features in (("the board's CPU", board), ("this machine's CPU", here))
        if features and not any(needed <= {*features} for needed in _HARDWARE)
    ]
    if lacking:
        has = "have" if len(lacking) > 1 else "has"
        reason = f"{' and '.join(lacking)} {has} no instructions for AES-GCM"
        return CipherChoice(order=(*_CHACHA20, *_GCM, *_CTR), reason=reason)
    reason = "the CPUs of both ends have instructions for AES-GCM"
    if not (board and here):
        whose = "this machine's" if board else "the board's"
        reason = f"the features of {whose} CPU are unknown"
    return CipherChoice(order=(*_GCM, *_CHACHA20, *_CTR), reason=reason)


def features_here() -> tuple[str, ...]:
    """Return the features of this machine's CPU; none where the system is not Linux."""
    try:
        return features_in(_CPUINFO.read_bytes())
    except OSError:
        return ()


def features_in(cpuinfo: bytes) -> tuple[str, ...]:
    """Return the features that a ``/proc/cpuinfo`` tells."""
    return common_features(cores_of(cpuinfo.decode("utf-8", "replace").splitlines()))


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
