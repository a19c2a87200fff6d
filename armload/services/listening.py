"""Where a service may listen: what a person names, and what the board has."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from armload.boards.host import Host
from armload.boards.ports import listening_ports
from armload.core.errors import BoardError, UsageError
from armload.core.places import data_path
from armload.core.values import Value
from armload.engines.server import LOOPBACK
from armload.services.version import Listening

FIRST_PORT = 8080
_LAST_PORT = 8180

_TAILNET = ipaddress.ip_network("100.64.0.0/10")
"""Shared address space (RFC 6598), which tailnets use; no router of the internet passes it on."""

_PORT = re.compile(r"(?P<where>.*?)(?::(?P<port>\d{1,5}))?")
_BRACKETED = re.compile(r"\[(?P<where>[^\]]*)\](?::(?P<port>\d{1,5}))?")
_ANYTHING = re.compile(r"(?P<where>.*)(?P<port>(?!))?")
_INTERFACE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - named to be recognised

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class WantedAddress(Value):
    """What a person typed after ``--listen``.

    Attributes:
        where: an address, an interface or a network; empty for the loopback.
        port: none for a free one.
    """

    where: str
    port: int | None

    @classmethod
    def read(cls, text: str) -> WantedAddress:
        """Read ``ADDRESS[:PORT]``, ``[IPV6]:PORT``, ``INTERFACE[:PORT]`` or ``NETWORK[:PORT]``.

        Raises:
            UsageError: it is none of these.
        """
        match = _BRACKETED.fullmatch(text) if text.startswith("[") else _PORT.fullmatch(text)
        if text.count(":") > 1 and not text.startswith("["):  # an IPv6 address without a port
            match = _ANYTHING.fullmatch(text)
        where = match["where"] if match else ""
        port = int(match["port"]) if match and match["port"] else None
        is_known = _address(where) or _network(where) or _INTERFACE.fullmatch(where) or not where
        if match is None or not is_known or port == 0 or (port or 0) > 65535 or text == "":
            raise UsageError(
                f"--listen {text!a:.80}: must be an address, an interface or a network of the "
                "board, optionally with a port.",
                "Examples: --listen 192.168.1.20:8080, --listen eth0, --listen 100.64.0.0/10",
            )
        return cls(where=where, port=port)


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Say whether the internet may reach an address."""
    if isinstance(address, IPv4Address) and address in _TAILNET:
        return False
    return not (address.is_private or address.is_link_local or address.is_loopback)


def board_addresses(host: Host) -> Mapping[Address, str]:
    """Return a board's addresses, each with its interface."""
    script = "ip -o addr 2>/dev/null || ifconfig -a 2>/dev/null || ifconfig 2>/dev/null"
    return parse_addresses(host.run(script).text.splitlines())


_INET = re.compile(r"inet6? (?:addr: ?)?([0-9a-fA-F:.]+)")
_OF_IP = re.compile(r"\d+: (\S+)\s")
_OF_IFCONFIG = re.compile(r"([A-Za-z][\w.-]*):?\s")


def parse_addresses(lines: Iterable[str]) -> dict[Address, str]:
    """Read what ``ip -o addr`` or ``ifconfig`` says."""
    found: dict[Address, str] = {}
    interface = ""
    for line in lines:
        begins = _OF_IP.match(line) or _OF_IFCONFIG.match(line)
        if begins:
            interface = begins[1]
        match = _INET.search(line)
        address = _address(match[1]) if match else None
        if address is not None and interface:
            found[address] = interface
    return found


