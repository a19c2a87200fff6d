"""This machine as a board: its own shell behind a loopback OpenSSH, programs under qemu-user.

It is quick, and it has SFTP. Memory, storage and processes that it shows are this machine's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from armload.boards.board import Board, EmulatedReach, SshAddress
from armload.boards.virtual.packages import (
    WITHOUT_APT,
    folder_written_whole,
    native_architecture,
    packages_locked,
    updated_apt,
)
from armload.boards.virtual.process import Started, free_port, ssh_answers
from armload.boards.virtual.qemu import Qemu, cpus_listed, fetch_program, knows_cpu, private_program
from armload.boards.virtual.state import (
    Powered,
    address_of,
    keep,
    last_lines,
    machine_folder,
    machine_keys,
    mark_off,
    powered_machines,
    powered_state,
)
from armload.core.errors import ConnectError, MissingToolError, UsageError
from armload.core.files import written_in
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.shell import join
from armload.core.workspace import cache_folder

_PROGRAM = "qemu-aarch64"
_START_LIMIT_S = 10.0
_PORT_ATTEMPTS = 3
_PRIVILEGE_FOLDER = Path("/run/sshd")


def up(board: Board, progress: Progress) -> SshAddress:
    """Start the board's SSH server, unless it runs; it stays when armload ends.

    Raises:
        ConnectError: the server does not start; with its last lines.
        MissingToolError: OpenSSH or qemu-user cannot be had.
        DiskError: this machine's disk is full.
        UsageError: the board is not of this kind.
    """
    reach = _reach(board)
    folder = machine_folder(board)
    powered = powered_state(folder)
    if powered is None:
        waiting = f"Another armload process is starting {board.name}; waiting for it."
        with written_in(folder), locked(folder / "lock", progress, waiting=waiting):
            powered = powered_state(folder)
            if powered is None:
                with packages_locked(progress):
                    _emulator(reach.cpu, progress)
                    server = _server(progress)
                powered = _switched_on(server, folder.resolve())
    return _address(reach, folder, powered)


def running(board: Board) -> SshAddress | None:
    """Return where the board's SSH server is; none when it does not run."""
    folder = machine_folder(board)
    powered = powered_state(folder)
    return None if powered is None else _address(_reach(board), folder, powered)


def down(board: Board) -> bool:
    """End the board's SSH server and its open connections; say whether it ran.

    Raises:
        UsageError: the board is not of this kind.
    """
    import psutil

    _reach(board)
    machines = powered_machines(board)
    for folder, powered in machines:
        with contextlib.suppress(psutil.Error):
            for session in psutil.Process(powered.process.pid).children():
                session.terminate()
        powered.process.end()
        mark_off(folder)
    return bool(machines)


def _reach(board: Board) -> EmulatedReach:
    if not isinstance(board.reach, EmulatedReach):
        raise UsageError(f"The board {board.name!r} is not a qemu-user board.")
    return board.reach


def _address(reach: EmulatedReach, folder: Path, powered: Powered) -> SshAddress:
    launcher = (_emulator_path(reach.cpu), "-cpu", reach.cpu)
    return address_of(folder, powered, user=_user(), launcher=launcher)


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _fetched_emulator() -> Path:
    return cache_folder().resolve() / "packages" / _PROGRAM / _PROGRAM


def _emulator_path(cpu: str) -> str:
    """Return the emulator: the fetched one, which is there only if the installed one won't do."""
    fetched = _fetched_emulator()
    if fetched.exists():
        return str(fetched)
    installed = shutil.which(_PROGRAM)
    if installed is None:
        raise MissingToolError(
            f"{_PROGRAM}, which runs programs for {cpu}, is no longer installed."
        )
    return installed


