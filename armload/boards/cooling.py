"""Waiting until a board is cool enough to be measured."""

from __future__ import annotations

import time
from collections.abc import Sequence

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.sensors import Sensor, hottest, read_sensors
from armload.core.errors import BoardError
from armload.core.progress import Progress
from armload.core.shell import call

LONGEST_WAIT_S = 900.0
LOOK_EVERY_S = 2.0

CONSTANT_AFTER_S = 60.0
CONSTANT_WHILE_CELSIUS = 3.0
"""A zone that still shows the very same after that time, in which another has cooled by so much,
is taken for a constant."""


def cool_down(
    host: Host,
    board: Board,
    to_celsius: float,
    progress: Progress,
    *,
    limit_s: float = LONGEST_WAIT_S,
    every_s: float = LOOK_EVERY_S,
    constant_after_s: float = CONSTANT_AFTER_S,
) -> float:
    """Wait until a board's hottest sensor shows no more than that; return what it shows then."""
    sensors = _sensors(host, board)
    shown = {each.zone: {each.celsius} for each in sensors}
    constant: set[int] = set()
    first = now = need_sensor(board, sensors)
    began = time.monotonic()
    if _celsius(now) <= to_celsius:
        return _celsius(now)
    label = f"Cooling {host.name} to {to_celsius:g} °C"
    with progress.step(label, total=_celsius(first) - to_celsius, unit="degrees") as step:
        while _celsius(now) > to_celsius:
            waited_s = time.monotonic() - began
            cooled = max(_celsius(first) - _celsius(now), 0.0)
            step.update(cooled, note=f"{now.celsius:.1f} °C, {waited_s:.0f} s")
            if waited_s >= constant_after_s and _is_constant(now, shown):
                constant.add(now.zone)
                progress.say(
                    f"{host.name}: ignoring sensor {now.name}, which shows a constant "
                    f"{now.celsius:g} °C."
                )
            elif waited_s >= limit_s:
                raise BoardError(
                    f"{host.name} is still at {now.celsius:.1f} °C ({now.name}) after "
                    f"{limit_s:.0f} s; the target was {to_celsius:g} °C.",
                    "End other programs on the board, add a fan, or use a higher --cool-to. If "
                    f"{now.name} is not a CPU sensor, list others as 'sensors' in "
                    f"boards/{board.name}.yaml.",
                )
            else:
                time.sleep(every_s)
            sensors = _sensors(host, board)
            for each in sensors:
                shown.setdefault(each.zone, set()).add(each.celsius)
            now = need_sensor(board, tuple(each for each in sensors if each.zone not in constant))
    return _celsius(now)


def _sensors(host: Host, board: Board) -> tuple[Sensor, ...]:
    return read_sensors(host.run(call("tell_temperatures")).text.splitlines(), board.sensors)


def _is_constant(sensor: Sensor, shown: dict[int, set[float | None]]) -> bool:
    if len(shown[sensor.zone]) > 1:
        return False
    known = ([c for c in values if c is not None] for values in shown.values())
    return any(each and max(each) - min(each) >= CONSTANT_WHILE_CELSIUS for each in known)


def _celsius(sensor: Sensor) -> float:
    return sensor.celsius or 0.0


def need_sensor(board: Board, sensors: Sequence[Sensor]) -> Sensor:
    """Return the hottest of a board's sensors that count."""
    found = hottest(sensors)
    if found is not None:
        return found
    if not sensors:
        raise BoardError(
            f"{board.name}: its kernel exposes no temperature sensor, so --cool-to cannot work.",
            "Omit --cool-to.",
        )
    names = ", ".join(dict.fromkeys(each.name for each in sensors))
    if board.sensors:
        raise BoardError(
            f"{board.name}: no working sensor is called {' or '.join(board.sensors)}, as in "
            f"'sensors' of boards/{board.name}.yaml.",
            f"Available: {names}.",
        )
    raise BoardError(
        f"{board.name}: none of its temperature sensors shows a plausible value ({names}), so "
        "--cool-to cannot work.",
        "Omit --cool-to.",
    )
