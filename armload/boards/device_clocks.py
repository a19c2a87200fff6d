"""Clocks of a board beside those of its cores: memory, GPU, NPU and interconnect.

Read are ``/sys/class/devfreq`` (Linux's Documentation/ABI/testing/sysfs-class-devfreq), the memory
clock in debugfs where root may read it, as on NVIDIA's Jetson, and Raspberry Pi's
``vcgencmd measure_clock``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from armload.core.values import LEAVES, Count, Leaves, Value, whole_number

ClockKind = Literal["memory", "gpu", "npu", "interconnect", "cpu", "other"]

GOVERNED: tuple[ClockKind, ...] = ("cpu", "memory", "gpu", "npu", "interconnect")
"""Kinds of clocks that have governors, as ``--governor`` calls them."""

_KINDS: tuple[tuple[ClockKind, str], ...] = (
    # A GPU's or CPU's vote for memory bandwidth is no clock of either.
    ("interconnect", r"[cg]pu-?bw|bw_?mon|llcc-bw|memlat|mincpubw|latfloor"),
    ("gpu", r"gpu|mali|kgsl|g3d|g[ampv][0-9]{2}b|v3d|panfrost|bifrost"),
    ("npu", r"npu|nvdla|mdla|aipu|(^|[.:_-])apu"),
    ("memory", r"(^|[.:_-])(dmc|dmcfreq|emc|actmon|mif|ddr|ddrc|dram|sdram)([.:_-]|$)"),
    ("memory", r"dram-controller|memory-controller|devfreq_mif|clk_ddrc?$"),
    ("interconnect", r"(^|[.:_-])(bus|noc|nic|cci|l3|llcc|int|core)([.:_@-]|$)|interconnect|_int$"),
    ("cpu", r"^arm$"),
)
"""Words in the names that drivers give them, the first that fits."""

_OWN_UNIT = re.compile(r"qcom,(?!kgsl)|[cg]pu-?bw|bw_?mon|llcc-bw|memlat")
"""Names of Qualcomm's drivers whose numbers are MB/s or kHz of a vote, not Hz."""

_LEAST_HZ, _MOST_HZ = 1_000_000, 20_000_000_000
_MOST_CLOCKS = 32
_MOST_SAMPLED = 16
"""As ``ARMLOAD_MAX_CLOCKS`` in ``toolchains/native/armload_sensors.h``."""


class DeviceClock(Value):
    """One clock, as the kernel or the firmware shows it.

    Attributes:
        path: of the file that shows it; empty where a tool does.
        name: its driver's or the firmware's.
        kind: what it drives, by that name.
        governor: that chooses its frequency; none where nothing is said of one.
        hz: its frequency now; none where it does not answer, or is given in a unit of its own.
        limit_hz: the highest that it may have now.
        highest_hz: the highest that it has.
    """

    path: str = ""
    name: Annotated[str, Leaves("device clock")]
    kind: Annotated[ClockKind, LEAVES]
    governor: Annotated[str | None, Leaves("governor")] = None
    hz: Annotated[Count | None, LEAVES] = None
    limit_hz: Annotated[Count | None, LEAVES] = None
    highest_hz: Annotated[Count | None, LEAVES] = None

    @property
    def allowed_hz(self) -> int | None:
        """The highest that it can reach as the board is set up."""
        known = [hz for hz in (self.limit_hz, self.highest_hz) if hz]
        return min(known, default=None)


def kind_of(name: str) -> ClockKind:
    """Return what a clock drives, by its name."""
    lower = name.lower()
    return next((kind for kind, words in _KINDS if re.search(words, lower)), "other")


def read_device_clocks(lines: Iterable[str]) -> tuple[DeviceClock, ...]:
    """Read lines ``PATH;NAME;GOVERNOR;NOW;MIN;MAX;AVAILABLE...``; others are left out."""
    found: list[DeviceClock] = []
    for line in lines:
        fields = [field.strip() for field in line.split(";")]
        if len(fields) != _FIELDS or not fields[1] or len(found) == _MOST_CLOCKS:
            continue
        path, name, governor, now, _, limit, available = fields
        has_own_unit = _OWN_UNIT.search(name)
        hz, limit_hz = (None if has_own_unit else _hz(text) for text in (now, limit))
        steps = [] if has_own_unit else [each for each in map(_hz, available.split()) if each]
        found.append(
            DeviceClock(
                path=path if path.startswith("/") and not re.search(r"\s", path) else "",
                name=name,
                kind=kind_of(name),
                governor=governor or None,
                hz=hz,
                limit_hz=limit_hz,
                highest_hz=max(steps, default=None),
            )
        )
    return tuple(found)


_FIELDS = 7


def _hz(text: str) -> int | None:
    number = whole_number(text)
    return number if number is not None and _LEAST_HZ <= number <= _MOST_HZ else None


def sampled_clocks(clocks: Sequence[DeviceClock]) -> tuple[DeviceClock, ...]:
    """Return those that a program of ours reads during a run, in the order of its figures."""
    return tuple(each for each in clocks if each.path and each.hz is not None)[:_MOST_SAMPLED]


def clocks_of(kind: ClockKind, clocks: Sequence[DeviceClock]) -> tuple[DeviceClock, ...]:
    """Return the clocks of a kind that show a frequency."""
    return tuple(each for each in clocks if each.kind == kind and each.hz is not None)
