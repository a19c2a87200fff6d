"""Meters of what a board draws: its own sensors, a plug in front of its supply, or any program."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from typing import Annotated, Any, Literal

from pydantic import Field

from armload.boards.host import Host
from armload.core.deciding import DECIDES, Words
from armload.core.errors import BoardError
from armload.core.shell import join, render
from armload.core.values import Finite, Value

_TIMEOUT_S = 5.0
_LARGEST_ANSWER_BYTES = 1 << 20
# Fitted by users against meters at the wall: the rails leave out USB, fans and conversion losses.
_PMIC_FACTOR, _PMIC_OFFSET_W = 1.1451, 0.5879


Sees = Literal["wall", "board"]
"""Where a meter measures: ``wall`` includes the supply's losses, ``board`` does not."""


class HwmonMeter(Value):
    """A sensor of the board that the kernel knows.

    Attributes:
        chip: its name, as ``/sys/class/hwmon/hwmon*/name`` says.
        channel: which of its inputs: the number in ``power1_input``, or in ``in1_input`` and
            ``curr1_input``.
    """

    kind: Literal["hwmon"]
    chip: Words = Field(min_length=1)
    channel: int = Field(default=1, ge=1)


class PmicMeter(Value):
    """The power chip of a Raspberry Pi 5, which knows its 12 rails.

    Attributes:
        corrected: estimate what the board draws from its supply from what the rails carry.
    """

    kind: Literal["rpi-pmic"]
    corrected: bool = False


class ShellyMeter(Value):
    """A plug of Shelly's second or a later generation.

    Attributes:
        url: such as ``http://192.168.1.70``.
        switch: the number of its switch.
    """

    kind: Literal["shelly"]
    url: Annotated[str, DECIDES] = Field(pattern="^https?://")
    switch: int = Field(default=0, ge=0)


class TasmotaMeter(Value):
    """A plug with the firmware Tasmota.

    Attributes:
        url: such as ``http://192.168.1.71``.
    """

    kind: Literal["tasmota"]
    url: Annotated[str, DECIDES] = Field(pattern="^https?://")


class CommandMeter(Value):
    """A program of this machine that prints the watts as a number.

    Attributes:
        command: its words; no shell reads them.
        sees: where it measures.
    """

    kind: Literal["command"]
    command: Annotated[tuple[str, ...], DECIDES] = Field(min_length=1)
    sees: Sees = "wall"


PowerMeter = Annotated[
    HwmonMeter | PmicMeter | ShellyMeter | TasmotaMeter | CommandMeter, Field(discriminator="kind")
]


class PowerReading(Value):
    """What a meter showed.

    Attributes:
        watts: drawn at that moment.
        source: the meter, for people.
        sees: where it measures.
    """

    watts: Finite
    source: str
    sees: Sees


class EnergyBasis(Value):
    """What energies must have in common to be compared.

    Attributes:
        sees: where they were measured.
        subtracts_idle: they are without what the idle board draws.
    """

    sees: Sees
    subtracts_idle: bool = False


class PowerAnswer(Value):
    """What came of asking a board's meter.

    Attributes:
        reading: none where it could not be read.
        problem: why not; empty where it could.
    """

    reading: PowerReading | None
    problem: str

    @property
    def words(self) -> str:
        """For people."""
        if self.reading is None:
            return f"not read: {self.problem}"
        where = "at the wall" if self.reading.sees == "wall" else "on the board"
        return f"{self.reading.watts:.2f} W {where} ({self.reading.source})"


def try_read_power(meter: PowerMeter, host: Host) -> PowerAnswer:
    """Ask a meter that may be away: that is no reason to stop. Raises ``ConnectError``."""
    try:
        return PowerAnswer(reading=read_power(meter, host), problem="")
    except BoardError as error:
        return PowerAnswer(reading=None, problem=f"{error.message} {error.remedy}".strip())


def read_power(meter: PowerMeter, host: Host) -> PowerReading:
    """Ask a meter.

    Raises:
        BoardError: it does not answer, or not with a plausible number of watts.
        ConnectError: the board, whose sensor it is, does not answer.
    """
    source = _source(meter)
    complaint = f"{host.name}: power meter ({source})"
    if isinstance(meter, HwmonMeter):
        watts = _of_hwmon(meter, host, complaint)
    elif isinstance(meter, PmicMeter):
        watts = _of_pmic(meter, host, complaint)
    elif isinstance(meter, CommandMeter):
        watts = _of_command(meter, complaint)
    else:
        watts = _of_plug(meter, complaint)
    if not math.isfinite(watts) or watts < 0:
        raise BoardError(f"{complaint}: {watts:g} W is not a plausible power.")
    return PowerReading(watts=watts, source=source, sees=place_of(meter))


