"""How a program ended, in words."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from armload.boards.folder import free_bytes
from armload.core.values import Value, format_bytes
from armload.deploy.exit_record import Cut, ExitRecord, Peaks, read_exit_record, read_peaks

ExitKind = Literal[
    "done",
    "exit status",
    "illegal instruction",
    "out of memory",
    "killed",
    "time limit",
    "no space",
    "storage error",
    "not found",
    "no loader",
    "not permitted",
    "no device",
    "wrong format",
    "crash",
    "abort",
    "signal",
    "stopped",
    "unattended",
    "restart",
    "lost",
    "no lease",
    "member lost",
]
"""Every way in which a program can end."""

_CRASHES = ("SIGSEGV", "SIGFPE", "SIGSYS", "SIGTRAP")
_BUS_ERROR_STATUS = 128 + 7
"""Of SIGBUS on Linux; this machine may have another number for it."""

_UNREADABLE_STATUS = 74
"""Of programs that stream weights and can read no more of them (``armload_reader.c``)."""

_NOT_STARTED_STATUS = 75
"""Of a run that found another user on the board (``deploy/run/run.sh.j2``)."""

INTERRUPTED = frozenset[ExitKind](
    ("stopped", "unattended", "restart", "lost", "no lease", "member lost")
)
"""Kinds of exit by which a run was cut short from outside, whatever its program would have done."""

_FULL_BELOW_BYTES = 64 << 10
_MEMORY_GONE_BELOW = 0.1
LESS_MEMORY = "Use a smaller model or context."
HOW_TO_LINK = "Link it with -static, or build it with the board's own system libraries."


class Exit(Value):
    """How the program ended.

    Attributes:
        kind: one of the ways to end.
        status: as a shell reports it; none when it was never known.
        meaning: in words.
        remedy: what to do; empty when nothing is wrong or nothing is known.
    """

    kind: ExitKind
    status: int | None
    meaning: str
    remedy: str = ""


def explain(
    folder: Path,
    *,
    board: str = "NAME",
    lacking: Sequence[str] = (),
    cut: Cut | None = None,
    memory_total_bytes: int | None = None,
    filesystem: str | None = None,
    less_memory: str = LESS_MEMORY,
) -> Exit:
    """Say how the run whose files were collected into ``folder`` ended.

    Args:
        folder: holds ``exit``, ``stderr`` and the marks that the run's script left.
        board: its name, for commands to type.
        lacking: CPU features that the program uses and the board does not have, where known.
        cut: what the board says of a run without an exit status.
        memory_total_bytes: of the board, where known.
        filesystem: of the work folder, where known.
        less_memory: what to do where it had too little.
    """
    record = read_exit_record(folder)
    if record is None:
        return _cut_short(cut)
    status = record.status
    if record.unattended:
        return Exit(
            kind="unattended",
            status=status,
            meaning="stopped: the command that started it had ended",
            remedy="To keep a service without its command, start it with armload serve --detach.",
        )
    if status == 0:
        return Exit(kind="done", status=0, meaning="done")
    if record.finished and not record.limit:
        return Exit(kind="done", status=0, meaning="done: stopped after it had completed its work")
    if record.unleased and status == _NOT_STARTED_STATUS:
        return Exit(
            kind="no lease",
            status=status,
            meaning="not started: the lease had expired, and another user has the board",
            remedy="Repeat the command.",
        )
    if record.limit:
        return Exit(
            kind="time limit",
            status=status,
            meaning="stopped by its time limit",
            remedy="Use a higher --time-limit.",
        )
    if record.stopped:
        return Exit(kind="stopped", status=status, meaning="stopped on request")
    free = free_bytes(record.df, filesystem) if record.df else None
    if "No space left on device" in record.stderr_end or (
        free is not None and free < _FULL_BELOW_BYTES
    ):
        left = "" if free is None else f" ({format_bytes(free)} free)"
        return Exit(
            kind="no space",
            status=status,
            meaning=f"the board's storage is full{left}: {record.stderr_end or 'a write failed'}",
            remedy=f"Free space on the board: armload board.clean --board {board}",
        )
    if record.lacking_device:
        return Exit(
            kind="no device",
            status=status,
            meaning=f"the board has no such GPU ({record.lacking_device} in llama.cpp's words), "
            "or none that llama.cpp can use",
            remedy=f"List its Vulkan devices: armload board.probe --board {board}. A software "
            "driver is used only by its number, such as --device Vulkan0.",
        )
    if status > 128:
        ended = _signalled(record, lacking, read_peaks(folder), memory_total_bytes)
        is_short = ended.kind == "out of memory"
        return ended.model_copy(update={"remedy": less_memory}) if is_short else ended
    return _left(record)


def _cut_short(cut: Cut | None) -> Exit:
    if cut == "lost":
        return Exit(
            kind="lost",
            status=None,
            meaning="interrupted: the script that monitors the program was killed",
            remedy="Run it again.",
        )
    what = "restarted during the run" if cut else "restarted, or the run was interrupted"
    meaning = f"interrupted: the board {what}"
    return Exit(kind="restart", status=None, meaning=meaning, remedy="Run it again.")


def _signalled(
    record: ExitRecord, lacking: Sequence[str], peaks: Peaks | None, memory_total_bytes: int | None
) -> Exit:
    status = record.status
    if status == _BUS_ERROR_STATUS:
        return _unreadable(record)
    try:
        name = signal.Signals(status - 128).name
    except ValueError:
        name = f"signal {status - 128}"
    if name == "SIGILL":
        which = f" ({', '.join(lacking)})" if lacking else ""
        return Exit(
            kind="illegal instruction",
            status=status,
            meaning="illegal instruction: the program uses an instruction that this CPU does "
            f"not have{which}",
            remedy="Build for a target that matches the board: set 'target' in the board's file "
            "in boards/.",
        )
    if name == "SIGKILL":
        return _killed(record, peaks, memory_total_bytes)
    last = f": {record.stderr_end}" if record.stderr_end else ""
    if name == "SIGABRT":
        return Exit(kind="abort", status=status, meaning=f"the program aborted (SIGABRT){last}")
    if name in _CRASHES:
        return Exit(kind="crash", status=status, meaning=f"the program crashed ({name}){last}")
    return Exit(kind="signal", status=status, meaning=f"ended by {name}{last}")


def _unreadable(record: ExitRecord) -> Exit:
    """Explain a bus error: the kernel could not read a page of a file that the program has mapped.

    Misaligned addresses, the other cause, do not stop 64-bit ARM programs.
    """
    if record.io_error_line:
        return Exit(
            kind="storage error",
            status=record.status,
            meaning="the board's storage reported an error while the model or the program was "
            f"read: {record.io_error_line}",
            remedy="Storage that fails to read is likely to fail again: replace it, or set another "
            "'workdir' in the board's file.",
        )
    return Exit(
        kind="storage error",
        status=record.status,
        meaning="the model could no longer be read: its file on the board was truncated, or the "
        "storage reported an error",
        remedy="Check the kernel's log on the board (dmesg) for I/O errors. If there are none, run "
        "it again: the model is then copied again.",
    )


def _killed(record: ExitRecord, peaks: Peaks | None, memory_total_bytes: int | None) -> Exit:
    used = f"; it was using {format_bytes(peaks.resident_bytes)}" if peaks else ""
    if record.killed_line or record.oom:
        return Exit(
            kind="out of memory",
            status=record.status,
            meaning=f"killed by the kernel: the board ran out of memory{used}",
        )
    least = peaks.least_available_bytes if peaks else None
    if least is not None and memory_total_bytes and least < _MEMORY_GONE_BELOW * memory_total_bytes:
        return Exit(
            kind="out of memory",
            status=record.status,
            meaning="killed (SIGKILL), most likely by the out-of-memory killer: only "
            f"{format_bytes(least)} of {format_bytes(memory_total_bytes)} were left{used}",
        )
    return Exit(
        kind="killed",
        status=record.status,
        meaning=f"killed from outside (SIGKILL); no out-of-memory kill was recorded{used}",
    )


def _left(record: ExitRecord) -> Exit:
    status, stderr_end = record.status, record.stderr_end
    if status == _UNREADABLE_STATUS and "the model cannot be read" in stderr_end:
        return _unreadable(record)
    if re.search(r"\x7fELF|Exec format error|cannot execute binary|not executable: ", stderr_end):
        return Exit(
            kind="wrong format",
            status=status,
            meaning="the program cannot run on the board: it was built for another kind of machine",
            remedy="Build it for the board's kernel: set 'target' in the board's file in boards/.",
        )
    lacking = re.search("not found|No such file", stderr_end) is not None
    if (status == 127 or (status == 126 and lacking)) and (
        record.there or "error while loading shared libraries" in stderr_end
    ):
        return Exit(
            kind="no loader",
            status=status,
            meaning="the program exists, but its loader or a library that it needs was not "
            f"found: {stderr_end}",
            remedy=HOW_TO_LINK,
        )
    if status == 127:
        return Exit(
            kind="not found",
            status=status,
            meaning=f"the program was not found: {stderr_end}",
            remedy="Repeat the command: what is missing is copied again.",
        )
    if status == 126:
        lacks = "" if record.executable else " (it is not executable)"
        return Exit(
            kind="not permitted",
            status=status,
            meaning=f"the program cannot be run on the board{lacks}: {stderr_end}",
            remedy="Repeat the command. If that does not help, the work folder is mounted noexec, "
            "or a security policy forbids execution: set another 'workdir' in the board's file.",
        )
    return Exit(
        kind="exit status",
        status=status,
        meaning=f"exit {status}: {stderr_end or 'it gave no reason'}",
    )
