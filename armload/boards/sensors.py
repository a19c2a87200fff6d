"""A board's thermal zones, and which of them tell how hot it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from armload.core.values import Count, Finite, Value, whole_number

LeftOut = Literal["no answer", "implausible", "constant", "no temperature", "not chosen"]
"""Why a zone does not count: some drivers return an error, some a value that no board survives,
some always the same one, some a battery's; and the board's file may name those that count."""

COLDEST_CELSIUS, HOTTEST_CELSIUS = -40.0, 150.0
"""No zone that works reaches these; as in ``toolchains/native/armload_sensors.h``."""

_TOLD_BY_VALUE = (None, "no answer", "implausible")
"""Reasons for which a program that reads all zones leaves one out, too."""

_CONSTANTS = {"PMIC-Die": 100.0, "PMIC-die": 100.0}
"""Zones that a vendor's driver fills in: those of NVIDIA's Jetson boards."""


_ELECTRIC = re.compile(r"(?i)(^|[-_])([vi]b?att?|vph|bcl)([-_]|$)")
"""Zones of Qualcomm's drivers that limit the current: volts and amperes of a battery."""
_IN_TENTHS = re.compile(r"tsens_tz_sensor[0-9]+")
"""Zones of Qualcomm's older kernels, which count in tenths of a degree."""

_LEAST_TENTHS, _MOST_TENTHS = 150, 1000
"""As in ``toolchains/native/armload_sensors.h``, which knows no names."""

_CHARGE = "soc"
"""Another of theirs, with the charge in percent; other makers call a temperature so, in thousandths
of a degree."""


class Sensor(Value):
    """One thermal zone.

    Attributes:
        name: the kernel's.
        celsius: what it shows; none where it does not answer.
        zone: number of its folder.
        left_out: why it does not count; none where it does.
    """

    name: str
    celsius: Finite | None
    zone: Count = 0
    left_out: LeftOut | None = None


def read_sensors(lines: Sequence[str], chosen: Sequence[str] = ()) -> tuple[Sensor, ...]:
    """Read lines ``ZONE VALUE NAME``.

    Args:
        chosen: names of the zones that count; empty for all that make sense.
    """
    found = []
    for line in lines:
        words = line.strip().split(" ", 2)
        zone = whole_number(words[0])
        if len(words) < 2 or zone is None:
            continue
        name = words[2] if len(words) == 3 else f"thermal_zone{words[0]}"
        is_number = re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]+)?", words[1])
        raw = float(words[1]) if is_number else None
        celsius = None if raw is None else _celsius(name, raw)
        found.append(
            Sensor(
                zone=zone,
                name=name,
                celsius=celsius,
                left_out=_why_left_out(name, raw, celsius, chosen),
            )
        )
    return tuple(found)


def _celsius(name: str, raw: float) -> float:
    """Return degrees: the kernel gives thousandths; some vendors' drivers give others."""
    if _IN_TENTHS.fullmatch(name) and _LEAST_TENTHS <= raw < _MOST_TENTHS:
        return raw / 10
    return raw / 1000 if abs(raw) >= 1000 else raw


def _why_left_out(
    name: str, raw: float | None, celsius: float | None, chosen: Sequence[str]
) -> LeftOut | None:
    if raw is None or celsius is None:
        return "no answer"
    if chosen:
        return None if name in chosen else "not chosen"
    if _ELECTRIC.search(name):
        return "no temperature"
    if celsius == 0 or not COLDEST_CELSIUS < celsius < HOTTEST_CELSIUS:
        return "implausible"
    if name == _CHARGE and abs(raw) <= 100:
        return "no temperature"
    return "constant" if celsius == _CONSTANTS.get(name) else None


def hottest(sensors: Sequence[Sensor]) -> Sensor | None:
    """Return the hottest of those that count; none without one."""
    counting = [each for each in sensors if each.left_out is None]
    return max(counting, key=lambda each: each.celsius or 0.0, default=None)


def chosen_names(sensors: Sequence[Sensor]) -> tuple[str, ...]:
    """Return the names that the board's file chose; empty where it left that to armload."""
    if all(each.left_out != "not chosen" for each in sensors):
        return ()
    return tuple(each.name for each in sensors if each.left_out != "not chosen")


def chosen_zones(sensors: Sequence[Sensor]) -> tuple[int, ...]:
    """Return the numbers of the zones that a program is to read; empty for all."""
    are_in_tenths = any(_IN_TENTHS.fullmatch(each.name) for each in sensors)
    is_any_other = any(each.left_out not in _TOLD_BY_VALUE for each in sensors)
    if not are_in_tenths and not is_any_other:
        return ()
    return tuple(each.zone for each in sensors if each.left_out is None)
