"""A board's state in words: frequencies, sensors, throttling, NUMA nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.analysis.clocks import MeasuredClock
from armload.analysis.device_clocks import ClockUse
from armload.boards.boot import BootFacts
from armload.boards.conditions import Conditions
from armload.boards.device_clocks import DeviceClock
from armload.boards.probe import NumaNode
from armload.boards.sensors import Sensor
from armload.boards.throttling import FIRMWARE_BITS, ThrottleState
from armload.boards.vulkan import Vulkan
from armload.core.cpu_sets import cpu_words
from armload.core.values import counted, format_bytes
from armload.report.formatting import UNKNOWN


def clusters_line(conditions: Conditions) -> str:
    """Say each cluster's cores, governor and frequency; nothing where the kernel shows none."""
    return "; ".join(
        f"cores {_range(cluster.cores)}: "
        + " ".join(
            [
                *([cluster.governor] if cluster.governor else []),
                f"{_ghz(cluster.khz)} of {_ghz(cluster.max_khz)} GHz",
            ]
        )
        for cluster in conditions.clusters
        if cluster.governor or cluster.khz or cluster.max_khz
    )


def cpu_access_line(conditions: Conditions) -> str:
    """Say what affinity and control groups leave of the cores; nothing where they leave all."""
    usual, allowed, quota = (
        conditions.usual_cores,
        conditions.allowed_cores,
        conditions.cpus.quota,
    )
    said = []
    if usual != conditions.cores:
        said.append(f"programs run on {cpu_words(usual)}")
    if allowed not in (conditions.cores, usual):
        said.append(f"may ask for {cpu_words(allowed)}")
    elif allowed != usual:
        said.append("may ask for all")
    if quota is not None:
        said.append(f"get at most {quota:.3g} cores of CPU time")
    return ", ".join(said)


_DEVICES = {"gpu": "GPU", "npu": "NPU", "cpu": "CPU", "other": ""}


def device_clocks_line(conditions: Conditions) -> str:
    """Say what the clocks of memory, GPU, NPU and interconnect are; nothing where none shows."""
    return "; ".join(map(_device_clock, conditions.device_clocks))


def _device_clock(clock: DeviceClock) -> str:
    device = _DEVICES.get(clock.kind, clock.kind)
    name = f"{device} ({clock.name})" if device else clock.name
    highest = clock.highest_hz or clock.limit_hz
    shown = [clock.governor] if clock.governor else []
    if clock.hz is not None:
        shown.append(f"{_mhz(clock.hz)}{f' of {_mhz(highest)}' if highest else ''} MHz")
    if clock.allowed_hz and highest and clock.allowed_hz < highest:
        shown.append(f"(limit {_mhz(clock.allowed_hz)} MHz)")
    return f"{name}: {' '.join(shown) or 'no answer'}"


def _mhz(hz: int) -> str:
    return f"{hz / 1e6:.0f}"


def clock_use_line(clocks: Sequence[ClockUse]) -> str:
    """Say for which share of a run each clock had which frequency."""
    return "; ".join(
        f"{_DEVICES.get(each.kind, each.kind) or each.name}: "
        + ", ".join(
            f"{_mhz(time.hz)} MHz {time.share:.0%}"
            for time in sorted(each.times, key=lambda time: -time.share)[:_MOST_TIMES]
        )
        + f" of the {each.phase}"
        for each in clocks
    )


_MOST_TIMES = 4


def busy_devices(clocks: Sequence[ClockUse]) -> list[ClockUse]:
    """Return the clocks of what a model runs on, for where there is room for a few only."""
    return [each for each in clocks if each.kind in ("memory", "gpu", "npu")]


def sensors_line(conditions: Conditions) -> str:
    """Say what each sensor shows that counts, and which are left out, and why."""
    counting = [_shown(each) for each in conditions.sensors if each.left_out is None]
    left_out = [f"{_shown(each)} ({each.left_out})" for each in conditions.sensors if each.left_out]
    return "; left out: ".join(", ".join(each) for each in (counting, left_out) if each)


def _shown(sensor: Sensor) -> str:
    return sensor.name if sensor.celsius is None else f"{sensor.name} {sensor.celsius:.0f} °C"


def throttling_words(states: Sequence[ThrottleState]) -> str:
    """Say what slows a board, and what its firmware has recorded; nothing without a source."""
    if not states:
        return ""
    now = [words for each in states for words in _active(each)]
    recorded = [words for each in states for words in _recorded(each)]
    line = f"now: {', '.join(now) or 'none'}"
    return f"{line}; since boot: {', '.join(recorded)}" if recorded else line


def _active(state: ThrottleState) -> list[str]:
    if state.kind == "firmware":
        return [name for bit, name in FIRMWARE_BITS.items() if state.now & bit]
    if not state.now:
        return []
    return ["under-voltage"] if state.kind == "alarm" else [f"{state.name} at state {state.now}"]


def _recorded(state: ThrottleState) -> list[str]:
    if state.kind == "firmware":
        return [name for bit, name in FIRMWARE_BITS.items() if state.since_boot & bit]
    if not state.since_boot:
        return []
    kind = "over-current" if state.kind == "overcurrent" else "throttling"
    return [f"{counted(state.since_boot, f'{kind} event')} ({state.name})"]


def clocks_line(clocks: Sequence[MeasuredClock]) -> str:
    """Say each core's real frequency around a run; nothing where it was not measured."""
    return "; ".join(
        f"core {each.core} {each.moment}: {each.khz / 1e6:.2f} GHz"
        + (f", shown {each.shown_khz / 1e6:.2f}" if each.shown_khz else "")
        for each in clocks
    )


def nodes_line(nodes: Sequence[NumaNode]) -> str:
    """Say each NUMA node's cores and memory."""
    return "; ".join(
        f"{f'cores {_range(node.cores)}' if node.cores else 'no cores'}: "
        f"{format_bytes(node.memory_bytes)}"
        for node in nodes
    )


def _range(cores: Sequence[int]) -> str:
    if len(cores) > 1 and cores[-1] - cores[0] == len(cores) - 1:
        return f"{cores[0]}-{cores[-1]}"
    return ",".join(str(core) for core in cores)


def _ghz(khz: int | None) -> str:
    return UNKNOWN if khz is None else f"{khz / 1e6:.2f}"


def boot_line(facts: BootFacts) -> str:
    """Say what can start a service when a board boots, the best first, and what cannot and why."""
    version = "" if facts.systemd_version is None else f" {facts.systemd_version}"
    names = [f"{name}{version}" if name == "systemd" else name for name in facts.usable]
    as_root = {"login": " (as root)", "sudo": " (root by sudo)", "none": ""}[facts.root]
    first = f" (first process: {facts.init})" if facts.init else ""
    usable = f"{', '.join(names)}{as_root}" if names else f"none{first}"
    return "; ".join([usable, *(f"not {each.name}: {each.reason}" for each in facts.unusable)])


def vulkan_line(found: Vulkan) -> str:
    """Say which GPUs a board has for Vulkan, or why programs for them do not run there."""
    obstacle = found.obstacle()
    if obstacle is not None:
        return f"not usable: {obstacle[0]}"
    drivers = ", ".join(PurePosixPath(each).name for each in found.drivers)
    if found.devices is None:
        devices = "devices not known (vulkaninfo, which lists them, is not installed or failed)"
    else:
        listed = (f"{each.name} ({each.kind})" for each in found.devices)
        devices = ", ".join(listed) or "no device"
    return f"{devices}; drivers: {drivers}"
