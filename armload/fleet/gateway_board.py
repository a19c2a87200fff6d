"""A board of a gateway, as operations for commands elsewhere find it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from armload import __version__
from armload.boards.group import members_of
from armload.core.errors import ArmloadError, UsageError
from armload.core.values import Value
from armload.core.workspace import runs_folder
from armload.engines.engine import Settings
from armload.fleet.events import Relay
from armload.fleet.files import SentBinary
from armload.runs.assemble import read_job
from armload.runs.reach import CONNECTED, ConnectedBoard
from armload.runs.request import Request
from armload.runs.session import Session
from armload.runs.swept import SweptRuns


class BoardRequirements(Value):
    """How a command wants a board to be ready.

    Attributes:
        armload: the command's version.
        target: the board's, for which the programs were built.
        members: of a group; of a single board, itself.
        settings: that runs will ask for.
        answers_within_s: as for ``Reach.open``.
    """

    armload: str = __version__
    target: str
    members: tuple[str, ...]
    request: Request
    settings: tuple[Settings, ...] = ()
    answers_within_s: float | None = None


class GatewayBoard:
    """A board of this gateway, which stays open from one run of a command to the next.

    Args:
        name: of the board, or of a group.
        relay: tells the command how the work stands, and stops it.

    Attributes:
        left: the runs of sweeps that lie here.
        fingerprints: of what has run for the command that has the board open.
    """

    def __init__(self, name: str, relay: Relay) -> None:
        self.name = name
        self.relay = relay
        self.left = SweptRuns(name)
        self.fingerprints: set[str] = set()
        self._open = ExitStack()
        self._opened: tuple[BoardRequirements, Session] | None = None

    def ready(
        self, requirements: BoardRequirements, binaries: Mapping[str, SentBinary]
    ) -> ConnectedBoard:
        """Return the board for one operation, opened unless it meets the requirements already."""
        received = {name: binary.received() for name, binary in binaries.items()}
        if self._opened is None or self._opened[0] != requirements:
            self.close()
            self._check(requirements)
            opened = CONNECTED.open(
                *(requirements.request, (), self.relay),
                settings=requirements.settings,
                takes_groups=True,
                answers_within_s=requirements.answers_within_s,
            )
            self.fingerprints.clear()
            self._opened = (requirements, self._open.enter_context(opened).where)
        where = self._opened[1]
        others = tuple(replace(each, binaries=received) for each in where.other_members)
        where = replace(where, binaries=received, other_members=others)
        return ConnectedBoard(where, self.relay)

    def has_run(self, run: str) -> bool:
        """Say whether it ran for a command; somebody on the gateway may use the board, too."""
        with contextlib.suppress(ArmloadError):
            return read_job(runs_folder() / run).fingerprint in self.fingerprints
        return False

    def close(self) -> None:
        self._opened = None
        with contextlib.suppress(ArmloadError):
            self._open.close()

    def _check(self, requirements: BoardRequirements) -> None:
        try:
            boards = members_of(self.name)
        except UsageError as error:
            raise UsageError(f"On the gateway: {error.message}", _SAME) from error
        members = ", ".join(board.name for board in boards)
        check_same(self.name, "members", members, ", ".join(requirements.members))
        check_same(self.name, "target", boards[0].target, requirements.target)


_SAME = "Use the same board files on both."


def check_same(board: str, what: str, gateways: str, commands: str) -> None:
    """Refuse a board whose file differs in something.

    Raises:
        UsageError: names what.
    """
    if gateways != commands:
        raise UsageError(
            f"{board}: the gateway's file has {what} {gateways}, the command's has {commands}.",
            _SAME,
        )
