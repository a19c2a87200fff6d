"""A group: a file in ``boards/`` whose members run one model together."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated

from pydantic import AfterValidator, field_validator

from armload.boards.board import Board, is_group, load_board
from armload.core.deciding import DECIDES, Words
from armload.core.errors import ForbiddenValueError, UsageError
from armload.core.values import Value
from armload.core.yamlfile import load_named

PRIVATE = tuple(
    map(
        IPv4Network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10"),
    )
)
"""RFC 1918; RFC 3927, which a USB cable between two boards has; RFC 6598, which Tailscale takes."""


def _is_private(network: IPv4Network) -> IPv4Network:
    if any(network.subnet_of(each) for each in PRIVATE):
        return network
    allowed = ", ".join(map(str, PRIVATE))
    raise ValueError(
        f"{network} is not private, and ggml's RPC server has no authentication; use an address or "
        f"network in {allowed}"
    )


class Group(Value):
    """What the file of a group says.

    Attributes:
        name: the file's name.
        description: one line for people.
        members: names of boards with the same target. The first runs the program and stores the
            model; the others compute a part of it for the first.
        listen: a private address, or the network that has the others' addresses, on which their
            RPC servers listen for the first member. Whoever reaches that network can use them
            during a run. Without it they listen on loopback, and armload forwards.
    """

    name: Words
    description: Words = ""
    members: tuple[Words, ...]
    listen: Annotated[Annotated[IPv4Network, AfterValidator(_is_private)] | None, DECIDES] = None

    @field_validator("members")
    @classmethod
    def _suit_each_other(cls, members: tuple[str, ...]) -> tuple[str, ...]:
        if len(members) < 2:
            raise ValueError("a group has two members or more")
        for name in members:
            if members.count(name) > 1:
                raise ValueError(f"{name} is listed twice")
        try:
            boards = [load_board(name) for name in members]
        except UsageError as error:
            raise ForbiddenValueError.of(error) from error
        for board in boards[1:]:
            if board.target != boards[0].target:
                raise ValueError(
                    f"members need the same build, but {boards[0].name} and {board.name} differ in "
                    f"target: {boards[0].target} / {board.target}"
                )
        return members

    @property
    def boards(self) -> tuple[Board, ...]:
        return tuple(load_board(name) for name in self.members)


def load_group(name: str) -> Group:
    return load_named("boards", name, Group)


def members_of(name: str) -> tuple[Board, ...]:
    """Return the boards of the group called ``name``; of a single board, itself.

    Raises:
        UsageError: there is none, or several are named.
    """
    return load_group(name).boards if is_group(name) else (load_board(name),)


def address_in(network: IPv4Network, addresses: str) -> IPv4Address | None:
    """Return the address in a network that a board has, from its ``/proc/net/fib_trie``."""
    before = ""
    for line in addresses.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word in ("|--", "+--"):
            before = rest.partition("/")[0].strip()
        elif line.strip() == "/32 host LOCAL" and IPv4Address(before) in network:
            return IPv4Address(before)
    return None
