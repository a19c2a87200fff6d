"""A clock that was lowered during a run, as hardware and firmware tell it, or the frequencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from armload.analysis.clocks import MeasuredClock
from armload.analysis.columns import LOWER_FREQUENCY, Cores, is_lowered
from armload.analysis.conditions_log import RunConditions
from armload.analysis.finding import Disturbance
from armload.analysis.summary import generating
from armload.boards.conditions import ClusterState, Conditions
from armload.boards.governors import cpu_governor
from armload.boards.throttling import (
    FIRMWARE_BITS,
    FREQUENCY_CAPPED,
    SOFT_LIMIT,
    THROTTLED,
    UNDER_VOLTAGE,
    ThrottleReading,
    ThrottleState,
)
from armload.core.values import Finite, Value
from armload.engines.job import BoardRecord
from armload.engines.trace import Step, wall_time_s

FELL_FROM = 0.10
"""Share of the time at a lowered frequency, from which a run is throttled."""

BELOW_THE_MAXIMUM = 0.90
"""A core that stays below this share of its maximum frequency is throttled."""

_FEWEST_STEPS = 10
_ARM = {"asimd", "neon"}
ThrottleCause = Literal["under-voltage", "heat", "over-current"]


class ThrottleEvent(Value):
    """One cause of a lower clock in a run.

    Attributes:
        source: what told it first, such as ``get_throttled``.
        from_s: when it was first seen, after the program's start; 0 where it was so already.
        active_s: for how long it was seen; 0 for less than the time between two looks.
    """

    cause: ThrottleCause
    source: str
    from_s: Finite
    active_s: Finite

    @property
    def when(self) -> str:
        """When it was seen, how long, and by whom."""
        began = f"at {self.from_s:.0f} s" if self.from_s else "from the start"
        lasted = f", for {self.active_s:.0f} s" if self.active_s >= 1 else ""
        return f"{began}{lasted} ({self.source})"


_SUPPLIES = {
    "Raspberry Pi 5": "a 5 V 5 A supply",
    "Raspberry Pi Compute Module 5": "a 5 V 5 A supply",
    "Raspberry Pi 4": "a 5 V 3 A supply",
    "Raspberry Pi Compute Module 4": "a 5 V 3 A supply",
    "Raspberry Pi 3": "a 5 V 2.5 A supply",
}
"""What Raspberry Pi's documentation recommends."""


class UnderVoltage(Disturbance):
    """The board's supply was too low for a time.

    Attributes:
        device: the board's own name for itself; empty where it has none.
    """

    name: ClassVar[str] = "under-voltage"
    kind: Literal["under-voltage"] = "under-voltage"
    event: ThrottleEvent
    device: str

    def fact(self) -> str:
        return (
            f"Under-voltage {self.event.when}: the board's supply was too low, and its clock was "
            "lowered."
        )

    def advice(self) -> str:
        for name, supply in _SUPPLIES.items():
            if self.device.startswith(name):
                return f"Use {supply} with a short cable, then restart the board."
        return "Use a stronger supply and a shorter cable."


class LowClock(Disturbance):
    """The cores ran slower than they could."""

    name: ClassVar[str] = "throttled"

    def advice(self) -> str:
        return (
            "Let the board cool first, or use the performance governor (bench: --cool-to, "
            "--governor)."
        )


class ThrottledFromStart(LowClock):
    """The fastest cores never came near their maximum frequency."""

    kind: Literal["throttled from the start"] = "throttled from the start"
    highest_khz: int
    maximum_khz: int
    governor: str | None
    celsius: float | None

    def fact(self) -> str:
        governed = f" under the {self.governor} governor" if self.governor else ""
        return (
            f"Throttled from the start: the fastest cores never exceeded "
            f"{self.highest_khz / 1e6:.2f} of their {self.maximum_khz / 1e6:.2f} GHz"
            f"{governed}{_heat(self.celsius)}."
        )

    def advice(self) -> str:
        if self.governor == "performance":
            return "Let the board cool first (bench: --cool-to)."
        return super().advice()


class Throttled(LowClock):
    """For a share of the time no core exceeded ``below_khz``; the highest was ``peak_khz``."""

    kind: Literal["throttled"] = "throttled"
    time_share: float
    below_khz: float
    lowest_khz: int
    peak_khz: int
    celsius: float | None

    def fact(self) -> str:
        return (
            f"Throttled: for {self.time_share:.0%} of the time, none of the run's cores exceeded "
            f"{self.below_khz / 1e6:.2f} GHz; they fell from {self.peak_khz / 1e6:.2f} to "
            f"{self.lowest_khz / 1e6:.2f} GHz{_heat(self.celsius)}."
        )


