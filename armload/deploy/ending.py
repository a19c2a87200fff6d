"""How a program ended, in words."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from armload.core.values import Value

_LAST_LINES = 3


class Ending(Value):
    """How a program ended.

    Attributes:
        status: as a shell reports it; none when it was never known.
        meaning: what that says.
        remedy: what to do; empty when nothing is wrong or nothing is known.
    """

    status: int | None
    meaning: str
    remedy: str = ""


def explain(folder: Path, *, lacking: Sequence[str] = ()) -> Ending:
    """Say how the run whose files were collected into ``folder`` ended.

    Args:
        folder: holds ``exit``, ``stderr`` and the marks that the run's script left.
        lacking: CPU features that the program uses and the board does not have, where known.
    """
    try:
        status = int((folder / "exit").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return Ending(
            status=None,
            meaning="interrupted: the board restarted, or the run was cut short",
            remedy="Run it again.",
        )
    if status == 0:
        return Ending(status=0, meaning="done")
    said = _last_words(folder)
    if (folder / "limit").exists():
        return Ending(
            status=status,
            meaning="stopped by its time limit",
            remedy="Raise the time limit, or ask for fewer tokens.",
        )
    if (folder / "stopped").exists():
        return Ending(status=status, meaning="stopped on request")
    if "No space left on device" in said:
        return Ending(
            status=status,
            meaning=f"the board's storage is full: {said}",
            remedy="Free space in the board's work folder.",
        )
    if status > 128:
        return _signalled(status, said, lacking, out_of_memory=(folder / "oom").exists())
    return _left(status, said)


def _signalled(status: int, said: str, lacking: Sequence[str], *, out_of_memory: bool) -> Ending:
    number = status - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if name == "SIGILL":
        which = f" ({', '.join(lacking)})" if lacking else ""
        return Ending(
            status=status,
            meaning=f"illegal instruction: the program uses one that this CPU lacks{which}",
            remedy="Build for a target that matches the board: 'target' in its file in boards/.",
        )
    if out_of_memory:
        return Ending(
            status=status,
            meaning="killed by the kernel: the board ran out of memory",
            remedy="Take a smaller model or context, and no repacking.",
        )
    if name == "SIGKILL":
        return Ending(
            status=status,
            meaning="killed from outside (SIGKILL); the kernel counted no lack of memory",
        )
    last = f": {said}" if said else ""
    return Ending(status=status, meaning=f"died of {name}{last}")


def _left(status: int, said: str) -> Ending:
    if status == 127:
        return Ending(
            status=status,
            meaning=f"the program was not found, or its loader was not: {said}",
            remedy="Deploy again. A program that needs a loader is not static: build it again.",
        )
    if status == 126:
        return Ending(
            status=status,
            meaning=f"the program cannot be run there: {said}",
            remedy="Wrong architecture, or a work folder that is mounted noexec.",
        )
    return Ending(status=status, meaning=f"exit {status}: {said or 'it gave no reason'}")


def _last_words(folder: Path) -> str:
    try:
        text = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-_LAST_LINES:])
