"""The state of a board at one moment, and what its control groups leave of its memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from armload.boards.folder import Mount, free_bytes, mount_of
from armload.core.values import Count, Finite, Value, format_bytes


class ControlGroup(Value):
    """A control group that limits memory.

    Attributes:
        limit_bytes: the lowest of its limits.
        left_bytes: what may be taken until then: page cache goes first, as in ``MemAvailable``.
    """

    limit_bytes: int
    left_bytes: int


def read_groups(lines: Sequence[str]) -> tuple[ControlGroup, ...]:
    """Read the lines of control groups: ``group``, then ``KEY VALUE`` for each; v1 and v2."""
    groups: list[dict[str, int]] = []
    for line in lines:
        key, _, value = line.strip().partition(" ")
        if key == "group":
            groups.append({})
        elif groups and value.isdecimal():  # no limit is the word max
            known = groups[-1].get(key)
            groups[-1][key] = int(value) if known is None else min(known, int(value))
    found = []
    for group in groups:
        if "limit" not in group or "used" not in group:
            continue
        # With v1, the plain counts leave out the groups inside.
        cache = sum(
            group.get(f"total_{name}", group.get(name, 0))
            for name in ("inactive_file", "active_file", "slab_reclaimable")
        )
        taken = max(0, group["used"] - cache)
        found.append(
            ControlGroup(limit_bytes=group["limit"], left_bytes=max(0, group["limit"] - taken))
        )
    return tuple(found)


def tightest(groups: Sequence[ControlGroup]) -> ControlGroup | None:
    """Return the group that leaves the least; none of none."""
    return min(groups, key=lambda group: group.left_bytes, default=None)


class ClusterState(Value):
    """Cores that change their frequency together; all of them where there is no cpufreq.

    Attributes:
        cores: their numbers.
        governor: that chooses their frequency.
        khz: their frequency now.
        max_khz: the highest that they have.
    """

    cores: tuple[Count, ...]
    governor: str | None = None
    khz: Count | None = None
    max_khz: Count | None = None


class Sensor(Value):
    """One thermal zone, by the kernel's name for it."""

    name: str
    celsius: Finite


class Conditions(Value):
    """The board at one moment.

    Attributes:
        boot_id: changes with every boot.
        uptime_s: since that boot.
        kernel: ``uname -r``.
        load_1min: run-queue average.
        memory_total_bytes, swap_used_bytes: from ``/proc/meminfo``.
        memory_available_bytes: likewise, or what a control group leaves, where that is less.
        memory_limit_bytes: of that group; none where no group leaves less.
        swap_total_bytes: from ``/proc/meminfo``.
        workdir_free_bytes: free space for armload's folder; none where no tool says it.
        workdir_filesystem: what that folder lies on, such as ``ext4``; none where the board
            does not say, as in a chroot whose root is no mount point.
        governors: CPU frequency governors in use; empty where there is no cpufreq.
        clusters: the cores by frequency policy.
        celsius: hottest sensor; none where there is none.
        sensors: all of them.
    """

    boot_id: str
    uptime_s: Finite
    kernel: str
    load_1min: Finite
    memory_total_bytes: Count
    memory_available_bytes: Count
    swap_used_bytes: int
    memory_limit_bytes: Count | None = None
    swap_total_bytes: Count
    workdir_free_bytes: Count | None
    workdir_filesystem: str | None = None
    governors: tuple[str, ...] = ()
    clusters: tuple[ClusterState, ...] = ()
    celsius: Finite | None = None
    sensors: tuple[Sensor, ...] = ()

    @property
    def memory_and_swap_bytes(self) -> int:
        """All of the memory and of the swap: what a program can reserve at most."""
        return self.memory_total_bytes + self.swap_total_bytes