class ThrottledByHardware(LowClock):
    """Hardware, firmware or the kernel lowered the clock, and say why."""

    kind: Literal["throttled by hardware"] = "throttled by hardware"
    event: ThrottleEvent
    celsius: float | None

    def fact(self) -> str:
        if self.event.cause == "over-current":
            return f"Throttled by an over-current event {self.event.when}."
        return (
            f"Throttled {self.event.when}: the board lowered its clock because of "
            f"heat{_heat(self.celsius)}."
        )

    def advice(self) -> str:
        if self.event.cause == "over-current":
            return "Use a stronger supply, or a lower power mode (nvpmodel)."
        return "Let it cool first (bench: --cool-to), or add a heat sink or a fan."


class SlowerThanShown(LowClock):
    """The kernel showed a frequency that a core did not have; at its worst moment."""

    kind: Literal["slower than shown"] = "slower than shown"
    clock: MeasuredClock

    def fact(self) -> str:
        return (
            f"Throttled: core {self.clock.core} ran at {self.clock.khz / 1e6:.2f} GHz "
            f"{self.clock.moment} the run, while the kernel reported "
            f"{self.clock.shown_khz / 1e6:.2f}."
        )

    def advice(self) -> str:
        return "Check the board's supply and cooling."


def _heat(celsius: float | None) -> str:
    return f", at up to {celsius:.0f} °C" if celsius is not None else ""


def doubts_about_clocks(
    steps: Sequence[Step],
    board: BoardRecord,
    before: Conditions,
    around: RunConditions,
    cores: Cores,
) -> list[Disturbance]:
    """Return what lowered the clock of a run's cores."""
    events = throttle_events(around.throttling)
    found: list[Disturbance] = [
        UnderVoltage(event=event, device=board.device)
        if event.cause == "under-voltage"
        else ThrottledByHardware(event=event, celsius=_hottest(steps))
        for event in events
    ]
    if any(isinstance(each, UnderVoltage) for each in found):  # cooling would not help
        return found
    if slower := [each for each in around.clocks if each.is_slower_than_shown]:
        found.append(SlowerThanShown(clock=min(slower, key=lambda each: each.khz / each.shown_khz)))
    found += _doubts_about_frequency(steps, cores)
    if _ARM & set(board.cpu_features):  # elsewhere the maximum is that of one core alone
        governor = cpu_governor(around.governor)
        found += _doubts_from_the_start(steps, before, governor, cores, is_slowed=bool(events))
    return found


def _doubts_about_frequency(steps: Sequence[Step], cores: Cores) -> list[Throttled]:
    # The fastest core counts: the engine is on it, and slower clusters never reach it.
    known = [(step, khz) for step in generating(steps) if (khz := cores.khz(step))]
    if len(known) < _FEWEST_STEPS:
        return []
    highest = max(khz for _, khz in known)
    slowed = [(step, khz) for step, khz in known if is_lowered(khz, highest)]
    share = wall_time_s(step for step, _ in slowed) / wall_time_s(step for step, _ in known)
    if not slowed or share < FELL_FROM:
        return []
    return [
        Throttled(
            time_share=share,
            below_khz=LOWER_FREQUENCY * highest,
            lowest_khz=min(khz for _, khz in slowed),
            peak_khz=highest,
            celsius=_hottest([step for step, _ in slowed]),
        )
    ]


def _doubts_from_the_start(
    steps: Sequence[Step],
    before: Conditions,
    governor: str | None,
    cores: Cores,
    *,
    is_slowed: bool,
) -> list[ThrottledFromStart]:
    """Hold the fastest cores that the engine may use against the highest frequency they have."""
    usable = [
        cluster
        for cluster in before.clusters
        if cluster.max_khz and (cores.allowed is None or cores.allowed & {*cluster.cores})
    ]
    if not usable:
        return []
    # A power mode's limit is how the board is set up; the kernel's thermal limit shows as well.
    highest_of = {
        each.cores: (each.max_khz or 0) if is_slowed else _allowed_khz(each) for each in usable
    }
    fastest = max(highest_of.values())
    usable = [each for each in usable if highest_of[each.cores] == fastest]
    numbers = {n for each in usable for n in each.cores}
    if cores.allowed is not None:
        numbers &= cores.allowed
    known = [step for step in generating(steps) if cores.of(numbers, step)]
    if len(known) < _FEWEST_STEPS:
        return []
    highest = max(cores.of(numbers, step) for step in known)
    if highest >= BELOW_THE_MAXIMUM * fastest:
        return []
    had = {each.governor for each in usable if each.governor}
    governor = governor or (had.pop() if len(had) == 1 else None)
    return [
        ThrottledFromStart(
            highest_khz=highest, maximum_khz=fastest, governor=governor, celsius=_hottest(known)
        )
    ]


