"""Meters of what a board draws: its own sensors, a plug in front of its supply, or any program."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from armload.boards.host import Host
from armload.core.bounds import TooMuchError, run_bounded, size_words, within
from armload.core.deciding import DECIDES, Words
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import join, render
from armload.core.values import Finite, Value, parse_json

_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 16
"""Of an answer; a plug's has some hundred."""
MOST_WATTS = 100_000.0
"""More than any board draws: a meter that shows it is broken, or shows another unit."""
# Fitted by users against meters at the wall: the rails leave out USB, fans and conversion losses.
_PMIC_FACTOR, _PMIC_OFFSET_W = 1.1451, 0.5879


Sees = Literal["wall", "board"]
"""Where a meter measures: ``wall`` includes the supply's losses, ``board`` does not."""


class HwmonInput(Value):
    """A sensor of the board that the kernel knows.

    Attributes:
        chip: its name, as ``/sys/class/hwmon/hwmon*/name`` says.
        device: which of several chips of that name: what ``hwmon*/device`` leads to, such as
            ``1-0040``, an address on an I2C bus.
        channel: which of its inputs: the number in ``power1_input``, or in ``in1_input`` and
            ``curr1_input``.
        label: which of its inputs, by what ``power1_label``, ``in1_label`` or ``curr1_label``
            says; then ``channel`` does not count.
    """

    chip: Words = Field(min_length=1)
    device: Words = ""
    channel: int = Field(default=1, ge=1)
    label: Words = ""

    @property
    def words(self) -> str:
        where = f"{self.chip} at {self.device}" if self.device else self.chip
        return f"{where}, {self.label or f'channel {self.channel}'}"


