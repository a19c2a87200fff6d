"""A board that has no file yet: how it is reached, whether its key is trusted, and what it is."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from armload.core.options import Option, OptionGroup

if TYPE_CHECKING:
    from armload.boards.board import Board, SshReach
    from armload.boards.probe import Probe
    from armload.boards.ssh_connection import ServerKey
    from armload.core.progress import Progress
    from armload.report.boards import AddedBoard


HOST_HELP = "its SSH server, [USER@]HOST: a name, an address, or an alias from ~/.ssh/config"
HOST = Option(HOST_HELP)


class NewBoardOptions(OptionGroup):
    """How a board is reached that has no file yet, and what it is."""

    heading = "Board"

    host: Annotated[str, HOST] = ""
    port: Annotated[
        Annotated[int, Field(ge=1, le=65535)] | None,
        Option("port of the SSH server", "PORT", "22, or as in ~/.ssh/config"),
    ] = None
    user: Annotated[
        str | None,
        Option("user to log in as", "USER", "as in ~/.ssh/config, or your own user name"),
    ] = None
    key: Annotated[Path | None, Option("a private key file", "FILE", "those that ssh tries")] = None
    hardware: Annotated[
        str,
        Option(
            "name of the board's hardware in the catalogue, such as raspberry-pi-5-8gb",
            "NAME",
            "recognised by the board's device name",
            takes="hardware",
            harmless="anywhere",
        ),
    ] = ""
    yes: Annotated[bool, Option("pin an unknown host key without asking")] = False

    def reach(self) -> SshReach:
        """Return how the board is reached; ``--user`` overrides a user in ``--host``.

        A person's default for ``--user`` does not override a user in a ``--host`` that was given.

        Raises:
            UsageError: no host is named, or none can be called so.
        """
        from armload.boards.board import SshReach

        there, _, host = self.host.rpartition("@")
        _check_host(self.host, host)
        is_default = self.given(("host",)) and not self.given(("user",))
        user = there or self.user if is_default else self.user or there
        return SshReach(host=host, port=self.port, user=user or None, key=self.key)


_NOT_IN_A_HOST = frozenset("'`\"$\\;&<>|(){}[]")
"""What OpenSSH refuses in a host's name (``valid_hostname`` in ``ssh.c``), and brackets."""

_WITH_PORT = re.compile(r"(?:\[(?P<address>.+)\]|(?P<name>[^:]+)):(?P<port>[^:]*)")


def _check_host(typed: str, host: str) -> None:
    """Refuse what is no name, alias or address of a host.

    Args:
        typed: the whole of ``--host``.

    Raises:
        UsageError: says how to give it.
    """
    from armload.core.errors import UsageError

    if not host:
        raise UsageError(f"--host {typed!r}: this names no host.", "Example: pi@kitchen")
    is_odd = any(each.isspace() or not each.isprintable() or each == "/" for each in typed)
    if not is_odd and (match := _WITH_PORT.fullmatch(host)):
        alone = typed.removesuffix(host) + (match["address"] or match["name"])
        port = match["port"] if match["port"].isdigit() else "PORT"
        raise UsageError(
            f"--host {typed!r}: the port has an option of its own.",
            f"Use --host {alone} --port {port}.",
        )
    if (
        is_odd
        or host.startswith("-")
        or _NOT_IN_A_HOST.intersection(host)
        or (":" in host and not _is_ipv6(host))
    ):
        raise UsageError(
            f"--host {typed!r}: this is neither the name nor the address of a host.",
            "Give [USER@]HOST, such as pi@kitchen or pi@192.168.1.50, and its port with --port.",
        )


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def add_board(name: str, options: NewBoardOptions, progress: Progress) -> AddedBoard:
    """Probe a board and write its file; ask about its host key if that is unknown.

    Raises:
        UsageError: there is such a board or no such hardware, or its key is not trusted.
        ConnectError: the board does not answer.
        BoardError: programs cannot be run there.
        DiskError: the file cannot be written.
    """
    from armload.boards.adding import check_new, hardware_of, unprobed, write_board
    from armload.boards.contradictions import contradictions
    from armload.boards.failures import ChangedKeyError, UnknownKeyError
    from armload.boards.hardware import load_hardware
    from armload.cli import terminal
    from armload.core.errors import UsageError
    from armload.deploy.compatibility import target_mismatch, targets_that_suit
    from armload.report.boards import AddedBoard
    from armload.report.input_schema import BOARD

    path = check_new(name)
    if options.hardware:
        load_hardware(options.hardware)  # a wrong name is reported before the board is asked
    board = unprobed(name, options.reach())
    try:
        board, found = _probed(board, progress)
    except UnknownKeyError:
        pin_host_key(board, yes=options.yes)
        board, found = _probed(board, progress)
    except ChangedKeyError as error:
        if not terminal.can_ask():  # --yes is for a key that no other one contradicts
            advice = "Run the command on a terminal: it asks whether the new key is the board's."
            raise UsageError(error.message, advice) from error
        terminal.say(error.message)
        pin_host_key(board, yes=False)
        board, found = _probed(board, progress)
    hardware = hardware_of(found, options.hardware)
    target = hardware.hardware.target if hardware else board.target
    if hardware is None or target_mismatch(board.model_copy(update={"target": target}), found):
        target = next(iter(targets_that_suit(board, found)), target)
    added = write_board(path, board, found, hardware, target, comment=BOARD.comment)
    BOARD.write(path.parent)
    return AddedBoard(
        board=added,
        path=path,
        device=found.device,
        contradictions=contradictions(added, found),
    )


def pin_host_key(board: Board, *, yes: bool) -> tuple[Path, ServerKey, str | None]:
    """Show a board's key, and pin it once a person agrees; return its file and what it replaces.

    Raises:
        UsageError: a person does not agree, or cannot be asked.
        ConnectError: the board does not answer.
    """
    from armload.boards.trust import fetch_host_key, pin, pinned_key
    from armload.cli import terminal
    from armload.core.errors import UsageError

    key = fetch_host_key(board)
    former = pinned_key(key)
    is_agreed = yes
    terminal.say(f"Host key of {board.name}: {key.kind} {key.fingerprint}")
    if former is not None and former.line == key.line:
        terminal.say("This key is already pinned.")
        is_agreed = True
    elif former is not None:
        terminal.say(
            f"This replaces the pinned key of {key.host} port {key.port}: {former.kind} "
            f"{former.fingerprint}. Unless the board was reinstalled, another machine may be "
            "impersonating it."
        )
    if not is_agreed and not terminal.can_ask():
        raise UsageError(
            "Nothing was pinned: there is no terminal to confirm it on.",
            "If the fingerprint is the board's, use --yes.",
        )
    if not is_agreed and not terminal.confirm(
        f"Run ssh-keygen -lf {_key_file(key)} on the board. Does it print this fingerprint?"
    ):
        raise UsageError("Nothing was pinned.")
    path = pin(key)
    replaced = former.fingerprint if former is not None and former.line != key.line else None
    return path, key, replaced


def _key_file(key: ServerKey) -> str:
    """Return where OpenSSH keeps a key of that kind."""
    kind = key.kind.removeprefix("ssh-").partition("-")[0]
    return f"/etc/ssh/ssh_host_{kind}_key.pub"


def _probed(board: Board, progress: Progress) -> tuple[Board, Probe]:
    from contextlib import closing

    from armload.boards.adding import probe_new
    from armload.boards.connect import connect

    with closing(connect(board, progress)) as host:
        return probe_new(host, board, progress)
