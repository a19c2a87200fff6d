"""What slowed a board during a run, as its hardware and firmware told the run's script."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

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


def throttle_events(readings: Sequence[ThrottleReading]) -> tuple[ThrottleEvent, ...]:
    """Return the causes that were active in a run, each once, the earliest first.

    What was recorded before the first reading is not blamed on the run.

    Args:
        readings: where something had changed, and at the end.
    """
    found: dict[ThrottleCause, ThrottleEvent] = {}
    for number, reading in enumerate(readings):
        before = readings[number - 1] if number else None
        until_s = readings[number + 1].at_s if number + 1 < len(readings) else reading.at_s
        at_s = reading.at_s - readings[0].at_s
        lasted_s = until_s - reading.at_s
        causes: dict[ThrottleCause, tuple[str, bool]] = {}
        for index, state in enumerate(reading.states):
            was = before.states[index] if before else None
            for cause, is_now in _causes(state, was):
                source, also = causes.get(cause, (state.name, False))
                causes[cause] = source, is_now or also
        for cause, (source, is_now) in causes.items():
            known = found.get(cause) or ThrottleEvent(
                cause=cause, source=source, from_s=at_s, active_s=0
            )
            more_s = lasted_s if is_now else 0.0
            found[cause] = known.model_copy(update={"active_s": known.active_s + more_s})
    if "under-voltage" in found and not _has_own_heat(readings):
        found.pop("heat", None)
    return tuple(sorted(found.values(), key=lambda event: event.from_s))


def _causes(state: ThrottleState, was: ThrottleState | None) -> list[tuple[ThrottleCause, bool]]:
    """Return each cause that a source shows, and whether it is active or has just been."""
    if state.kind == "firmware":
        return _of_firmware(state, was)
    if state.kind in ("overcurrent", "events"):
        grew = was is not None and state.since_boot > was.since_boot
        return [("over-current" if state.kind == "overcurrent" else "heat", False)] if grew else []
    if not state.now:
        return []
    return [("under-voltage" if state.kind == "alarm" else "heat", True)]


def _of_firmware(
    state: ThrottleState, was: ThrottleState | None
) -> list[tuple[ThrottleCause, bool]]:
    # A short event shows only in the bits since the boot. The kernel's driver clears those.
    new = state.since_boot & ~was.since_boot if was else 0
    found: list[tuple[ThrottleCause, bool]] = []
    if (state.now | new) & UNDER_VOLTAGE:
        found.append(("under-voltage", bool(state.now & UNDER_VOLTAGE)))
    hot = FREQUENCY_CAPPED | THROTTLED | SOFT_LIMIT
    if (state.now | new) & hot:
        found.append(("heat", bool(state.now & hot)))
    return found


def _has_own_heat(readings: Sequence[ThrottleReading]) -> bool:
    """Tell whether the board was hot, too: under-voltage alone also caps the firmware's clock."""
    firmware = [
        (was, state)
        for first, second in pairwise((readings[0], *readings))
        for was, state in zip(first.states, second.states, strict=True)
    ]
    return any(
        (state.kind == "firmware" and (state.now | state.since_boot & ~was.since_boot) & SOFT_LIMIT)
        or (state.kind == "cooling" and state.now)
        for was, state in firmware
    )


def since_boot_before(readings: Sequence[ThrottleReading]) -> tuple[str, ...]:
    """Return what the firmware had recorded before a run, so that the run cannot be cleared of it.

    While a bit is set, an event that is shorter than the time between two looks leaves no trace.
    """
    states = [each for each in (readings[0].states if readings else ()) if each.kind == "firmware"]
    return tuple(
        name for bit, name in FIRMWARE_BITS.items() if any(each.since_boot & bit for each in states)
    )
