"""Virtual boards: switching them on and off."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from armload.boards.address import SshAddress
from armload.boards.board import Board, VirtualReach
from armload.boards.virtual.image import image_for_boards
from armload.boards.virtual.keys import dropbear_form
from armload.boards.virtual.packages import packages_locked
from armload.boards.virtual.process import Started, free_port, ssh_answers
from armload.boards.virtual.qemu import (
    GUEST_ADDRESS,
    Qemu,
    Wiring,
    command_line,
    qemu_for,
    start,
)
from armload.boards.virtual.qmp import Qmp
from armload.boards.virtual.state import (
    DISK,
    Powered,
    address_of,
    has_disk_open,
    keep,
    last_lines,
    machine_folder,
    machine_keys,
    mark_off,
    powered_machines,
    powered_state,
    socket_path,
)
from armload.boards.virtual.storage import make_disk, root_archive
from armload.core.disk import written_in
from armload.core.errors import ArmloadError, ConnectError, UsageError
from armload.core.files import write_whole
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.shell import render

BOOT_LIMIT_S = 120.0
"""A machine that has not answered by then never will, even on a busy workstation."""

_POWER_OFF_LIMIT_S = 15.0
_PORT_ATTEMPTS = 3


def up(board: Board, progress: Progress) -> SshAddress:
    """Switch a virtual board on and wait until its SSH server answers.

    A board that is on already is left alone. It stays on when armload ends.

    Raises:
        ConnectError: it does not come up; with the last lines from its console.
        MissingToolError: QEMU or the packages cannot be had.
        DiskError: this machine's disk is full.
        UsageError: the board is not a virtual one.
    """
    reach = _reach(board)
    folder = machine_folder(board)
    address = running(board)
    if address is not None:
        return address
    waiting = f"Another armload process is starting {board.name}; waiting for it."
    with written_in(folder), locked(folder / "lock", progress, waiting=waiting):
        powered = powered_state(folder)
        if powered is None:
            powered = _switched_on(board, reach, folder, progress)
        if not powered.answered:
            powered = _awaited(board, folder, powered, progress)
    return _address(folder, powered)


def running(board: Board) -> SshAddress | None:
    """Return where the board's SSH server is; none when the board is off or still boots."""
    folder = machine_folder(board)
    powered = powered_state(folder)
    return _address(folder, powered) if powered is not None and powered.answered else None


def has_storage(board: Board) -> bool:
    """Say whether the machine was ever switched on, and may hold something."""
    return (machine_folder(board) / DISK).exists()


def down(board: Board) -> bool:
    """Switch a virtual board off, with its storage in order; say whether it was on.

    A machine that was started before the board's file was edited is switched off, too.

    Raises:
        UsageError: the board is not a virtual one.
    """
    _reach(board)
    machines = powered_machines(board)
    for folder, powered in machines:
        _switched_off(folder, powered)
    return bool(machines)


def _reach(board: Board) -> VirtualReach:
    if not isinstance(board.reach, VirtualReach):
        raise UsageError(
            f"The board {board.name!r} is not a virtual board: armload cannot switch it on or off."
        )
    return board.reach


def _address(folder: Path, powered: Powered) -> SshAddress:
    return address_of(folder, powered, user="root")


def _switched_on(board: Board, reach: VirtualReach, folder: Path, progress: Progress) -> Powered:
    with packages_locked(progress):
        image = image_for_boards(progress)
        qemu = qemu_for(reach.cpu, progress)
    folder = folder.resolve()
    folder.chmod(0o700)
    _end_orphaned(folder)
    if has_disk_open(folder):
        raise ConnectError(
            f"The virtual board {board.name!r} is on, but its machine is a process of another "
            "container.",
            f"Use it there, or switch it off there: armload board.down --board {board.name}",
        )
    wiring = Wiring(
        kernel=image.kernel.resolve(),
        initramfs=folder / "initramfs.cpio",
        disk=folder / DISK,
        port=0,
        qmp=socket_path(folder, "qmp"),
        console=socket_path(folder, "console"),
        console_log=folder / "console.log",
        qemu_log=folder / "qemu.log",
        pid_file=folder / "qemu.pid",
    )
    if not wiring.disk.exists():
        make_disk(wiring.disk, reach.disk)
    write_whole(wiring.initramfs, image.base.read_bytes() + _own_root(board, folder))
    wiring.console_log.unlink(missing_ok=True)
    return keep(folder, _started(board, reach, qemu, wiring))


def _own_root(board: Board, folder: Path) -> bytes:
    keys = machine_keys(folder)
    init = render("virtual/init.sh.j2", {"hostname": board.name, "address": GUEST_ADDRESS})
    return root_archive(init, dropbear_form(keys.host.private), keys.client.public)


def _started(board: Board, reach: VirtualReach, qemu: Qemu, wiring: Wiring) -> Powered:
    for _ in range(_PORT_ATTEMPTS):
        port = free_port()
        wired = wiring.model_copy(update={"port": port})
        try:
            start(qemu, command_line(qemu, reach, wired, board.name), wiring.qemu_log)
        except ConnectError as error:
            if "host forwarding" not in error.message:
                raise
            continue  # someone took the port in between
        process = Started.of(int(wiring.pid_file.read_text(encoding="ascii")))
        if process is None:
            raise ConnectError(f"QEMU exited immediately: {last_lines(wiring.qemu_log)}")
        return Powered(process=process, port=port, answered=False)
    raise ConnectError("No free port on the loopback interface.")


def _end_orphaned(folder: Path) -> None:
    """End a QEMU of this machine whose start was interrupted before its state was kept."""
    import psutil

    pid_file = folder / "qemu.pid"
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        pid = int(pid_file.read_text(encoding="ascii"))
        process = Started.of(pid)
        if process is not None and str(pid_file) in psutil.Process(pid).cmdline():
            process.end()


def _awaited(board: Board, folder: Path, powered: Powered, progress: Progress) -> Powered:
    began = time.monotonic()
    with progress.step(f"Booting {board.name}"):
        while not ssh_answers(powered.port, 0.5):
            waited_s = time.monotonic() - began
            if not powered.process.is_alive():
                raise ConnectError(
                    f"The virtual board {board.name!r} went off during boot: "
                    f"{last_lines(folder / 'console.log')}",
                    f"The complete log is in {folder}.",
                )
            if waited_s > BOOT_LIMIT_S:
                powered.process.end()
                raise ConnectError(
                    f"The virtual board {board.name!r} did not boot within {BOOT_LIMIT_S:.0f} s: "
                    f"{last_lines(folder / 'console.log')}",
                    f"The complete log is in {folder}.",
                )
            time.sleep(0.05)
    return keep(folder, powered.model_copy(update={"answered": True}))


def _switched_off(folder: Path, powered: Powered) -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.connect(str(socket_path(folder, "console")))
        line.sendall(b"\npoweroff\n")
        powered.process.wait_gone(_POWER_OFF_LIMIT_S if powered.answered else 1.0)
    if powered.process.is_alive():
        with contextlib.suppress(ArmloadError), Qmp(socket_path(folder, "qmp")) as control:
            control.execute("quit")
            powered.process.wait_gone(3.0)
    powered.process.end()
    mark_off(folder)