def place_of(meter: PowerMeter) -> Sees:
    """Return where a meter measures."""
    if isinstance(meter, CommandMeter):
        return meter.sees
    return "board" if isinstance(meter, HwmonMeter | PmicMeter) else "wall"


def _source(meter: PowerMeter) -> str:
    if isinstance(meter, HwmonMeter):
        return f"hwmon {meter.chip}, channel {meter.channel}"
    if isinstance(meter, PmicMeter):
        return "rpi-pmic, corrected" if meter.corrected else "rpi-pmic"
    if isinstance(meter, CommandMeter):
        return join(meter.command)
    return f"{meter.kind} at {meter.url}"


def _of_hwmon(meter: HwmonMeter, host: Host, complaint: str) -> float:
    script = render("board/hwmon_power.sh.j2", {"chip": meter.chip, "channel": meter.channel})
    said = dict(line.split(" ", 1) for line in host.run(script).text.splitlines() if " " in line)
    power, volts, amperes = (_number(said.get(name)) for name in ("power", "in", "curr"))
    if power is not None:
        return power / 1e6
    if volts is not None and amperes is not None:
        return volts * amperes / 1e6
    if "chip" in said:
        raise BoardError(
            f"{complaint}: the chip reports no power on that channel.",
            "List its files on the board: ls /sys/class/hwmon/*/",
        )
    raise BoardError(
        f"{complaint}: the board has no such chip; it has: {said.get('chips', 'none').strip()}.",
        f"Correct 'chip' under 'power' in boards/{host.name}.yaml.",
    )


_RAIL = re.compile(r"(\S+)_([AV]) (?:current|volt)\(\d+\)=([\d.]+)[AV]")


def _of_pmic(meter: PmicMeter, host: Host, complaint: str) -> float:
    done = host.run("vcgencmd pmic_read_adc")
    rails: dict[str, dict[str, float]] = {}
    for name, unit, value in _RAIL.findall(done.text):
        rails.setdefault(name, {})[unit] = float(value)
    parts = [rail["A"] * rail["V"] for rail in rails.values() if len(rail) == 2]
    if not parts:
        said = (done.stderr.decode("utf-8", "replace").strip() or done.text or "nothing").strip()
        raise BoardError(
            f"{complaint}: vcgencmd pmic_read_adc printed: {said.splitlines()[0]}.",
            "Only a Raspberry Pi 5 has this chip; its user must be in the group video.",
        )
    return sum(parts) * _PMIC_FACTOR + _PMIC_OFFSET_W if meter.corrected else sum(parts)


def _of_command(meter: CommandMeter, complaint: str) -> float:
    try:
        done = subprocess.run(
            meter.command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise BoardError(f"{complaint}: cannot be run: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise BoardError(f"{complaint}: no answer within {_TIMEOUT_S:g} s.") from error
    text = done.stdout.decode("utf-8", "replace").strip()
    watts = _number(text)
    if done.returncode != 0 or watts is None:
        what = f"status {done.returncode}" if done.returncode else f"it printed {text[:40]!a}"
        raise BoardError(f"{complaint}: {what}, not a number of watts.")
    return watts


def _of_plug(meter: ShellyMeter | TasmotaMeter, complaint: str) -> float:
    path = "cm?cmnd=Status%208"
    keys: tuple[str, ...] = ("StatusSNS", "ENERGY", "Power")
    if isinstance(meter, ShellyMeter):
        path, keys = f"rpc/Switch.GetStatus?id={meter.switch}", ("apower",)
    answer = _fetched(f"{meter.url.rstrip('/')}/{path}", complaint)
    try:
        value: Any = json.loads(answer)
        for key in keys:
            value = value[key]
        return float(value)
    except (ValueError, KeyError, TypeError) as error:
        start = answer[:40].decode("utf-8", "replace")
        raise BoardError(
            f"{complaint}: the answer has no {'.'.join(keys)}; it begins {start!a}.",
            "Check 'kind' and 'url' under 'power' in the board's file.",
        ) from error


def _fetched(url: str, complaint: str) -> bytes:
    import urllib.error
    import urllib.request

    # A plug in the same network is not behind the proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until_s = time.monotonic() + _TIMEOUT_S
    content = b""
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as answer:
            # The timeout is that of a single read.
            while (part := answer.read1(1 << 16)) and len(content) < _LARGEST_ANSWER_BYTES:
                content += part
                if time.monotonic() > until_s:
                    raise TimeoutError(f"it did not end within {_TIMEOUT_S:g} s")
            return content
    except urllib.error.HTTPError as error:
        error.close()
        raise BoardError(f"{complaint}: it answered {error.code} {error.reason}.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BoardError(f"{complaint}: no answer: {reason}.") from error


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
