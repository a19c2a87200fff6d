"""What slowed a board during a run, as its hardware and firmware told the run's script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def since_boot_before(readings: Sequence[ThrottleReading]) -> tuple[str, ...]:
    """Return what the firmware had recorded before a run, so that the run cannot be cleared of it.

    While a bit is set, an event that is shorter than the time between two looks leaves no trace.
    """
    states = [each for each in (readings[0].states if readings else ()) if each.kind == "firmware"]
    return tuple(
        name for bit, name in FIRMWARE_BITS.items() if any(each.since_boot & bit for each in states)
    )
