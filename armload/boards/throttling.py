"""What a board's hardware and firmware tell of slowing it down, and of its supply.

Read are Raspberry Pi's firmware (``get_throttled``) and its hwmon ``rpi_volt``, the kernel's
cooling devices that slow CPU or memory, the over-current events of Jetson's ``soctherm_oc``, and
x86's ``thermal_throttle``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from armload.core.values import Finite, Value

ThrottleKind = Literal["firmware", "alarm", "cooling", "overcurrent", "events"]

UNDER_VOLTAGE, FREQUENCY_CAPPED, THROTTLED, SOFT_LIMIT = 1, 2, 4, 8
"""Bits of Raspberry Pi's ``get_throttled``, now; 16 bits higher: since the boot."""

FIRMWARE_BITS = {
    UNDER_VOLTAGE: "under-voltage",
    FREQUENCY_CAPPED: "frequency capped",
    THROTTLED: "throttled",
    SOFT_LIMIT: "soft temperature limit",
}


class ThrottleState(Value):
    """What one source shows.

    Attributes:
        kind: ``firmware`` has the bits of ``get_throttled``; ``alarm`` is 1 while the supply is
            too low; ``cooling`` is the state of a cooling device, 0 for idle; ``overcurrent`` and
            ``events`` count since the boot.
        name: of the source.
        value: none where it does not answer.
    """

    kind: ThrottleKind
    name: str
    value: int | None

    @property
    def now(self) -> int:
        """What is active at this moment, as bits or a state; 0 for nothing, and for a count."""
        if self.kind == "firmware":
            return (self.value or 0) & 0xF
        return 0 if self.kind in ("overcurrent", "events") else max(self.value or 0, 0)

    @property
    def since_boot(self) -> int:
        """What the firmware has seen since the boot, as bits; or how many events there were."""
        if self.kind == "firmware":
            return (self.value or 0) >> 16 & 0xF
        return (self.value or 0) if self.kind in ("overcurrent", "events") else 0


class ThrottleReading(Value):
    """What all sources of a board show at one moment; ``at_s`` is its uptime."""

    at_s: Finite
    states: tuple[ThrottleState, ...]


def read_throttling(lines: Sequence[str]) -> tuple[ThrottleReading, ...]:
    """Read lines ``source KIND NAME``, and ``at UPTIME VALUE...`` with a value for each of them."""
    sources: list[tuple[ThrottleKind, str]] = []
    readings = []
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word == "source":
            kind, _, name = rest.partition(" ")
            known = next((each for each in get_args(ThrottleKind) if each == kind), None)
            if known is None:
                raise ValueError(f"unknown source {line!r}")
            sources.append((known, name))
        elif word == "at":
            uptime, *values = rest.split()
            if len(values) != len(sources):  # cut off
                continue
            states = tuple(
                ThrottleState(kind=kind, name=name, value=_number(kind, value))
                for (kind, name), value in zip(sources, values, strict=True)
            )
            readings.append(ThrottleReading(at_s=float(uptime), states=states))
    return tuple(readings)


def _number(kind: ThrottleKind, text: str) -> int | None:
    try:
        return int(text, 16 if kind == "firmware" else 10)
    except ValueError:
        return None
