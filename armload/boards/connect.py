"""From a board's file to a live connection, whatever kind of board it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from armload.boards.board import (
    AdbReach,
    Board,
    HdcReach,
    LocalReach,
    RelayedBoard,
    SshAddress,
    SshReach,
    VirtualReach,
)
from armload.boards.failures import PoweredOffError
from armload.boards.host import Host
from armload.boards.trust import ssh_address
from armload.core.progress import Progress

if TYPE_CHECKING:
    from armload.boards.virtual.state import MachineState

_GREETS_WITHIN_S = 2.0


def connect(board: Board, progress: Progress) -> Host:
    """Reach a board; a virtual one is started when it is not up.

    The connection itself is opened by the first command.
    """
    if isinstance(board, RelayedBoard):
        return board.relay.connect(progress)
    match board.reach:
        case LocalReach():
            from armload.boards.local import LocalHost

            return LocalHost(board.name, board.reach.launcher)
        case HdcReach():
            from armload.boards.hdc import HdcHost

            return HdcHost(board.reach, board.name)
        case AdbReach():
            from armload.boards.adb import AdbHost

            return AdbHost(board.reach, board.name)
        case SshReach():
            from armload.boards.ssh import SshHost
            from armload.boards.ssh_config import ignored_lines

            for line in ignored_lines():
                if line not in _mentioned:
                    _mentioned.add(line)
                    progress.say(
                        f"{line} (ignored: only OpenSSH's ssh supports it, and ssh is not in PATH)"
                    )
            return SshHost(ssh_address(board), board.name)
        case VirtualReach():
            from armload.boards.ssh import SshHost
            from armload.boards.virtual import machine

            address = machine.running(board)
            if address is None:
                progress.say(
                    f"{board.name} is not up; starting it. To stop it later: "
                    f"armload board.down --board {board.name}"
                )
                address = machine.up(board, progress)
            return SshHost(address, board.name, lambda: _went_off(board, address))
        case _:
            assert_never(board.reach)


_mentioned: set[str] = set()


def start(board: Board, progress: Progress) -> SshAddress:
    """Start a virtual board, if it is not up, and say how to reach it.

    Raises:
        ConnectError: QEMU refuses, or the machine does not boot.
    """
    from armload.boards.virtual import machine

    return machine.up(board, progress)


def running_address(board: Board) -> SshAddress | None:
    """Return how a virtual board is reached; none while it is off, and of any other board."""
    if not isinstance(board.reach, VirtualReach):
        return None
    from armload.boards.virtual import machine

    return machine.running(board)


def check_not_stopped(board: Board) -> None:
    """Return unless somebody has stopped a virtual board that was on.

    Raises:
        PoweredOffError: somebody has.
    """
    if isinstance(board, RelayedBoard) or not is_off(board):
        return
    from armload.boards.virtual.state import machine_folder, was_stopped

    if was_stopped(machine_folder(board)):
        raise PoweredOffError(
            f"The virtual board {board.name!r} was stopped with board.down.",
            "Repeat the command to start it again.",
        )


def is_blank(board: Board, progress: Progress) -> bool:
    """Say whether nothing can lie on a board: a virtual one that this workspace never started."""
    if not isinstance(board.reach, VirtualReach):
        return False
    from armload.boards.virtual.machine import has_storage

    if has_storage(board):
        return False
    progress.say(f"{board.name} was never started in this workspace, so it holds no data.")
    return True


def is_off(board: Board) -> bool:
    """Say whether a board is a virtual one that does not run."""
    if isinstance(board, RelayedBoard):
        return board.relay.is_off()
    return isinstance(board.reach, VirtualReach) and running_address(board) is None


def is_running(board: Board) -> bool | None:
    """Say whether a virtual board runs, even as its file was before.

    None for a real board, and where the cache is somebody else's, who keeps it to themselves.
    """
    found = _running_machines(board)
    return None if found is None else bool(found)


def running_hosts(board: Board) -> list[Host]:
    """Return the machines of a virtual board that run and answer; one, unless its file changed."""
    found = _running_machines(board)
    if not found:
        return []
    from armload.boards.ssh import SshHost
    from armload.boards.virtual.process import ssh_answers
    from armload.boards.virtual.state import address_of

    return [
        SshHost(address_of(folder, powered), board.name)
        for folder, powered in found
        if ssh_answers(powered.port, _GREETS_WITHIN_S)
    ]


def _running_machines(board: Board) -> list[tuple[Path, MachineState]] | None:
    if not isinstance(board.reach, VirtualReach):
        return None
    from armload.boards.virtual.state import running_machines

    try:
        return running_machines(board)
    except PermissionError:
        return None


def stop(board: Board) -> bool:
    from armload.boards.virtual import machine

    return machine.down(board)


def _went_off(board: Board, reached: SshAddress) -> PoweredOffError | None:
    """Return the error for a machine that was reached and is no more; one that reboots still is."""
    from armload.boards.virtual import machine

    now = machine.running(board)
    if now == reached:
        return None
    if now is None:
        return PoweredOffError(
            f"The virtual board {board.name!r} is off.",
            f"Start it, then repeat the command: armload board.up --board {board.name}",
        )
    return PoweredOffError(
        f"The virtual board {board.name!r} was restarted in the meantime.", "Repeat the command."
    )
