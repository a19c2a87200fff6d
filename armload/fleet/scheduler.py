"""Reaching a Dask scheduler: its address, encryption, and whether it is one at all."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from armload.core.errors import ConnectError, MissingToolError, PermanentConnectError, UsageError
from armload.core.places import data_path
from armload.core.shell import join, pip_install
from armload.core.values import Value

if TYPE_CHECKING:
    from distributed import Security

ANSWER_S = 10.0
_PORT = 8786
_SETTINGS = "distributed.comm.tls"


def _set_up() -> str:
    return f"How to set up TLS: {data_path('docs', 'fleet.md')}"


class SchedulerAddress(Value):
    """Where a scheduler listens.

    Attributes:
        is_encrypted: it is reached by TLS.
        is_loopback: it is on this machine, and out of reach for others.
    """

    host: str
    port: int
    is_encrypted: bool
    is_loopback: bool

    @property
    def url(self) -> str:
        """The address as Dask writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_encrypted else 'tcp'}://{host}:{self.port}"

    @property
    def start(self) -> str:
        """The command that starts a scheduler which only those it is for can reach."""
        own = ["--protocol", "tls"] if self.is_encrypted else ["--host", self.host]
        quiet = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        return join(["dask", "scheduler", *own, "--port", str(self.port), *quiet])


def scheduler_address(text: str) -> SchedulerAddress:
    """Read an address as a person gives it; without a scheme it is encrypted, but on loopback."""
    scheme, separator, rest = text.strip().rpartition("://")
    host, colon, port = rest.rpartition(":")
    if not colon or "]" in port:
        host, port = rest, str(_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if scheme not in ("", "tcp", "tls") or not host or not port.isdecimal():
        raise UsageError(
            f"--scheduler {text}: this is not the address of a Dask scheduler.",
            (
                "Write tls://HOST:PORT as the scheduler shows it; on this machine, "
                "tcp://127.0.0.1:PORT."
            ),
        )
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if scheme == "tcp" and not is_loopback:
        raise UsageError(
            f"--scheduler {text}: connections to another machine must be encrypted.",
            f"Start the scheduler with TLS, and write tls://{rest}. {_set_up()}",
        )
    is_encrypted = scheme == "tls" or not (separator or is_loopback)
    return SchedulerAddress(
        host=host, port=int(port), is_encrypted=is_encrypted, is_loopback=is_loopback
    )


def need_dask() -> None:
    """Check that Dask is installed, and keep its log from a person's terminal."""
    try:
        import dask

        if "logging" not in dask.config.config:
            # What goes wrong is said in our words.
            quiet = dict.fromkeys(
                ("distributed", "distributed.client", "tornado.application"), "critical"
            )
            dask.config.set({"logging": quiet})
        import distributed  # noqa: F401 - it reads that
    except ImportError as error:
        raise MissingToolError(
            f"Boards behind gateways need the package distributed ({error}).",
            f"Install it: {pip_install('distributed>=2026.8')}",
        ) from error


def security_of(address: SchedulerAddress, role: str) -> Security:
    """Return the certificates that Dask's configuration names.

    Args:
        role: ``client`` or ``worker``.
    """
    from distributed import Security

    security = Security(require_encryption=address.is_encrypted)
    if not address.is_encrypted:
        return security
    needed = {"ca-file": "tls_ca_file", f"{role}.cert": f"tls_{role}_cert"}
    missing = [name for name, field in needed.items() if getattr(security, field) is None]
    if missing:
        names = " and ".join(f"{_SETTINGS}.{name}" for name in missing)
        raise UsageError(f"{address.url}: Dask's configuration lacks {names}.", _set_up())
    try:
        security.get_connection_args(role)
    except OSError as error:
        raise UsageError(
            f"{address.url}: a certificate in Dask's configuration cannot be used: {error}.",
            _set_up(),
        ) from error
    return security


def check_answers(address: SchedulerAddress) -> None:
    """Check that something listens at an address."""
    try:
        socket.create_connection((address.host, address.port), timeout=ANSWER_S).close()
    except OSError as error:
        raise ConnectError(
            f"The scheduler at {address.url} does not answer: {error.strerror or error}.",
            f"Correct the address, or start the scheduler: {address.start}",
        ) from error


def not_dask(address: SchedulerAddress, error: BaseException) -> ConnectError:
    """Return the error of what listens at an address, but is no scheduler."""
    cause = error.__cause__ or error.__context__ or error
    is_told = isinstance(cause, OSError | ImportError) and str(cause)
    why = " ".join(str(cause).split())[:300] if is_told else "its answers are malformed"
    certificates = " with these certificates" if address.is_encrypted else ""
    return PermanentConnectError(
        f"{address.url} does not answer as a Dask scheduler{certificates}: {why}.",
        "Give the address that the scheduler shows when it starts.",
    )


def refused(address: SchedulerAddress, sent: str) -> ConnectError:
    """Return the error of a scheduler that does not keep to what is accepted of it."""
    return PermanentConnectError(
        f"The scheduler at {address.url} sent {sent}, and was disconnected.",
        "Install the same distributed there as here, and check who can use the scheduler.",
    )