def _emulator(cpu: str, progress: Progress) -> None:
    """Make sure of a qemu-user that knows a CPU."""
    installed = shutil.which(_PROGRAM)
    if installed is not None and knows_cpu(Qemu(words=(installed,)), cpu):
        return
    fetched = _fetched_emulator()
    if not fetched.exists():
        if shutil.which("apt-get") is None:
            lack = f"is older than {cpu}" if installed else "is not installed"
            raise MissingToolError(f"{_PROGRAM} {lack}.", WITHOUT_APT)
        with (
            updated_apt(native_architecture(), progress) as apt,
            folder_written_whole(fetched.parent) as fresh,
            tempfile.TemporaryDirectory(dir=fresh) as name,
        ):
            apt.unpack(apt.alone(["qemu-user"]), Path(name), progress)
            shutil.copy2(Path(name, "usr/bin", _PROGRAM), fresh / _PROGRAM)
    emulator = Qemu(words=(str(fetched),))
    if not knows_cpu(emulator, cpu):
        raise MissingToolError(
            f"No installed qemu-user supports the CPU {cpu!r}.", cpus_listed(emulator, cpu)
        )


def _server(progress: Progress) -> tuple[str, ...]:
    """Return the words that start an OpenSSH server: the installed one, or a fetched one.

    Raises:
        MissingToolError: none can be had; or the user is root and the system has no account
            for the server's unprivileged half, which only an installation makes.
    """
    installed = shutil.which("sshd", path=os.pathsep.join([*os.get_exec_path(), "/usr/sbin"]))
    if installed is not None:
        return (installed,)
    if os.getuid() == 0 and not _has_account("sshd"):
        raise MissingToolError(
            "OpenSSH's server, which root needs for this board, is not installed.",
            "Install the package openssh-server, or run armload as an ordinary user.",
        )
    folder = cache_folder().resolve() / "packages" / "openssh-server"
    if not folder.exists():
        if shutil.which("apt-get") is None:
            raise MissingToolError(
                "OpenSSH's server (sshd) is not on this machine.", "Install OpenSSH's server."
            )
        fetch_program(folder, ("openssh-server",), progress)
    return private_program(folder, "sshd")


def _has_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _switched_on(server: tuple[str, ...], folder: Path) -> Powered:
    folder.chmod(0o700)
    if os.getuid() == 0:
        _PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    keys = machine_keys(folder)
    authorized = folder / "authorized_keys"
    authorized.write_text(keys.client.public + "\n", encoding="ascii")
    pid_file, log = folder / "sshd.pid", folder / "sshd.log"
    for _ in range(_PORT_ATTEMPTS):
        port = free_port()
        pid_file.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        lines = {
            "Port": port,
            "ListenAddress": "127.0.0.1",
            "HostKey": _quoted(keys.host.private.resolve()),
            "AuthorizedKeysFile": _quoted(authorized).replace("%", "%%"),
            "PidFile": _quoted(pid_file),
            "UsePAM": "no",
            "StrictModes": "no",
            "AuthenticationMethods": "publickey",
            "PermitRootLogin": "prohibit-password",
            "AllowUsers": _user(),
            "MaxSessions": 64,
            "MaxStartups": 64,
            "PrintMotd": "no",
            # An outermost bash reads the start files of its person for each command.
            "SetEnv": "SHLVL=2",
            "Subsystem": "sftp internal-sftp",
            **_helper_settings(server, folder),
        }
        config = folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        done = subprocess.run(
            [*server, "-f", str(config), "-E", str(log)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        if done.returncode != 0:
            raise ConnectError(f"sshd did not start: {done.stderr.strip()} {last_lines(log)}")
        process = _awaited(pid_file, port, log)
        if process is not None:
            return keep(folder, Powered(process=process, port=port, answered=True))
    raise ConnectError(f"sshd did not start: {last_lines(log)}")


def _quoted(path: Path) -> str:
    """Write a path as one word of the server's configuration."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _awaited(pid_file: Path, port: int, log: Path) -> Started | None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if pid_file.exists() and ssh_answers(port, 1.0):
            return Started.of(int(pid_file.read_text(encoding="ascii")))
        if log.exists() and "Cannot bind" in log.read_text(encoding="utf-8", errors="replace"):
            return None
        time.sleep(0.02)
    return None


def _helper_settings(server: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Return where a fetched server's helpers are; like itself they need their own loader."""
    if len(server) == 1:
        return {}
    settings = {}
    libraries = Path(server[-1]).parent.parent / "lib" / "openssh"
    for key, name in (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth")):
        if (libraries / name).exists():
            wrapper = folder / name
            words = join([*server[:-1], libraries / name])
            wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
            wrapper.chmod(0o700)
            settings[key] = _quoted(wrapper)
    return settings