def _allowed_khz(cluster: ClusterState) -> int:
    return min(cluster.max_khz or 0, cluster.limit_khz or cluster.max_khz or 0)


def _hottest(steps: Sequence[Step]) -> float | None:
    return max((step.celsius for step in steps if step.celsius is not None), default=None)


def throttle_events(readings: Sequence[ThrottleReading]) -> tuple[ThrottleEvent, ...]:
    """Return the causes that were active in a run, each once, the earliest first.

    What was recorded before the first reading is not blamed on the run.

    Args:
        readings: where something had changed, and at the end.
    """
    found: dict[ThrottleCause, ThrottleEvent] = {}
    # Under-voltage alone also caps the firmware's clock; heat has a bit of its own.
    hot = SOFT_LIMIT if _was_low(readings) else FREQUENCY_CAPPED | THROTTLED | SOFT_LIMIT
    following = (*readings[1:], None)
    for (was, reading), after in zip(_with_former(readings), following, strict=False):
        at_s = reading.at_s - readings[0].at_s
        lasted_s = after.at_s - reading.at_s if after else 0.0
        causes: dict[ThrottleCause, tuple[str, bool]] = {}
        for index, state in enumerate(reading.states):
            for cause, is_now in _causes(state, was.states[index] if was else None, hot):
                source, also = causes.get(cause, (state.name, False))
                causes[cause] = source, is_now or also
        for cause, (source, is_now) in causes.items():
            known = found.get(cause) or ThrottleEvent(
                cause=cause, source=source, from_s=at_s, active_s=0
            )
            more_s = lasted_s if is_now else 0.0
            found[cause] = known.model_copy(update={"active_s": known.active_s + more_s})
    return tuple(sorted(found.values(), key=lambda event: event.from_s))


def _with_former(
    readings: Sequence[ThrottleReading],
) -> Iterator[tuple[ThrottleReading | None, ThrottleReading]]:
    return zip((None, *readings), readings, strict=False)


def _was_low(readings: Sequence[ThrottleReading]) -> bool:
    return any(
        cause == "under-voltage"
        for was, reading in _with_former(readings)
        for index, state in enumerate(reading.states)
        for cause, _ in _causes(state, was.states[index] if was else None, 0)
    )


def _causes(
    state: ThrottleState, was: ThrottleState | None, hot: int
) -> list[tuple[ThrottleCause, bool]]:
    """Return each cause that a source shows, and whether it is active or has just been."""
    if state.kind == "firmware":
        # A short event shows only in the bits since the boot. The kernel's driver clears those.
        seen = state.now | (state.since_boot & ~was.since_boot if was else 0)
        found: list[tuple[ThrottleCause, bool]] = []
        if seen & UNDER_VOLTAGE:
            found.append(("under-voltage", bool(state.now & UNDER_VOLTAGE)))
        if seen & hot:
            found.append(("heat", bool(state.now & hot)))
        return found
    if state.kind in ("overcurrent", "events"):
        grew = was is not None and state.since_boot > was.since_boot
        return [("over-current" if state.kind == "overcurrent" else "heat", False)] if grew else []
    if not state.now:
        return []
    return [("under-voltage" if state.kind == "alarm" else "heat", True)]


def notes_about_supply(readings: Sequence[ThrottleReading]) -> list[str]:
    """Say what the firmware had recorded before a run, so that the run cannot be cleared of it.

    While a bit is set, an event that is shorter than the time between two looks leaves no trace.
    """
    states = [each for each in (readings[0].states if readings else ()) if each.kind == "firmware"]
    recorded = ", ".join(
        name for bit, name in FIRMWARE_BITS.items() if any(each.since_boot & bit for each in states)
    )
    if not recorded:
        return []
    said = f"The firmware had recorded {recorded} since the boot, before this run."
    return [f"{said} Until the board restarts, an event shorter than a second cannot be seen."]
