"""At which clocks memory, GPU, NPU and interconnect ran during a run, and memory that ran slowly.

A program of ours reads the clocks with its other sensors, so that their time is known by step. Of
a program without steps, the kernel's own count of the time in each state tells, which
``drivers/devfreq/devfreq.c`` shows as ``trans_stat``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from armload.analysis.finding import Disturbance
from armload.analysis.summary import generating, prompting
from armload.boards.conditions import Conditions
from armload.boards.device_clocks import ClockKind, DeviceClock, sampled_clocks
from armload.core.values import LEAVES, Count, Finite, Leaves, Value
from armload.engines.trace import Step

FILE_NAME = "transitions"

_FELL_BELOW, _FELL_FROM = 0.95, 0.10
_MOST_BYTES = 1 << 20
_FEWEST_STEPS = 10
_COLUMN = 10
Phase = Literal["decode", "prefill", "run"]


class TimeAtClock(Value):
    """A frequency, and for which share of the time a clock had it."""

    hz: Annotated[Count, LEAVES]
    share: Annotated[Finite, LEAVES]


class ClockUse(Value):
    """At which frequencies a clock ran.

    Attributes:
        name, kind, governor: as in ``DeviceClock``; the governor is that of the run.
        phase: of the run, over which the shares are.
        times: the lowest frequency first; their shares add up to 1.
        allowed_hz: the highest that it could have; none where nobody says.
    """

    name: Annotated[str, Leaves("device clock")]
    kind: Annotated[ClockKind, LEAVES]
    governor: Annotated[str | None, Leaves("governor")] = None
    phase: Annotated[Phase, LEAVES]
    times: Annotated[tuple[TimeAtClock, ...], LEAVES]
    allowed_hz: Annotated[Count | None, LEAVES] = None

    @property
    def mean_hz(self) -> float:
        """The average over the time."""
        return sum(each.hz * each.share for each in self.times)

    @property
    def slow_times(self) -> tuple[TimeAtClock, ...]:
        """The times below the highest frequency that it could have."""
        highest = self.allowed_hz or 0
        return tuple(each for each in self.times if each.hz < _FELL_BELOW * highest)


class SlowMemory(Disturbance):
    """The memory's clock was below the highest that it could have.

    Attributes:
        lowest_hz, most_hz: the range of its frequencies while it was below.
        allowed_hz: the highest that it could have.
        time_share: for which it was below, of ``phase``.
        governor: that chose it; none where that is not known.
    """

    name: ClassVar[str] = "memory clock"
    kind: Literal["memory clock"] = "memory clock"
    lowest_hz: int
    most_hz: int
    allowed_hz: int
    time_share: float
    phase: Phase
    governor: str | None

    def fact(self) -> str:
        low, most, highest = (
            f"{hz / 1e6:.0f}" for hz in (self.lowest_hz, self.most_hz, self.allowed_hz)
        )
        ran = low if low == most else f"{low} to {most}"
        governed = f" (governor {self.governor})" if self.governor else ""
        return (
            f"The memory ran at {ran} of {highest} MHz for {self.time_share:.0%} of the "
            f"{self.phase}{governed}."
        )

    def advice(self) -> str:
        if self.governor in (None, "performance"):
            return ""
        return "Keep its clock up during the run (bench: --governor memory=performance)."


def read_device_clocks_of_run(
    folder: Path,
    steps: Sequence[Step],
    before: Conditions,
    governors: Mapping[str, str] | None = None,
) -> tuple[ClockUse, ...]:
    """Return how the clocks ran that the run's programs and the kernel noted.

    Args:
        governors: that were set for the run, by the folder of the clock's file.
    """
    clocks = sampled_clocks(before.device_clocks)
    if not clocks:
        return ()
    phase: Phase = "decode" if generating(steps) else "prefill"
    counted = generating(steps) or prompting(steps)
    states = _time_in_states(folder)
    found = []
    for index, clock in enumerate(clocks):
        times = _sampled(counted, index)
        over: Phase = phase
        if not times:
            times, over = states.get(clock.path, {}), "run"
        if sum(times.values()) > 0:
            set_to = (governors or {}).get(posixpath.dirname(clock.path))
            found.append(_use(clock, times, over, set_to))
    return tuple(found)


def _use(
    clock: DeviceClock, times: Mapping[int, float], phase: Phase, governor: str | None
) -> ClockUse:
    total = sum(times.values())
    return ClockUse(
        name=clock.name,
        kind=clock.kind,
        governor=governor or clock.governor,
        phase=phase,
        times=tuple(
            TimeAtClock(hz=hz, share=time / total) for hz, time in sorted(times.items()) if time > 0
        ),
        allowed_hz=clock.allowed_hz,
    )


def _sampled(steps: Sequence[Step], index: int) -> dict[int, float]:
    """Return the seconds at each frequency; empty where too few steps show one."""
    times: dict[int, float] = {}
    known = [step for step in steps if index < len(step.device_khz) and step.device_khz[index]]
    if len(known) < min(_FEWEST_STEPS, len(steps)):
        return {}
    for step in known:
        hz = step.device_khz[index] * 1000
        times[hz] = times.get(hz, 0.0) + step.duration_s
    return times


def _time_in_states(folder: Path) -> dict[str, dict[int, float]]:
    """Return the time in each state between the two readings around a run, by the clock's file."""
    try:
        with (folder / FILE_NAME).open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    readings = [_read_moment(part) for part in text.split("#at ")[1:]]
    if len(readings) != 2:
        return {}
    (began_s, early), (ended_s, late) = readings
    found: dict[str, dict[int, float]] = {}
    for path, after in late.items():
        before = early.get(path)
        if before is None:
            continue
        since = {hz: time - before.times.get(hz, 0) for hz, time in after.times.items()}
        # Under some governors the kernel counts only when the frequency changes.
        uncounted_s = ended_s - began_s - sum(since.values())
        if after.now_hz in since and uncounted_s > 0:
            since[after.now_hz] += uncounted_s
        # Whoever writes to the file sets it back to 0.
        if all(time >= 0 for time in since.values()):
            found[path] = since
    return found


