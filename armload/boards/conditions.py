"""The state of a board at one moment, and what its control groups leave of its memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Literal

from armload.boards.cpu_access import CpuAccess, read_cpu_access
from armload.boards.device_clocks import DeviceClock, read_device_clocks
from armload.boards.folder import Mount, free_bytes, mount_of, storage_of
from armload.boards.sensors import Sensor, hottest, read_sensors
from armload.boards.throttling import ThrottleState, read_throttling
from armload.core.values import LEAVES, Count, Finite, Leaves, Value, format_bytes


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
        limit_khz: the highest that they may have now, by a power mode, a user, or the kernel's
            thermal governor.
    """

    cores: Annotated[tuple[Count, ...], LEAVES]
    governor: Annotated[str | None, Leaves("governor")] = None
    khz: Annotated[Count | None, LEAVES] = None
    max_khz: Annotated[Count | None, LEAVES] = None
    limit_khz: Annotated[Count | None, LEAVES] = None


class SwapDevice(Value):
    """A line of ``/proc/swaps``.

    Attributes:
        name: its path.
        kind: ``zram`` is compressed memory: it adds none.
    """

    name: str
    kind: Annotated[Literal["zram", "disk"], LEAVES]
    total_bytes: Annotated[Count, LEAVES]
    used_bytes: Annotated[Count, LEAVES]


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
        swap_total_bytes: from ``/proc/meminfo``, with zram.
        swaps: its devices; empty where the board does not tell.
        workdir_free_bytes: free space for armload's folder; none where no tool says it.
        workdir_filesystem: what that folder lies on, such as ``ext4``; none where the board
            does not say, as in a chroot whose root is no mount point.
        workdir_in_memory: what is written to that folder takes memory, and a restart deletes it.
        governors: CPU frequency governors in use; empty where there is no cpufreq.
        clusters: the cores by frequency policy.
        cpus: what affinity and control groups leave a program of them.
        device_clocks: of memory, GPU, NPU and interconnect; empty where nothing shows one.
        celsius: hottest sensor that counts; none where there is none.
        sensors: all thermal zones.
        throttling: what hardware and firmware tell of slowing the board down.
    """

    boot_id: str
    uptime_s: Annotated[Finite, LEAVES]
    kernel: Annotated[str, Leaves("kernel")]
    load_1min: Annotated[Finite, LEAVES]
    memory_total_bytes: Annotated[Count, LEAVES]
    memory_available_bytes: Annotated[Count, LEAVES]
    swap_used_bytes: Annotated[int, LEAVES]
    memory_limit_bytes: Annotated[Count | None, LEAVES] = None
    swap_total_bytes: Annotated[Count, LEAVES]
    swaps: Annotated[tuple[SwapDevice, ...], LEAVES] = ()
    workdir_free_bytes: Annotated[Count | None, LEAVES]
    workdir_filesystem: str | None = None
    workdir_in_memory: Annotated[bool, LEAVES] = False
    governors: Annotated[tuple[str, ...], Leaves("governor")] = ()
    clusters: Annotated[tuple[ClusterState, ...], LEAVES] = ()
    cpus: Annotated[CpuAccess, LEAVES] = CpuAccess()
    device_clocks: Annotated[tuple[DeviceClock, ...], LEAVES] = ()
    celsius: Annotated[Finite | None, LEAVES] = None
    sensors: tuple[Sensor, ...] = ()
    throttling: tuple[ThrottleState, ...] = ()

    @property
    def cores(self) -> tuple[int, ...]:
        """The numbers of all cores."""
        return tuple(sorted(core for cluster in self.clusters for core in cluster.cores))

    @property
    def allowed_cores(self) -> tuple[int, ...]:
        """The numbers of the cores that a program may ask for."""
        allowed = self.cpus.allowed
        return tuple(core for core in self.cores if allowed is None or core in allowed)

    @property
    def usual_cores(self) -> tuple[int, ...]:
        """The numbers of the cores that a program runs on unless it asks for others."""
        usual = self.cpus.usual
        return tuple(core for core in self.cores if usual is None or core in usual) or self.cores

    @property
    def usual_clusters(self) -> tuple[ClusterState, ...]:
        """The clusters with those cores only."""
        usual = {*self.usual_cores}
        return tuple(
            each.model_copy(update={"cores": cores})
            for each in self.clusters
            if (cores := tuple(core for core in each.cores if core in usual))
        )

    @property
    def usual_threads(self) -> int:
        """How many threads those cores and the quota of CPU time keep busy."""
        cores = len(self.usual_cores)
        return min(cores, self.cpus.quota_threads or cores)

    def threads_as_asked(self, asked: int | None) -> int | None:
        """Return threads that another board was asked for; none where they are too many here."""
        return asked if (asked or 0) <= self.usual_threads else None

    @property
    def memory_and_swap_bytes(self) -> int:
        """All of the memory and of the swap: what a program can reserve at most.

        The kernel counts zram here too, although what is reserved can never all be filled then.
        """
        return self.memory_total_bytes + self.swap_total_bytes

    @property
    def zram_total_bytes(self) -> int:
        """What of the swap is compressed memory."""
        return sum(each.total_bytes for each in self.swaps if each.kind == "zram")


def read_conditions(
    parts: Mapping[str, Sequence[str]], cores: Sequence[int], sensors: Sequence[str]
) -> Conditions:
    """Read the parts that the probing script wrote of a board's state.

    Args:
        parts: its lines, by part.
        cores: the numbers of the cores that are online.
        sensors: names of the thermal zones that count; empty for all that make sense.

    Raises:
        KeyError, ValueError, IndexError: they lack what Linux always tells.
    """
    kernel, _ = parts["uname"][0].split()
    boot_id, uptime, loadavg, *facts = parts["proc"]
    matches = (re.match(r"(\w+):\s+(\d+) kB", line) for line in facts)
    memory = {match[1]: int(match[2]) * 1024 for match in matches if match}
    available, limit = memory.get("MemAvailable", memory["MemFree"]), None
    group = tightest(read_groups(parts.get("memory", ())))
    if group is not None and group.left_bytes < available:
        available, limit = group.left_bytes, group.limit_bytes
    clusters = read_clusters(parts["policies"], cores)
    found = read_sensors(parts["temperatures"], sensors)
    warmest = hottest(found)
    (*_, throttling) = read_throttling(parts.get("throttling", ())) or (None,)
    mount = workdir_mount(parts)
    filesystem = mount.filesystem if mount else None
    df = parts.get("df", [])
    in_memory = mount is not None and storage_of(mount, facts, df, memory["MemTotal"]) == "memory"
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
        swaps=read_swaps(facts),
        workdir_free_bytes=free_bytes(df, filesystem),
        workdir_filesystem=filesystem,
        workdir_in_memory=in_memory,
        governors=tuple(sorted({each.governor for each in clusters if each.governor})),
        clusters=clusters,
        cpus=read_cpu_access(parts.get("cpus", ())),
        device_clocks=read_device_clocks(parts.get("clocks", ())),
        celsius=warmest.celsius if warmest else None,
        sensors=found,
        throttling=throttling.states if throttling else (),
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
    """Read lines ``CORES;GOVERNOR;KHZ;MAX_KHZ;LIMIT_KHZ``; cores in none of them come last."""
    found: dict[tuple[int, ...], ClusterState] = {}
    for line in policies:
        numbers, governor, khz, max_khz, limit_khz = (field.strip() for field in line.split(";"))
        its_cores = tuple(sorted(int(number) for number in numbers.split()))
        if its_cores:
            found[its_cores] = ClusterState(
                cores=its_cores,
                governor=governor or None,
                khz=_number(khz),
                max_khz=_number(max_khz),
                limit_khz=_number(limit_khz),
            )
    named = {core for each in found for core in each}
    rest = tuple(core for core in cores if core not in named)
    clusters = sorted(found.values(), key=lambda cluster: cluster.cores)
    return (*clusters, *((ClusterState(cores=rest),) if rest else ()))


def read_swaps(lines: Sequence[str]) -> tuple[SwapDevice, ...]:
    """Read the lines of ``/proc/swaps``, maybe among others."""
    matches = (re.fullmatch(r"(/\S+)\s+\w+\s+(\d+)\s+(\d+)\s+-?\d+", line) for line in lines)
    return tuple(
        SwapDevice(
            name=match[1],
            kind="zram" if "/zram" in match[1] else "disk",
            total_bytes=int(match[2]) * 1024,
            used_bytes=int(match[3]) * 1024,
        )
        for match in matches
        if match
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