def read_conditions(parts: Mapping[str, Sequence[str]], cores: Sequence[int]) -> Conditions:
    """Read the parts that the probing script wrote of a board's state.

    Args:
        parts: its lines, by part.
        cores: the numbers of the cores that are online.

    Raises:
        KeyError, ValueError, IndexError: they lack what Linux always tells.
    """
    kernel, _ = parts["uname"][0].split()
    boot_id, uptime, loadavg, *facts = parts["proc"]
    memory = _memory_bytes(facts)
    available, limit = memory.get("MemAvailable", memory["MemFree"]), None
    group = tightest(read_groups(parts.get("memory", ())))
    if group is not None and group.left_bytes < available:
        available, limit = group.left_bytes, group.limit_bytes
    clusters = read_clusters(parts["policies"], cores)
    sensors = read_sensors(parts["temperatures"])
    mount = workdir_mount(parts)
    filesystem = mount.filesystem if mount else None
    return Conditions(
        boot_id=boot_id,
        uptime_s=float(uptime.split()[0]),
        kernel=kernel,
        load_1min=float(loadavg.split()[0]),
        memory_total_bytes=memory["MemTotal"],
        memory_available_bytes=available,
        memory_limit_bytes=limit,
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        swap_total_bytes=memory.get("SwapTotal", 0),
        workdir_free_bytes=free_bytes(parts.get("df", []), filesystem),
        workdir_filesystem=filesystem,
        governors=tuple(sorted({each.governor for each in clusters if each.governor})),
        clusters=clusters,
        celsius=hottest(sensors),
        sensors=sensors,
    )


def workdir_mount(parts: Mapping[str, Sequence[str]]) -> Mount | None:
    """Return what the work folder lies on; none where there is no such folder."""
    place = next(iter(parts.get("place", ())), None)
    return None if place is None else mount_of(PurePosixPath(place), parts["proc"])


def within_group(now: Conditions) -> str:
    """Say which limit bounds the available memory, in brackets; nothing where it is the board's."""
    return group_limit(now.memory_limit_bytes)


def group_limit(limit_bytes: int | None) -> str:
    """Say to what a control group limits the memory, in brackets; nothing without a limit."""
    return "" if limit_bytes is None else f" (control group limit: {format_bytes(limit_bytes)})"


def read_clusters(policies: Sequence[str], cores: Sequence[int]) -> tuple[ClusterState, ...]:
    """Read lines ``CORES;GOVERNOR;KHZ;MAX_KHZ``; cores that are in none of them come last."""
    found: dict[tuple[int, ...], ClusterState] = {}
    for line in policies:
        numbers, governor, khz, max_khz = (field.strip() for field in line.split(";"))
        its_cores = tuple(sorted(int(number) for number in numbers.split()))
        if its_cores:
            found[its_cores] = ClusterState(
                cores=its_cores,
                governor=governor or None,
                khz=_number(khz),
                max_khz=_number(max_khz),
            )
    named = {core for each in found for core in each}
    rest = tuple(core for core in cores if core not in named)
    clusters = sorted(found.values(), key=lambda cluster: cluster.cores)
    return (*clusters, *((ClusterState(cores=rest),) if rest else ()))


def read_sensors(lines: Sequence[str]) -> tuple[Sensor, ...]:
    """Read lines ``VALUE NAME``; a value that is no number is left out."""
    found = []
    for line in lines:
        value, _, name = line.strip().partition(" ")
        if re.fullmatch(r"-?\d+(\.\d+)?", value):
            found.append(Sensor(name=name or "thermal zone", celsius=_celsius(float(value))))
    return tuple(found)


def hottest(sensors: Sequence[Sensor]) -> float | None:
    """Return the highest temperature; none without sensors."""
    return max((sensor.celsius for sensor in sensors), default=None)


def _memory_bytes(meminfo: Sequence[str]) -> dict[str, int]:
    matches = (re.match(r"(\w+):\s+(\d+) kB", line) for line in meminfo)
    return {match[1]: int(match[2]) * 1024 for match in matches if match}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _celsius(raw: float) -> float:
    # The kernel gives thousandths; some vendors' drivers give degrees.
    return raw / 1000 if abs(raw) >= 1000 else raw
