"""What a run's script did and counted on the board, and what else used the CPU meanwhile.

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
from typing import Literal, get_args

from armload.analysis.clocks import MeasuredClock
from armload.boards.conditions import Conditions
from armload.boards.probe import read_state
from armload.boards.sensors import chosen_names
from armload.boards.throttling import ThrottleReading, read_throttling
from armload.core.values import Count, Finite, Value
from armload.deploy.exit_record import read_exit_record
from armload.deploy.follow import any_cut

FILE_NAME = "processes"
MOST_NAMED = 5
LEAST_SHARE = 0.01
"""Of one core; what used less is not named."""

_TICKS_PER_S = 100  # Linux shows them so to every program (USER_HZ), whatever the kernel counts in
_SECTOR_BYTES = 512  # of a block device's stat, whatever the device's own are
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


Cache = Literal["dropped", "evicted", "as found"]
"""What was dropped from the board's page cache before a run: all of it, the model, or nothing."""


class Swapped(Value):
    """What the board swapped during a run.

    Attributes:
        in_bytes, out_bytes: in all.
        zram_in_bytes, zram_out_bytes: of these, from and to compressed memory, which takes CPU
            time but does not wait for storage.
    """

    in_bytes: Count
    out_bytes: Count
    zram_in_bytes: Count = 0
    zram_out_bytes: Count = 0


@dataclass(frozen=True, kw_only=True)
class Around:
    """What was noted on the board around a run; none where that is not known."""

    after: Conditions | None = None
    cache: Cache | None = None
    governor: str | None = None
    background: tuple[BackgroundProcess, ...] | None = None
    swapped: Swapped | None = None
    throttling: tuple[ThrottleReading, ...] = ()
    clocks: tuple[MeasuredClock, ...] = ()
    storage_was_full: bool = False
    lease_lost: bool = False


def read_after(folder: Path, before: Conditions) -> Conditions | None:
    """Read how the board was when the run had ended; none where its script could not note it.

    Args:
        before: the run, of which the same sensors count.
    """
    try:
        return read_state((folder / "after").read_bytes(), chosen_names(before.sensors))
    except FileNotFoundError:
        return None


def read_cache(folder: Path) -> Cache | None:
    """Read what became of the page cache; none for a run that left it alone."""
    noted = _text(folder / "cache").strip()
    return next((word for word in get_args(Cache) if word == noted), None)


def read_governor(folder: Path) -> str | None:
    """Read the governor that was set for the run; none if none was, or not on all cores."""
    set_to = {}
    for line in _text(folder / "governors").splitlines():
        words = line.split(" ", 2)
        if len(words) == 3:
            _, now, policy = words
            set_to[policy] = now
    found = set(set_to.values())
    return found.pop() if len(found) == 1 and "-" not in found else None


def read_swapped(folder: Path, page_bytes: int) -> Swapped | None:
    """Read how much was swapped; none when the kernel does not count it, or the run was cut."""
    try:
        before, after = (
            [int(word) for word in line.split()] for line in _text(folder / "swapped").splitlines()
        )
        moved = [late - early for early, late in zip(before, after, strict=True)]
        in_bytes, out_bytes = (pages * page_bytes for pages in moved[:2])
        return Swapped(
            in_bytes=in_bytes,
            out_bytes=out_bytes,
            zram_in_bytes=min(in_bytes, sum(moved[2::2]) * _SECTOR_BYTES),
            zram_out_bytes=min(out_bytes, sum(moved[3::2]) * _SECTOR_BYTES),
        )
    except ValueError:
        return None


def read_throttle_log(folder: Path) -> tuple[ThrottleReading, ...]:
    """Read what hardware and firmware told during a run; empty where they tell nothing."""
    try:
        return read_throttling(_text(folder / "throttling").splitlines())
    except ValueError:
        return ()


def storage_was_full(folder: Path) -> bool:
    """Return whether the board's storage was full during a run, so that output may be lost.

    The run's script looks once a second; the trace library says so where standard error had space
    for it, and else leaves a line that was cut off though the program ended by itself.
    """
    trace = folder / "trace.jsonl"
    content = trace.read_bytes() if trace.is_file() else b""
    facts = read_exit_record(folder)
    return (
        (folder / "full").exists()
        or "No space left on device" in _text(folder / "stderr")
        or (facts is not None and facts.status == 0 and any_cut(content))
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