def choose_listening(
    host: Host,
    wanted: WantedAddress | None,
    taken: Mapping[int, str],
    *,
    with_tls: bool = False,
    may_be_public: bool = False,
) -> Listening:
    """Return where a service listens on a board.

    Args:
        wanted: as typed; none for the loopback.
        taken: ports of the board's services, each with the service's name.
        with_tls: other machines are to reach it by TLS alone.
        may_be_public: the internet may reach it.

    Raises:
        UsageError: the board has no such address, it is public, or the port is in use.
    """
    addresses: tuple[str, ...] = (LOOPBACK,)
    if wanted is not None and wanted.where:
        addresses = _resolved(host, wanted.where, may_be_public=may_be_public)
    listening = Listening(
        addresses=addresses,
        port=_port(host, wanted.port if wanted else None, taken),
        with_tls=with_tls,
        may_be_public=may_be_public,
    )
    if with_tls and not listening.is_open:
        raise UsageError(
            "--tls-certificate: on the board's loopback there is nothing to encrypt.",
            "Give an address of its network with --listen, or omit the certificate.",
        )
    return listening


def _resolved(host: Host, where: str, *, may_be_public: bool) -> tuple[str, ...]:
    there = board_addresses(host)
    address, network = _address(where), _network(where)
    if where in _WILDCARDS:
        if not there:
            raise BoardError(
                f"{host.name}: cannot tell whether one of its addresses is public: it has neither "
                "ip nor ifconfig.",
                "Install one of them, or listen on the loopback.",
            )
        if not may_be_public:
            _refuse_public(host, there)
        return (where,)
    if address is not None and address.is_loopback:
        return (LOOPBACK,) if isinstance(address, IPv4Address) else (LOOPBACK, where)
    if address is not None:
        found = [each for each in there if each == address]
    elif network is not None:
        found = [each for each in there if each in network]
    else:
        found = [each for each, its in there.items() if its == where and not each.is_link_local]
    if not found:
        raise UsageError(
            f"--listen {where}: {host.name} has no such address.", f"It has: {_shown(there)}."
        )
    if not may_be_public:
        _refuse_public(host, {each: there[each] for each in found})
    return (LOOPBACK, *(str(each) for each in found if not each.is_loopback))


def exposed_addresses(host: Host, listening: Listening) -> tuple[str, ...]:
    """Return public addresses of a board on which a service listens by now, and was not to.

    When it was installed, the board had none of them.
    """
    if listening.may_be_public:
        return ()
    wildcard = next((each for each in listening.addresses if each in _WILDCARDS), None)
    if wildcard is None:
        return ()
    # On "::", most systems listen on their IPv4 addresses, too.
    versions = (4, 6) if ":" in wildcard else (4,)
    found = [each for each in board_addresses(host) if is_public(each)]
    return tuple(str(each) for each in found if each.version in versions)


def _refuse_public(host: Host, addresses: Mapping[Address, str]) -> None:
    public = [str(each) for each in addresses if is_public(each)]
    if public:
        raise UsageError(
            f"{host.name}: {', '.join(public)} can be reached from the internet.",
            "Listen on a private address. Or add --public with --tls-certificate and --tls-key: a "
            "key sent in the clear protects nothing there. Or put a reverse proxy in front of the "
            f"service: {data_path('docs', 'services.md')} has examples for Caddy and nginx.",
        )


def _shown(addresses: Mapping[Address, str]) -> str:
    words = [f"{each} ({its})" for each, its in addresses.items()]
    return ", ".join(words) or "none that its tools show (neither ip nor ifconfig is there)"


def _port(host: Host, wanted: int | None, taken: Mapping[int, str]) -> int:
    used = listening_ports(host)
    if wanted is None:
        free = (each for each in range(FIRST_PORT, _LAST_PORT) if each not in used | taken.keys())
        if (port := next(free, None)) is None:
            raise BoardError(f"{host.name}: no port from {FIRST_PORT} to {_LAST_PORT} is free.")
        return port
    if wanted in taken:
        raise UsageError(
            f"--listen: port {wanted} of {host.name} is used by its service {taken[wanted]}.",
            "Choose another port, or omit it for a free one.",
        )
    if wanted in used:
        listed = ", ".join(str(each) for each in sorted(used))
        raise UsageError(
            f"--listen: port {wanted} of {host.name} is in use.",
            f"Choose another one, or omit it for a free one. In use: {listed}.",
        )
    return wanted
