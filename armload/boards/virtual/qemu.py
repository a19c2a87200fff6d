"""QEMU: finding one that knows the CPU, and its command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from armload.boards.board import VirtualReach
from armload.boards.virtual.state import last_lines
from armload.core.errors import ConnectError, DataError
from armload.core.near_names import nearest_first
from armload.core.private_programs import private_program, unpacked
from armload.core.progress import Progress
from armload.core.values import Value

GUEST_ADDRESS = "10.0.2.15"
_PROGRAM = "qemu-system-aarch64"
# With page table isolation (kpti) QEMU forgets all translated addresses at each system call.
# The kernel that is started there is a 64-bit one.
_32_BIT = re.compile(r"arm\d.*|pxa\d.*|sa\d.*|ti\d.*|cortex-([mr]\d+.*|a([5789]|1[257]|32))")
_KERNEL_OPTIONS = "console=ttyAMA0 quiet loglevel=4 panic=5 kpti=off init_on_alloc=0"


class Qemu(Value):
    """A QEMU that can be started.

    Attributes:
        words: the command, before its options.
        modules: folder of its loadable parts; none for its own default.
    """

    words: tuple[str, ...]
    modules: Path | None = None

    def environment(self) -> dict[str, str]:
        extra = {"QEMU_MODULE_DIR": str(self.modules)} if self.modules else {}
        return {**os.environ, **extra}


class Wiring(Value):
    """Where one machine's files, sockets and ports are.

    Attributes:
        kernel, initramfs: what it boots.
        disk: its storage.
        port: on this machine's loopback, that leads to its SSH server.
        qmp, console: sockets for QEMU's control protocol and for the serial line.
        console_log, qemu_log: the serial console, QEMU's own messages.
        pid_file: written by QEMU.
    """

    kernel: Path
    initramfs: Path
    disk: Path
    port: int
    qmp: Path
    console: Path
    console_log: Path
    qemu_log: Path
    pid_file: Path


def qemu_for(cpu: str, progress: Progress) -> Qemu:
    """Return a QEMU that knows a CPU: the installed one, or else one from Debian packages."""
    installed = shutil.which(_PROGRAM)
    if installed is not None and knows_cpu(Qemu(words=(installed,)), cpu):
        return Qemu(words=(installed,))
    lack = f"{_PROGRAM} is {f'older than {cpu}' if installed else 'not installed'}."
    folder = unpacked("qemu-system-arm", progress, lack=lack, folder=_PROGRAM)
    fetched = Qemu(
        words=(*private_program(folder, _PROGRAM), *("-L", str(folder / "usr/share/qemu"))),
        modules=next(folder.glob("usr/lib/*/qemu"), None),
    )
    if not knows_cpu(fetched, cpu):
        raise DataError(
            f"reach: cpu: QEMU has no 64-bit CPU {cpu!r}.",
            f"{cpus_listed(fetched, cpu)} Change it in the board's file.",
        )
    return fetched


def knows_cpu(qemu: Qemu, cpu: str) -> bool:
    return cpu in _cpus(qemu)


def cpus_listed(qemu: Qemu, wanted: str) -> str:
    """Return a sentence with the CPUs that a QEMU knows, those of a name like this one first."""
    return f"It knows {nearest_first(wanted, _cpus(qemu))}."


def _cpus(qemu: Qemu) -> list[str]:
    done = subprocess.run(
        [*qemu.words, "-cpu", "help"],
        env=qemu.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    # A title, then a line for each with its name and, it may be, a remark.
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(" ")]
    return [words[0] for words in lines if words and not _32_BIT.fullmatch(words[0])]


def command_line(qemu: Qemu, reach: VirtualReach, wiring: Wiring, name: str) -> list[str]:
    """Return the words that start a machine, which leaves the terminal once it is set up.

    The network's only way is from ``wiring.port`` to the machine's SSH server.
    """
    drive = {
        "if": "none",
        "id": "storage",
        "format": "raw",
        "discard": "unmap",
        "file": _escaped(wiring.disk),
    }
    if reach.disk_read_bytes_per_s is not None:
        drive["throttling.bps-read"] = str(reach.disk_read_bytes_per_s)
    forward = f"tcp:127.0.0.1:{wiring.port}-{GUEST_ADDRESS}:22"
    serial = f"socket,id=serial,path={_escaped(wiring.console)},server=on,wait=off"
    return [
        *qemu.words,
        *("-name", f"armload-{_escaped(name)}"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-daemonize"),
        *("-machine", "virt", "-cpu", reach.cpu, "-smp", str(reach.cores)),
        *("-m", f"{reach.memory >> 20}M", "-accel", "tcg,thread=multi", "-rtc", "base=utc"),
        *("-kernel", str(wiring.kernel), "-initrd", str(wiring.initramfs)),
        *("-append", _KERNEL_OPTIONS),
        *("-drive", ",".join(f"{key}={value}" for key, value in drive.items())),
        # Otherwise a full disk of this machine's would stop the machine without a word.
        *("-device", "virtio-blk-pci,drive=storage,werror=report,rerror=report"),
        *("-netdev", f"user,id=network,ipv6=off,restrict=on,hostfwd={forward}"),
        *("-device", "virtio-net-pci,id=nic,netdev=network,romfile="),
        *("-device", "virtio-rng-pci"),
        *("-chardev", f"{serial},logfile={_escaped(wiring.console_log)}"),
        *("-serial", "chardev:serial"),
        *("-qmp", f"unix:{_escaped(wiring.qmp)},server=on,wait=off"),
        *("-pidfile", str(wiring.pid_file), "-D", str(wiring.qemu_log)),
    ]


def _escaped(value: str | Path) -> str:
    return str(value).replace(",", ",,")


def start(qemu: Qemu, command: list[str], log_file: Path) -> None:
    """Start a machine and return once QEMU has set it up.

    Args:
        log_file: where they tell it to write its own words.

    Raises:
        ConnectError: QEMU refuses; with its reason.
    """
    log_file.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(
            command,
            env=qemu.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
        log.seek(0)
        errors = log.read().strip()
    if done.returncode != 0:
        raise ConnectError(
            f"QEMU did not start: {errors[-600:] or last_lines(log_file)}",
            "Check 'memory' and 'disk' under 'reach' in the board's file against this machine's "
            "memory and disk space.",
        )
