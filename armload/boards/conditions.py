"""The state of a board at one moment, and how it is read from what the probing script wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from armload.core.values import Value


class ClusterState(Value):
    """Cores that change their frequency together; all of them where there is no cpufreq.

    Attributes:
        cores: their numbers.
        governor: that chooses their frequency.
        khz: their frequency now.
        max_khz: the highest that they have.
    """

    cores: tuple[int, ...]
    governor: str | None = None
    khz: int | None = None
    max_khz: int | None = None


class Sensor(Value):
    """One thermal zone, by the kernel's name for it."""

    name: str
    celsius: float


class Conditions(Value):
    """The board at one moment.

    Attributes:
        boot_id: changes with every boot.
        uptime_s: since that boot.
        kernel: ``uname -r``.
        load_1min: run-queue average.
        memory_total_bytes, memory_available_bytes, swap_used_bytes: from ``/proc/meminfo``.
        swap_total_bytes: likewise.
        workdir_free_bytes: free space for armload's folder.
        workdir_filesystem: what that folder lies on, such as ``ext4``.
        governors: CPU frequency governors in use; empty where there is no cpufreq.
        clusters: the cores by frequency policy.
        celsius: hottest sensor; none where there is none.
        sensors: all of them.

    What was added later is none, or empty, in a run that was kept before.
    """

    boot_id: str
    uptime_s: float
    kernel: str
    load_1min: float
    memory_total_bytes: int
    memory_available_bytes: int
    swap_used_bytes: int
    swap_total_bytes: int | None = None
    workdir_free_bytes: int
    workdir_filesystem: str | None = None
    governors: tuple[str, ...] = ()
    clusters: tuple[ClusterState, ...] = ()
    celsius: float | None = None
    sensors: tuple[Sensor, ...] = ()


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
    clusters = read_clusters(parts["policies"], cores)
    sensors = read_sensors(parts["temperatures"])
    place = next(iter(parts.get("place", ())), None)
    return Conditions(
        boot_id=boot_id,
        uptime_s=float(uptime.split()[0]),
        kernel=kernel,
        load_1min=float(loadavg.split()[0]),
        memory_total_bytes=memory["MemTotal"],
        memory_available_bytes=memory.get("MemAvailable", memory["MemFree"]),
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        swap_total_bytes=memory.get("SwapTotal", 0),
        workdir_free_bytes=free_bytes(parts.get("df", [])),
        workdir_filesystem=None if place is None else _filesystem(place, facts),
        governors=tuple(sorted({each.governor for each in clusters if each.governor})),
        clusters=clusters,
        celsius=hottest(sensors),
        sensors=sensors,
    )


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


def free_bytes(df: Sequence[str]) -> int:
    """Read the free space from ``df -k``'s lines; 0 when they say nothing."""
    # The percentage is the one column that can be told apart wherever a name holds spaces.
    match = re.search(r"(\d+)\s+(\d+)\s+(-?\d+)\s+\d+%", " ".join(df[1:]))
    return max(int(match[3]), 0) * 1024 if match else 0


def _memory_bytes(meminfo: Sequence[str]) -> dict[str, int]:
    matches = (re.match(r"(\w+):\s+(\d+) kB", line) for line in meminfo)
    return {match[1]: int(match[2]) * 1024 for match in matches if match}


def _filesystem(place: str, lines: Sequence[str]) -> str | None:
    """Return the type of the innermost mount that holds a folder; of two there, the later."""
    folder, found, depth = PurePosixPath(place), None, -1
    for line in lines:
        match = re.fullmatch(r"\S+ (/\S*) (\S+) \S+ \d+ \d+", line)
        if match is None:
            continue
        # The kernel writes spaces and the like in a mount point as \040.
        unescaped = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), match[1])
        point = PurePosixPath(unescaped)
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = match[2], len(point.parts)
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _celsius(raw: float) -> float:
    # The kernel gives thousandths; some vendors' drivers give degrees.
    return raw / 1000 if abs(raw) >= 1000 else raw
