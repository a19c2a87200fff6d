"""Virtual boards: switching them on and off."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import time
from pathlib import Path

from armload.boards.address import SshAddress
from armload.boards.board import Board, VirtualReach
from armload.boards.virtual import image as images
from armload.boards.virtual import qemu as qemus
from armload.boards.virtual.keys import KeyPair, dropbear_form, key_pair
from armload.boards.virtual.process import Started, free_port, locked, ssh_answers
from armload.boards.virtual.qmp import Qmp
from armload.boards.virtual.storage import make_disk, root_archive
from armload.core.errors import ArmloadError, ConnectError, UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.shell import render
from armload.core.values import Value
from armload.core.workspace import cache_folder, workspace

BOOT_LIMIT_S = 120.0
"""A machine that has not answered by then never will, even on a busy laptop."""

_USUAL_BOOT_S = 5.0
_POWER_OFF_LIMIT_S = 15.0
_LONGEST_SOCKET_PATH = 100  # the systems' limits are 104 and 108 bytes


class _Powered(Value):
    process: Started
    port: int
    answered: bool


def up(board: Board, progress: Progress) -> SshAddress:
    """Switch a virtual board on and wait until its SSH server answers.

    A board that is on already is left alone. It stays on when armload ends.

    Raises:
        ConnectError: it does not come up; with the last lines from its console.
        MissingToolError: QEMU or the packages cannot be had.
        UsageError: the board is not a virtual one.
    """
    reach = _reach(board)
    folder = machine_folder(board)
    powered = _powered(folder)
    if powered is not None and powered.answered:
        return _address(folder, powered)
    with locked(folder / "lock", progress):
        powered = _powered(folder)
        if powered is None:
            powered = _switched_on(board, reach, folder, progress)
        if not powered.answered:
            powered = _awaited(board, folder, powered, progress)
    return _address(folder, powered)


def running(board: Board) -> SshAddress | None:
    """Return where the board's SSH server is; none when the board is off."""
    folder = machine_folder(board)
    powered = _powered(folder)
    return None if powered is None else _address(folder, powered)


def down(board: Board) -> bool:
    """Switch a virtual board off, with its storage in order; say whether it was on.

    Whatever the board's file said before it was edited: all machines that were started for
    it in this workspace are switched off.
    """
    own = machine_folder(board)
    was_on = False
    for folder in sorted(own.parent.glob(own.name.rpartition("-")[0] + "-*")):
        powered = _powered(folder)
        if powered is not None:
            was_on = True
            _switched_off(folder, powered)
    return was_on


def machine_folder(board: Board) -> Path:
    """Return where a machine's disk, keys and state are: one for each board and workspace."""
    where = hashlib.sha256(str(workspace().resolve()).encode()).hexdigest()[:8]
    what = hashlib.sha256(_reach(board).model_dump_json().encode()).hexdigest()[:8]
    return cache_folder() / "machines" / f"{board.name}-{where}-{what}"


def qmp_path(board: Board) -> Path:
    """Return the socket of a running board's QEMU, for tests that make faults."""
    return _socket_path(machine_folder(board), "qmp")


def _reach(board: Board) -> VirtualReach:
    if not isinstance(board.reach, VirtualReach):
        raise UsageError(f"The board {board.name!r} is no virtual one; it cannot be switched.")
    return board.reach


def _powered(folder: Path) -> _Powered | None:
    """Return the machine's state, provided that the process which we started has the port."""
    try:
        powered = _Powered.model_validate_json((folder / "machine.json").read_bytes())
    except (OSError, ValueError):
        return None
    alive = powered.process.is_alive() and powered.process.listens_on(powered.port)
    return powered if alive else None


def _address(folder: Path, powered: _Powered) -> SshAddress:
    keys = _keys(folder)
    return SshAddress(
        host="127.0.0.1",
        port=powered.port,
        user="root",
        key=keys[1].private,
        host_key=keys[0].public,
    )


def _keys(folder: Path) -> tuple[KeyPair, KeyPair]:
    return key_pair(folder / "host_key"), key_pair(folder / "client_key")


