"""Waiting until a board is cool enough to be measured."""

from __future__ import annotations

import time
from collections.abc import Sequence

from armload.boards.conditions import Sensor, hottest, read_sensors
from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.progress import Progress
from armload.core.shell import call

LONGEST_WAIT_S = 900.0
LOOK_EVERY_S = 2.0


def cool_down(
    host: Host,
    to_celsius: float,
    progress: Progress,
    *,
    limit_s: float = LONGEST_WAIT_S,
    every_s: float = LOOK_EVERY_S,
) -> float:
    """Wait until a board's hottest sensor shows no more than that; return what it shows then.

    Raises:
        BoardError: the board has no sensor, or is still hotter after the limit.
        ConnectError: it does not answer.
    """
    first = now = _hottest(host)
    began = time.monotonic()
    if now <= to_celsius:
        return now
    label = f"Cooling {host.name} to {to_celsius:g} °C"
    with progress.step(label, total=first - to_celsius, unit="degrees") as step:
        while now > to_celsius:
            waited_s = time.monotonic() - began
            step.update(max(first - now, 0.0), note=f"{now:.1f} °C, {waited_s:.0f} s")
            if waited_s >= limit_s:
                raise BoardError(
                    f"{host.name} is still at {now:.1f} °C after {limit_s:.0f} s; the target was "
                    f"{to_celsius:g} °C.",
                    "End other programs on the board, add a fan, or use a higher --cool-to.",
                )
            time.sleep(every_s)
            now = _hottest(host)
    return now


def _hottest(host: Host) -> float:
    return need_sensor(host, read_sensors(host.run(call("tell_temperatures")).text.splitlines()))


def need_sensor(host: Host, sensors: Sequence[Sensor]) -> float:
    """Return what the hottest of a board's sensors shows.

    Raises:
        BoardError: there is none, so the board cannot be waited for.
    """
    found = hottest(sensors)
    if found is None:
        raise BoardError(
            f"{host.name}: its kernel exposes no temperature sensor, so --cool-to cannot work.",
            "Omit --cool-to.",
        )
    return found
