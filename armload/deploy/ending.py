"""How a program ended, in words."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from armload.boards.conditions import free_bytes
from armload.core.values import Value, format_bytes
from armload.deploy.facts import Facts, Peaks, read_facts, read_peaks

Cut = Literal["restart", "lost"]
"""What ended a run without an exit status: the board's restart, or the end of the run's script."""

Kind = Literal[
    "done",
    "exit status",
    "illegal instruction",
    "out of memory",
    "killed",
    "time limit",
    "no space",
    "not found",
    "no loader",
    "not permitted",
    "wrong format",
    "crash",
    "abort",
    "signal",
    "stopped",
    "restart",
    "lost",
    "no lease",
]
"""Every way in which a program can end."""

_CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGSYS", "SIGTRAP")
_FULL_BELOW_BYTES = 64 << 10
_MEMORY_GONE_BELOW = 0.1
_LESS_MEMORY = "Take a smaller model or context, and no repacking."


class Ending(Value):
    """How a program ended.

    Attributes:
        kind: one of the ways.
        status: as a shell reports it; none when it was never known.
        meaning: what that says.
        remedy: what to do; empty when nothing is wrong or nothing is known.
    """

    kind: Kind
    status: int | None
    meaning: str
    remedy: str = ""


def explain(
    folder: Path,
    *,
    lacking: Sequence[str] = (),
    cut: Cut | None = None,
    memory_total_bytes: int | None = None,
) -> Ending:
    """Say how the run whose files were collected into ``folder`` ended.

    Args:
        folder: holds ``exit``, ``stderr`` and the marks that the run's script left.
        lacking: CPU features that the program uses and the board does not have, where known.
        cut: what the board says of a run without an exit status.
        memory_total_bytes: of the board, where known.
    """
    facts = read_facts(folder)
    if facts is None:
        return _cut_short(cut)
    status = facts.status
    if status == 0:
        return Ending(kind="done", status=0, meaning="done")
    if facts.unleased:
        return Ending(
            kind="no lease",
            status=status,
            meaning="not started: the lease had run out, and somebody else has the board",
            remedy="Type the same command again.",
        )
    if facts.limit:
        return Ending(
            kind="time limit",
            status=status,
            meaning="stopped by its time limit",
            remedy="Raise it with --time-limit, or ask for fewer tokens.",
        )
    if facts.stopped:
        return Ending(kind="stopped", status=status, meaning="stopped on request")
    free = free_bytes(facts.df) if facts.df else None
    if "No space left on device" in facts.said or (free is not None and free < _FULL_BELOW_BYTES):
        left = "" if free is None else f" ({format_bytes(free)} free)"
        return Ending(
            kind="no space",
            status=status,
            meaning=f"the board's storage is full{left}: {facts.said or 'it had no room for more'}",
            remedy="Free space there: armload board.clean",
        )
    if status > 128:
        return _signalled(facts, lacking, read_peaks(folder), memory_total_bytes)
    return _left(facts)


def _cut_short(cut: Cut | None) -> Ending:
    if cut == "lost":
        return Ending(
            kind="lost",
            status=None,
            meaning="cut short: the script that watches the program was ended",
            remedy="Run it again.",
        )
    what = "restarted during the run" if cut else "restarted, or the run was cut short"
    meaning = f"interrupted: the board {what}"
    return Ending(kind="restart", status=None, meaning=meaning, remedy="Run it again.")


def _signalled(
    facts: Facts, lacking: Sequence[str], peaks: Peaks | None, memory_total_bytes: int | None
) -> Ending:
    status = facts.status
    try:
        name = signal.Signals(status - 128).name
    except ValueError:
        name = f"signal {status - 128}"
    if name == "SIGILL":
        which = f" ({', '.join(lacking)})" if lacking else ""
        return Ending(
            kind="illegal instruction",
            status=status,
            meaning=f"illegal instruction: the program uses one that this CPU lacks{which}",
            remedy="Build for a target that matches the board: 'target' in its file in boards/.",
        )
    if name == "SIGKILL":
        return _killed(facts, peaks, memory_total_bytes)
    last = f": {facts.said}" if facts.said else ""
    if name == "SIGABRT":
        return Ending(kind="abort", status=status, meaning=f"the program gave up (SIGABRT){last}")
    if name in _CRASHES:
        return Ending(kind="crash", status=status, meaning=f"the program crashed ({name}){last}")
    return Ending(kind="signal", status=status, meaning=f"died of {name}{last}")


def _killed(facts: Facts, peaks: Peaks | None, memory_total_bytes: int | None) -> Ending:
    used = f"; it had used {format_bytes(peaks.resident_bytes)}" if peaks else ""
    if facts.killed_line or facts.oom:
        return Ending(
            kind="out of memory",
            status=facts.status,
            meaning=f"killed by the kernel: the board ran out of memory{used}",
            remedy=_LESS_MEMORY,
        )
    least = peaks.least_available_bytes if peaks else None
    if least is not None and memory_total_bytes and least < _MEMORY_GONE_BELOW * memory_total_bytes:
        return Ending(
            kind="out of memory",
            status=facts.status,
            meaning=f"killed (SIGKILL), most likely for memory: only {format_bytes(least)} of "
            f"{format_bytes(memory_total_bytes)} were left{used}",
            remedy=_LESS_MEMORY,
        )
    return Ending(
        kind="killed",
        status=facts.status,
        meaning=f"killed from outside (SIGKILL); the kernel counted no lack of memory{used}",
    )


def _left(facts: Facts) -> Ending:
    status, said = facts.status, facts.said
    if re.search(r"\x7fELF|Exec format error|cannot execute binary|not executable: ", said):
        return Ending(
            kind="wrong format",
            status=status,
            meaning="the program cannot be run there: it was built for another kind of machine",
            remedy="armload's programs need a 64-bit ARM kernel.",
        )
    lacking = re.search("not found|No such file", said) is not None
    if (status == 127 or (status == 126 and lacking)) and (
        facts.there or "error while loading shared libraries" in said
    ):
        return Ending(
            kind="no loader",
            status=status,
            meaning="the program is there, and the loader or a library that it needs was not "
            f"found: {said}",
            remedy="It is not static: build it again.",
        )
    if status == 127:
        return Ending(
            kind="not found",
            status=status,
            meaning=f"the program was not found: {said}",
            remedy="Deploy again.",
        )
    if status == 126:
        lacks = "" if facts.executable else " (it lacks the right to be executed)"
        return Ending(
            kind="not permitted",
            status=status,
            meaning=f"the program cannot be run there{lacks}: {said}",
            remedy="Deploy again; if that does not help, the work folder is mounted noexec or a "
            "policy forbids it: choose another one as 'workdir' in the board's file.",
        )
    return Ending(
        kind="exit status", status=status, meaning=f"exit {status}: {said or 'it gave no reason'}"
    )