def _switched_on(board: Board, reach: VirtualReach, folder: Path, progress: Progress) -> _Powered:
    with locked(cache_folder() / "packages" / "lock", progress):
        image = images.image(progress)
        qemu = qemus.qemu_for(reach.cpu, progress)
    folder.chmod(0o700)
    disk = folder / "disk.img"
    if not disk.exists():
        make_disk(disk, reach.disk)
    host_key, client_key = _keys(folder)
    init = render("virtual/init.sh.j2", {"hostname": board.name, "address": qemus.GUEST_ADDRESS})
    own = root_archive(init, dropbear_form(host_key.private), client_key.public)
    initramfs = folder / "initramfs.cpio"
    write_whole(initramfs, image.base.read_bytes() + own)
    for port in (free_port(), free_port(), free_port()):
        wiring = qemus.Wiring(
            kernel=image.kernel.resolve(),
            initramfs=initramfs.resolve(),
            disk=disk.resolve(),
            port=port,
            qmp=_socket_path(folder, "qmp"),
            console=_socket_path(folder, "console"),
            console_log=folder.resolve() / "console.log",
            qemu_log=folder.resolve() / "qemu.log",
            pid_file=folder.resolve() / "qemu.pid",
        )
        wiring.console_log.unlink(missing_ok=True)
        try:
            qemus.start(qemu, qemus.command_line(qemu, reach, wiring, board.name))
        except ConnectError as error:
            if "host forwarding" not in error.message:
                raise
            continue  # someone took the port in between
        process = Started.of(int(wiring.pid_file.read_text(encoding="ascii")))
        if process is None:
            raise ConnectError(f"QEMU ended at once: {_last_lines(wiring.qemu_log)}")
        powered = _Powered(process=process, port=port, answered=False)
        _write_state(folder, powered)
        return powered
    raise ConnectError("No free port was to be had on the loopback interface.")


def _awaited(board: Board, folder: Path, powered: _Powered, progress: Progress) -> _Powered:
    began = time.monotonic()
    with progress.step(f"Booting {board.name}", total=_USUAL_BOOT_S, unit="s") as step:
        while not ssh_answers(powered.port, 0.5):
            waited_s = time.monotonic() - began
            console = _last_lines(folder / "console.log")
            if not powered.process.is_alive():
                raise ConnectError(
                    f"The virtual board {board.name!r} went off while it booted: {console}",
                    f"The whole log is in {folder}.",
                )
            if waited_s > BOOT_LIMIT_S:
                powered.process.end()
                raise ConnectError(
                    f"The virtual board {board.name!r} did not boot within {BOOT_LIMIT_S:.0f} s: "
                    f"{console}",
                    f"The whole log is in {folder}.",
                )
            step.update(waited_s, total=max(_USUAL_BOOT_S, waited_s))
            time.sleep(0.05)
    ready = powered.model_copy(update={"answered": True})
    _write_state(folder, ready)
    return ready


def _switched_off(folder: Path, powered: _Powered) -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.connect(str(_socket_path(folder, "console")))
        line.sendall(b"\npoweroff\n")
        powered.process.wait_gone(_POWER_OFF_LIMIT_S if powered.answered else 1.0)
    if powered.process.is_alive():
        with contextlib.suppress(ArmloadError), Qmp(_socket_path(folder, "qmp")) as control:
            control.execute("quit")
            powered.process.wait_gone(3.0)
    powered.process.end()
    (folder / "machine.json").unlink(missing_ok=True)


def _write_state(folder: Path, powered: _Powered) -> None:
    write_whole(folder / "machine.json", powered.model_dump_json(indent=1).encode())


def _socket_path(folder: Path, name: str) -> Path:
    """Return a path that is short enough for a socket, in a folder that only we can enter."""
    beside = folder.resolve() / f"{name}.sock"
    if len(os.fsencode(beside)) <= _LONGEST_SOCKET_PATH:
        return beside
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    private = runtime / f"armload-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    status = private.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ConnectError(f"{private} belongs to someone else.", "Set XDG_RUNTIME_DIR.")
    short = hashlib.sha256(os.fsencode(beside)).hexdigest()[:16]
    return private / f"{short}.{name}"


def _last_lines(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "it said nothing."
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-5:]) or "it said nothing."