class HwmonMeter(HwmonInput):
    """One such sensor, or several whose watts are added.

    Attributes:
        plus: the others.
    """

    kind: Literal["hwmon"]
    plus: tuple[HwmonInput, ...] = Field(default=(), max_length=32)


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
        channel: which of several outlets or phases, from 1; ``sum`` adds them.
    """

    kind: Literal["tasmota"]
    url: Annotated[str, DECIDES] = Field(pattern="^https?://")
    channel: Annotated[int, Field(ge=1)] | Literal["sum"] | None = None


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

    def __str__(self) -> str:
        """Say where they were measured, and what they include."""
        idle = "subtracted" if self.subtracts_idle else "included"
        return f"{place(self.sees)}, idle power {idle}"

    def not_comparable(self, other: EnergyBasis) -> str:
        """Say why energies of two bases cannot be compared; nothing where they can."""
        reasons = []
        if self.sees != other.sees:
            reasons.append("only the wall includes the supply's losses")
        if self.subtracts_idle != other.subtracts_idle:
            reasons.append("the idle power is subtracted from only one of them")
        return f"These cannot be compared: {', and '.join(reasons)}." if reasons else ""


def place(sees: Sees) -> str:
    return "at the wall" if sees == "wall" else "on the board"


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
        if self.reading is None:
            return f"not read: {self.problem}"
        return f"{self.reading.watts:.2f} W {place(self.reading.sees)} ({self.reading.source})"


def try_read_power(meter: PowerMeter, host: Host) -> PowerAnswer:
    """Ask a meter that may be away, or answer anything: that is no reason to stop."""
    try:
        return PowerAnswer(reading=read_power(meter, host), problem="")
    except ConnectError:
        raise
    except BoardError as error:
        # One line, whatever a meter wrote.
        return PowerAnswer(reading=None, problem=" ".join(str(error).split()))


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
        watts = _of_plug(meter, host, complaint)
    if not 0 <= watts <= MOST_WATTS:
        raise BoardError(f"{complaint}: {watts:g} W is not a plausible power.")
    return PowerReading(watts=watts, source=source, sees=place_of(meter))


def place_of(meter: PowerMeter) -> Sees:
    if isinstance(meter, CommandMeter):
        return meter.sees
    return "board" if isinstance(meter, HwmonMeter | PmicMeter) else "wall"


def _source(meter: PowerMeter) -> str:
    if isinstance(meter, HwmonMeter):
        return f"hwmon {' + '.join(each.words for each in (meter, *meter.plus))}"
    if isinstance(meter, PmicMeter):
        return "rpi-pmic, corrected" if meter.corrected else "rpi-pmic"
    if isinstance(meter, CommandMeter):
        return join(meter.command)
    return f"{meter.kind} at {meter.url}"


class _Chip(NamedTuple):
    name: str
    device: str
    files: Mapping[str, str]


def _of_hwmon(meter: HwmonMeter, host: Host, complaint: str) -> float:
    inputs = (meter, *meter.plus)
    script = render("board/hwmon_power.sh.j2", {"chips": [each.chip for each in inputs]})
    lines = host.run(script, timeout_s=_TIMEOUT_S).text.splitlines()
    if not lines or not lines[-1].startswith("chips"):
        raise BoardError(f"{complaint}: the board's answer was cut short.")
    chips: list[_Chip] = []
    for line in lines[:-1]:
        word, _, value = line.partition(" ")
        if word == "chip":
            device, _, name = value.partition(" ")
            chips.append(_Chip(name, device, {}))
        elif chips:
            chips[-1] = chips[-1]._replace(files={**chips[-1].files, word: value})
    there = lines[-1].removeprefix("chips").strip()
    return sum(_of_input(each, chips, there, host, complaint) for each in inputs)


def _of_input(
    wanted: HwmonInput, chips: Sequence[_Chip], there: str, host: Host, complaint: str
) -> float:
    file = f"boards/{host.name}.yaml"
    named = [each for each in chips if each.name == wanted.chip]
    if not named:
        raise BoardError(
            f"{complaint}: the board has no such chip; it has: {there or 'none'}.",
            f"Correct 'chip' under 'power' in {file}.",
        )
    devices = ", ".join(each.device for each in named)
    if wanted.device:
        named = [each for each in named if each.device == wanted.device]
    if len(named) != 1:
        what = "several chips of that name" if named else "no such chip on that device"
        raise BoardError(
            f"{complaint}: the board has {what}; the devices of {wanted.chip} are {devices}.",
            f"Set 'device' under 'power' in {file} to one of them. To add the watts of several, "
            "list the others under 'plus'.",
        )
    files = named[0].files
    power = _channel(wanted, "power", files, complaint, file)
    for ending in ("input", "average"):
        microwatts = _whole(files.get(f"power{power}_{ending}"))
        if microwatts is not None:
            return microwatts / 1e6
    millivolts, milliamperes = (
        _whole(files.get(f"{kind}{_channel(wanted, kind, files, complaint, file)}_input"))
        for kind in ("in", "curr")
    )
    if millivolts is not None and milliamperes is not None:
        return millivolts * milliamperes / 1e6
    labels = sorted({value for name, value in files.items() if name.endswith("_label")})
    which = f"input labelled {wanted.label!r}" if wanted.label else "that channel"
    raise BoardError(
        f"{complaint}: the chip reports no power on {which}.",
        f"Its labels are {', '.join(labels)}. Correct 'label' under 'power' in {file}."
        if labels
        else "List its files on the board: ls /sys/class/hwmon/*/",
    )


def _channel(
    wanted: HwmonInput, kind: str, files: Mapping[str, str], complaint: str, file: str
) -> int | None:
    """Return the number of a chip's input of a kind; none where it has none of that label."""
    if not wanted.label:
        return wanted.channel
    numbers = [
        int(match[1])
        for name, value in files.items()
        if value == wanted.label and (match := re.fullmatch(rf"{kind}(\d{{1,4}})_label", name))
    ]
    if len(numbers) > 1:
        raise BoardError(
            f"{complaint}: the chip has several inputs with the label {wanted.label!r}: "
            f"{', '.join(map(str, sorted(numbers)))}.",
            f"Replace 'label' under 'power' in {file} by 'channel', one of these numbers.",
        )
    return numbers[0] if numbers else None


_RAIL = re.compile(r"\b(\w{1,40})_([AV]) (?:current|volt)\(\d+\)=(\d{1,9}\.\d{1,12})[AV]\b")


def _of_pmic(meter: PmicMeter, host: Host, complaint: str) -> float:
    script = f"{{ vcgencmd pmic_read_adc; }} 2>&1 | head -c {_MOST_BYTES}"
    said = host.run(script, timeout_s=_TIMEOUT_S).text
    rails: dict[str, dict[str, float]] = {}
    for name, unit, value in _RAIL.findall(said):
        if unit in rails.setdefault(name, {}):
            raise BoardError(f"{complaint}: vcgencmd pmic_read_adc printed {name}_{unit} twice.")
        rails[name][unit] = float(value)
    # Some voltages are of no rail that is measured; a current without its voltage was cut off.
    carrying = {name: rail for name, rail in rails.items() if "A" in rail}
    cut = [name for name, rail in carrying.items() if "V" not in rail]
    if not carrying:
        first = next(iter(said.strip().splitlines()), "nothing")
        raise BoardError(
            f"{complaint}: vcgencmd pmic_read_adc printed: {first[:80]}.",
            "Only a Raspberry Pi 5 has this chip; its user must be in the group video.",
        )
    if cut:
        raise BoardError(f"{complaint}: vcgencmd pmic_read_adc printed no voltage of {cut[0]}.")
    watts = sum(rail["A"] * rail["V"] for rail in carrying.values())
    return watts * _PMIC_FACTOR + _PMIC_OFFSET_W if meter.corrected else watts


