"""What else used a board's CPU during a run.

The run's script leaves ``processes`` in the run's folder: twice ``#at UPTIME``, the content of
every ``/proc/PID/stat``, ``#loader PID`` with the words of a process that is called like a dynamic
loader, and ``#own`` with the processes that belong to the run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from armload.core.values import Count, Finite, Value

FILE_NAME = "processes"
MOST_NAMED = 5
LEAST_SHARE = 0.01
"""Of one core; what used less is not named."""

_TICKS_PER_S = 100  # Linux shows them so to every program (USER_HZ), whatever the kernel counts in
_FIRST = 1
_KERNEL = 2  # the process that all of the kernel's own threads descend from
_LINE_ENDS = (b"sshd", b"sshd-session", b"sshd-auth", b"dropbear", b"hdcd", b"adbd")
"""The servers of our own connection; processes that they start count like any other."""

_LOADER_OPTIONS = (b"--library-path", b"--argv0", b"--preload", b"--inhibit-rpath", b"--audit")
"""Those of glibc's and musl's loaders that take a value."""

# A name may hold anything, a line like this one too, but not the twenty numbers after it.
_ENTRY = re.compile(
    rb"^#at (?P<at>\d{1,12}\.\d{1,9})$|^#own (?P<own>\d{1,10}(?: \d{1,10})*)$|"
    rb"^#loader (?P<loader>\d{1,10})\n(?P<words>[^\n]*)$|"
    rb"^(?P<pid>\d{1,10}) \((?P<name>.{0,64}?)\) [A-Za-z] "
    rb"(?P<numbers>-?\d{1,20}(?: -?\d{1,20}){20,})$",
    re.DOTALL | re.MULTILINE,
)


class BackgroundProcess(Value):
    """A program that used the CPU besides the run; processes of one name are taken together.

    Attributes:
        name: as the kernel shortens it, 15 characters; of one that was started by way of a dynamic
            loader (``ld-linux-aarch64.so.1 …``), that of the program which it runs.
        processes: how many.
        cpu_s: their CPU time, and that of children which ended meanwhile.
        share: of one core, over the whole run.
        kernel: it is a thread of the kernel's own.
    """

    name: str
    processes: Count
    cpu_s: Finite
    share: Finite
    kernel: bool = False


@dataclass(frozen=True, kw_only=True)
class _Process:
    name: bytes
    parent: int
    ticks: int
    childrens_ticks: int
    started: int

    @property
    def all_ticks(self) -> int:
        return self.ticks + self.childrens_ticks


@dataclass(kw_only=True)
class _Moment:
    at_s: float
    processes: dict[int, _Process] = field(default_factory=dict)
    own: tuple[int, ...] = ()
    loaded: dict[int, bytes] = field(default_factory=dict)


def read_background_processes(folder: Path) -> tuple[BackgroundProcess, ...] | None:
    """Return the background processes of a run, the busiest first; none when that was not noted."""
    try:
        moments = _moments((folder / FILE_NAME).read_bytes())
    except OSError:
        return None
    if len(moments) != 2 or moments[1].at_s <= moments[0].at_s:
        return None
    if _FIRST not in moments[1].processes:  # this user is shown no processes but their own
        return None
    return _background_processes(*moments)


def _moments(content: bytes) -> list[_Moment]:
    moments: list[_Moment] = []
    for entry in _ENTRY.finditer(content):
        if entry["at"]:
            moments.append(_Moment(at_s=float(entry["at"])))
        elif moments and entry["own"]:
            moments[-1].own = tuple(int(number) for number in entry["own"].split())
        elif moments and entry["loader"]:
            moments[-1].loaded[int(entry["loader"])] = _program(entry["words"].split(b"\0"))
        elif moments and entry["pid"]:
            numbers = [int(number) for number in entry["numbers"].split()]
            # Fields 4, 14 to 17 and 22 of proc_pid_stat(5).
            moments[-1].processes[int(entry["pid"])] = _Process(
                name=entry["name"],
                parent=numbers[0],
                ticks=numbers[10] + numbers[11],
                childrens_ticks=numbers[12] + numbers[13],
                started=numbers[18],
            )
    return moments


def _program(words: Sequence[bytes]) -> bytes:
    """Return the name of the program that a loader was told to run; empty if that is not seen."""
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith(b"--"):
            return word.rpartition(b"/")[2]
        if word in _LOADER_OPTIONS:
            next(rest, b"")
    return b""


def _background_processes(before: _Moment, after: _Moment) -> tuple[BackgroundProcess, ...]:
    stayed = {
        pid
        for pid, process in after.processes.items()
        if pid in before.processes and before.processes[pid].started == process.started
    }
    owed = _counted_before(before.processes, stayed)
    own = {*before.own, *after.own}
    ticks: defaultdict[tuple[bytes, bool], list[int]] = defaultdict(list)
    for pid, process in after.processes.items():
        ancestors = {pid, *_ancestors(pid, after.processes)}
        name = after.loaded.get(pid) or process.name
        if own & ancestors or name in _LINE_ENDS:
            continue
        used, childrens = process.ticks, process.childrens_ticks
        if pid in stayed:
            used -= before.processes[pid].ticks
            childrens -= before.processes[pid].childrens_ticks + owed[pid]
        ticks[name, _KERNEL in ancestors].append(used + max(childrens, 0))
    wall_s = after.at_s - before.at_s
    found = [
        BackgroundProcess(
            name=name.decode("utf-8", "replace"),
            processes=sum(each > 0 for each in its_ticks),
            cpu_s=sum(its_ticks) / _TICKS_PER_S,
            share=sum(its_ticks) / _TICKS_PER_S / wall_s,
            kernel=kernel,
        )
        for (name, kernel), its_ticks in ticks.items()
        if sum(its_ticks) / _TICKS_PER_S >= LEAST_SHARE * wall_s
    ]
    found.sort(key=lambda each: each.cpu_s, reverse=True)
    return tuple(found[:MOST_NAMED])


def _ancestors(pid: int, processes: Mapping[int, _Process]) -> Iterable[int]:
    seen: set[int] = set()
    while pid in processes and pid not in seen:
        seen.add(pid)
        pid = processes[pid].parent
        yield pid


def _counted_before(before: Mapping[int, _Process], stayed: set[int]) -> Mapping[int, int]:
    """Return what of ended children's time is older than the run, by who has inherited it."""
    owed: defaultdict[int, int] = defaultdict(int)
    for pid, process in before.items():
        if pid not in stayed:
            heir = next((each for each in _ancestors(pid, before) if each in stayed), 0)
            owed[heir] += process.all_ticks
    return owed


def busiest(
    background_processes: Sequence[BackgroundProcess], *, share: float
) -> BackgroundProcess | None:
    """Return the busiest background process, if it had that share of a core."""
    return next((each for each in background_processes if each.share >= share), None)
