"""Runs CMake and ninja, and reads how far they are."""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from armload.core.children import run_watched
from armload.core.errors import ArmloadError, BuildError, DiskError

LOG_LINES_SHOWN = 30
FULL_DISK_BYTES = 16 << 20
"""With less free space than this a failure is put down to it: compilers rarely say so."""


class Status(NamedTuple):
    """A status line of ninja."""

    done: int
    total: int
    what: str


def read_status(line: str) -> Status | None:
    """Read a line such as ``[3/137] Building CXX object common.dir/chat.cpp.o``; none if other.

    CMake's makefiles say ``[ 12%]`` instead: these count in hundredths.
    """
    match = re.fullmatch(r"\[ *(\d+)(?:/(\d+)|%)\] (.*)", line.rstrip())
    if match is None:
        return None
    what = match.group(3).rpartition("/")[2].removesuffix(".o")
    return Status(done=int(match.group(1)), total=int(match.group(2) or 100), what=what)


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    nice: int,
    watch: Callable[[str], None],
    keep_open: int,
) -> None:
    """Run a program, append its output to ``log``, and show each line to ``watch``.

    When this is interrupted, the program and its children are ended first. ``nice`` is how
    much they step back for other programs, 0 to 19. ``keep_open`` is a file descriptor that
    they inherit: a lock that is held as long as one of them lives.

    Raises:
        BuildError: the program failed; shows the end of its output.
    """
    tail: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
    with log.open("a", encoding="utf-8") as file:

        def note(line: str) -> None:
            file.write(line)
            file.flush()
            tail.append(line.rstrip())
            watch(line)

        status = run_watched(
            command,
            environment=os.environ | environment,
            watch=note,
            keep_open=keep_open,
            nice=nice,
        )
    if status != 0:
        raise failure(Path(command[0]).name, status, list(tail), log)


def failure(program: str, status: int, tail: Sequence[str], log: Path) -> ArmloadError:
    """Return the error for a program that failed; ``tail`` is the end of what ``log`` holds."""
    shown = "\n".join(f"  {line}" for line in tail)
    is_full = shutil.disk_usage(log.parent).free < FULL_DISK_BYTES
    if is_full or "No space left on device" in shown:
        return DiskError(
            f"The disk with {log.parent} is full.",
            "Free disk space (a build takes some 500 MB, source and compiler cache included) or "
            "set "
            "ARMLOAD_CACHE to a folder on another disk, then repeat the command: it resumes from "
            "here.",
        )
    return BuildError(
        f"{program} failed with status {status}. The end of its output:\n{shown}",
        f"The full output is in {log}.",
    )