_NUMBER = re.compile(r"[+-]?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?", re.ASCII)


def _of_command(meter: CommandMeter, complaint: str) -> float:
    try:
        done = run_bounded(meter.command, most_bytes=_MOST_BYTES, limit_s=_TIMEOUT_S)
    except TimeoutError as error:
        raise BoardError(f"{complaint}: no answer within {_TIMEOUT_S:g} s.") from error
    except OSError as error:
        raise BoardError(f"{complaint}: cannot be run: {error.strerror}.") from error
    except (TooMuchError, ValueError) as error:  # a word with a NUL is none of a command line
        raise BoardError(f"{complaint}: {error}, not a number of watts.") from error
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.status != 0 or not _NUMBER.fullmatch(text):
        what = f"status {done.status}" if done.status else f"it printed {text[:40]!a}"
        raise BoardError(f"{complaint}: {what}, not a number of watts.")
    return float(text)


def _of_plug(meter: ShellyMeter | TasmotaMeter, host: Host, complaint: str) -> float:
    path = "cm?cmnd=Status%208"
    keys: tuple[str, ...] = ("StatusSNS", "ENERGY", "Power")
    if isinstance(meter, ShellyMeter):
        path, keys = f"rpc/Switch.GetStatus?id={meter.switch}", ("apower",)
    answer = _fetched(f"{meter.url.rstrip('/')}/{path}", complaint)
    try:
        value: Any = parse_json(answer)
        for key in keys:
            value = value[key]
        if isinstance(meter, TasmotaMeter) and isinstance(value, list):
            value = _of_channels(meter, value, host, complaint)
        # In Python, true is a number.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(value)
        return float(value)
    except (ValueError, LookupError, TypeError) as error:
        start = answer[:40].decode("utf-8", "replace")
        raise BoardError(
            f"{complaint}: the answer has no {'.'.join(keys)}; it begins {start!a}.",
            "Check 'kind' and 'url' under 'power' in the board's file.",
        ) from error


def _of_channels(meter: TasmotaMeter, values: list[Any], host: Host, complaint: str) -> object:
    """Return what the outlet or phase shows that the board's file names; or their sum."""
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
        raise TypeError(values)
    chosen = meter.channel
    if chosen == "sum" and values:
        return sum(values)
    if len(values) == 1 and chosen in (None, 1):
        return values[0]
    if isinstance(chosen, int) and chosen <= len(values):
        return values[chosen - 1]
    shown = ", ".join(f"{each:g} W" for each in values[:8])
    raise BoardError(
        f"{complaint}: the plug has {len(values)} outlets or phases: {shown}.",
        f"Set 'channel' under 'power' in boards/{host.name}.yaml to the board's, from 1 to "
        f"{len(values)}, or to 'sum'.",
    )


def _fetched(url: str, complaint: str) -> bytes:
    """Return the body of an answer; a plug in the same network is not behind a proxy."""
    from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
    from urllib.parse import urlsplit

    sockets: list[socket.socket] = []

    def ask() -> tuple[HTTPResponse, bytes]:
        where = urlsplit(url)
        kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
        with closing(kind(where.hostname or "", where.port, timeout=_TIMEOUT_S)) as connection:
            connection.connect()
            sockets.append(connection.sock)
            connection.request("GET", f"{where.path}?{where.query}")
            with connection.getresponse() as answer:
                return answer, answer.read(_MOST_BYTES + 1)

    try:
        answer, content = within(_TIMEOUT_S, ask)
    except (OSError, HTTPException, ValueError) as error:
        what = f"{error}" or type(error).__name__
        raise BoardError(f"{complaint}: no answer: {what[:200]}.") from error
    finally:
        for each in sockets:  # the thread that still reads wakes up
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
    if answer.status != 200:
        moved = answer.headers.get("Location")
        refers = f"It refers to {moved[:200]}: correct" if moved else "Check"
        remedy = f"{refers} 'url' under 'power'."
        reason = answer.reason[:80]
        raise BoardError(f"{complaint}: it answered {answer.status} {reason}.", remedy)
    if len(content) > _MOST_BYTES:
        raise BoardError(f"{complaint}: its answer is larger than {size_words(_MOST_BYTES)}.")
    if answer.length:
        raise BoardError(f"{complaint}: its answer was cut short by {answer.length} bytes.")
    return content


def _whole(text: str | None) -> int | None:
    """Read a number as the kernel writes it."""
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,15}", text) else None
