"""Virtual boards: switching them on and off, pulling their cable, slowing their disk.

Protocol: "QEMU Machine Protocol Specification" of QEMU's documentation.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from armload.boards.board import Board, SshAddress, VirtualReach
from armload.boards.virtual.image import image_for_boards
from armload.boards.virtual.process import Started, free_port, ssh_answers
from armload.boards.virtual.qemu import GUEST_ADDRESS, Qemu, Wiring, command_line, qemu_for, start
from armload.boards.virtual.state import (
    DISK,
    MachineState,
    address_of,
    dropbear_form,
    has_disk_open,
    keep,
    last_lines,
    machine_folder,
    machine_keys,
    machine_state,
    mark_off,
    running_machines,
    socket_path,
)
from armload.boards.virtual.storage import make_disk, root_archive
from armload.core.errors import ArmloadError, BoardError, ConnectError, UsageError
from armload.core.files import write_whole, written_in
from armload.core.locks import locked
from armload.core.packages import packages_locked
from armload.core.private_programs import mke2fs
from armload.core.progress import Progress
from armload.core.shell import render

_ANSWER_LIMIT_S = 5.0


class Qmp:
    """A session with one running QEMU.

    Args:
        path: its control socket.

    Raises:
        BoardError: nothing answers there.
    """

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_LIMIT_S)
        try:
            self._socket.connect(str(path))
            self._lines = self._socket.makefile("rb")
            self._lines.readline()
        except OSError as error:
            self._socket.close()
            raise BoardError(f"QEMU does not answer at {path}: {error}.") from error
        self.execute("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._socket.close()

    def execute(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        message = {"execute": command, "arguments": dict(arguments or {})}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            while line := self._lines.readline():
                answer = json.loads(line)
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise BoardError(f"QEMU refuses {command}: {answer['error']['desc']}.")
        except OSError as error:
            raise BoardError(f"QEMU does not answer {command}: {error}.") from error
        raise BoardError(f"QEMU exited before it answered {command}.")


BOOT_LIMIT_S = 120.0
"""A machine that has not answered by then never will, even on a busy workstation."""

_POWER_OFF_LIMIT_S = 15.0
_PORT_ATTEMPTS = 3


def up(board: Board, progress: Progress) -> SshAddress:
    """Switch a virtual board on and wait until its SSH server answers.

    A board that is on already is left alone. It stays on when armload ends.
    """
    reach = _reach(board)
    folder = machine_folder(board)
    address = running(board)
    if address is not None:
        return address
    waiting = f"Another armload process is starting {board.name}; waiting for it."
    with written_in(folder), locked(folder / "lock", progress, waiting=waiting):
        powered = machine_state(folder)
        if powered is None:
            powered = _switched_on(board, reach, folder, progress)
        if not powered.answered:
            powered = _awaited(board, folder, powered, progress)
    return address_of(folder, powered)


def running(board: Board) -> SshAddress | None:
    """Return where the board's SSH server is; none when the board is off or still boots."""
    folder = machine_folder(board)
    powered = machine_state(folder)
    return address_of(folder, powered) if powered is not None and powered.answered else None


def emulator(board: Board) -> Started | None:
    """Return the process that emulates a virtual board; none when that is off."""
    powered = machine_state(machine_folder(board))
    return powered.process if powered is not None else None


def has_storage(board: Board) -> bool:
    """Say whether the machine was ever switched on, and may hold something."""
    return (machine_folder(board) / DISK).exists()


def down(board: Board) -> bool:
    """Switch a virtual board off, with its storage in order; say whether it was on.

    A machine that was started before the board's file was edited is switched off, too.
    """
    _reach(board)
    machines = running_machines(board)
    for folder, powered in machines:
        keep(folder, powered.model_copy(update={"is_stopping": True}))
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
    return bool(machines)


def _reach(board: Board) -> VirtualReach:
    if not isinstance(board.reach, VirtualReach):
        raise UsageError(
            f"{board.name} is not a virtual board: armload cannot switch it on or off.",
            "Name a virtual one with --board. To list them: armload board.list",
        )
    return board.reach


def _switched_on(
    board: Board, reach: VirtualReach, folder: Path, progress: Progress
) -> MachineState:
    with packages_locked(progress):
        image = image_for_boards(progress)
        qemu = qemu_for(reach.cpu, progress)
        disk_maker = () if (folder / DISK).exists() else mke2fs(progress)
    import psutil

    folder = folder.resolve()
    folder.chmod(0o700)
    pid_file = folder / "qemu.pid"
    # A QEMU of this machine may run whose start was interrupted before its state was kept.
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        pid = int(pid_file.read_text(encoding="ascii"))
        process = Started.of(pid)
        if process is not None and str(pid_file) in psutil.Process(pid).cmdline():
            process.end()
    if has_disk_open(folder):
        raise ConnectError(
            f"The virtual board {board.name!r} is on, but it runs in another container.",
            f"Use it there, or stop it there: armload board.down --board {board.name}",
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
    if disk_maker:
        make_disk(wiring.disk, reach.disk, disk_maker)
    keys = machine_keys(folder)
    init = render("virtual/init.sh.j2", {"hostname": board.name, "address": GUEST_ADDRESS})
    rc = render("virtual/rcS.sh.j2", {})
    own_root = root_archive(init, rc, dropbear_form(keys.host.private), keys.client.public)
    write_whole(wiring.initramfs, image.base.read_bytes() + own_root)
    wiring.console_log.unlink(missing_ok=True)
    return keep(folder, _started(board, reach, qemu, wiring))


def _started(board: Board, reach: VirtualReach, qemu: Qemu, wiring: Wiring) -> MachineState:
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
        return MachineState(process=process, port=port, answered=False)
    raise ConnectError("No free port on the loopback interface.")


def _awaited(board: Board, folder: Path, powered: MachineState, progress: Progress) -> MachineState:
    began = time.monotonic()
    with progress.step(f"Booting {board.name}"):
        while not ssh_answers(powered.port, 0.5):
            waited_s = time.monotonic() - began
            if not powered.process.is_alive():
                raise ConnectError(
                    f"The virtual board {board.name!r} stopped during boot: "
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
