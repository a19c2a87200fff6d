"""Control groups of this machine that limit the memory of what runs in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

_FILL = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while os.path.exists("/proc/" + sys.argv[2]):
        file.write(bytes(1 << 20))
"""


@contextmanager
def made(group: Path) -> Iterator[Path]:
    """Make a group; what still runs in it at the end goes back to the one around it."""
    group.mkdir()
    try:
        yield group
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended meanwhile
                (group.parent / "cgroup.procs").write_text(line)
        group.rmdir()


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[Path]:
    """Make a group whose programs, with their page cache, get so much memory and no swap."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    own = Path("/proc/self/cgroup").read_text()
    v1 = [line.split()[4] for line in mounts if re.search(r" - cgroup .*\bmemory\b", line)]
    v2 = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    name = re.search(r"^\d+:(?:.*,)?memory(?:,.*)?:(.*)$", own, re.MULTILINE) if v1 else None
    if name is not None:
        top, limit, swap = Path(v1[-1] + name[1]), "memory.limit_in_bytes", "memory.swappiness"
    elif v2 and "memory" in Path(v2[-1], "cgroup.subtree_control").read_text():
        top, limit, swap = Path(v2[-1]), "memory.max", "memory.swap.max"
    else:
        pytest.skip("no control group here limits memory")
    with made(top / f"armload-test-{os.getpid()}") as group:
        (group / limit).write_text(str(limit_bytes))
        if (group / swap).exists():
            (group / swap).write_text("0")
        yield group


@contextmanager
def moved(process: psutil.Process, group: Path) -> Iterator[None]:
    """Have a process, and all that it starts meanwhile, in a group."""
    (group / "cgroup.procs").write_text(str(process.pid))
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(process.pid))


def fill_until_gone(group: Path, file: Path, pid: int) -> None:
    """Fill a file in memory, at a group's expense, until the kernel has ended a process there.

    Args:
        file: on a file system in memory.
        pid: of the process, which the kernel is told to end first: it may be smaller than others.
    """
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    enter = f'echo $$ >{group / "cgroup.procs"} && exec "$@"'
    words = [sys.executable, "-c", _FILL, str(file), str(pid)]
    subprocess.run(["sh", "-c", enter, "sh", *words], check=True, timeout=120)