def _read_moment(text: str) -> tuple[float, dict[str, Transitions]]:
    """Read what one reading told: the board's uptime, and the tables by the clocks' files."""
    since, *parts = text.split("#clock ")
    tables = (part.partition("\n") for part in parts)
    read = {path: read_transitions(table) for path, _, table in tables}
    up_s = float(match[0]) if (match := re.match(r"[0-9]{1,12}(\.[0-9]+)?", since)) else 0.0
    return up_s, {path: table for path, table in read.items() if table is not None}


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """Seconds in each state since the boot, by its frequency in Hz; and the present one."""

    times: Mapping[int, float]
    now_hz: int | None


_ROW = re.compile(r"([* ]) *([0-9]{1,15}):([ 0-9]{1,4096})")


def read_transitions(table: str) -> Transitions | None:
    """Read a ``trans_stat``; none where it has another form, as where it is not supported.

    Its columns are ten characters wide, and wide numbers leave no space between them.
    """
    rows = [match for line in table.splitlines() if (match := _ROW.fullmatch(line))]
    times: dict[int, float] = {}
    for row in rows:
        milliseconds = row[3][_COLUMN * len(rows) :].strip()
        if milliseconds.isdecimal() and int(row[2]) > 0:
            times[int(row[2])] = int(milliseconds) / 1000
    if not rows or len(times) < len(rows):
        return None
    return Transitions(
        times=times, now_hz=next((int(row[2]) for row in rows if row[1] == "*"), None)
    )


def doubts_about_memory_clock(clocks: Sequence[ClockUse]) -> list[SlowMemory]:
    """Return the memory clocks that were below the highest they could have for much of the time."""
    found = []
    for each in clocks:
        slow = each.slow_times
        share = sum(time.share for time in slow)
        if each.kind == "memory" and each.allowed_hz and share >= _FELL_FROM:
            found.append(
                SlowMemory(
                    lowest_hz=slow[0].hz,
                    most_hz=slow[-1].hz,
                    allowed_hz=each.allowed_hz,
                    time_share=share,
                    phase=each.phase,
                    governor=each.governor,
                )
            )
    return found
