"""Asking a power meter: while a board is idle before a run, and while something goes on there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from armload.analysis.energy import PowerLine
from armload.boards.host import Host
from armload.boards.power import PowerMeter, try_read_power
from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.runs.session import Connection

_EVERY_S = 1.0
_IDLE_SAMPLES = 7
"""More than an energy needs, since one may be missing."""

_CLOCK_TRIALS = 3


def idle_power(connection: Connection, progress: Progress) -> tuple[PowerLine, ...]:
    """Return what a board's meter shows while the board is idle; nothing without a meter.

    It takes some seconds, unless the meter does not answer at all.
    """
    meter = connection.board.power
    if meter is None:
        return ()
    lines: list[PowerLine] = []
    label = f"Measuring the idle power of {connection.board.name}"
    with progress.step(label, total=_IDLE_SAMPLES, unit="samples") as step:
        for number in range(_IDLE_SAMPLES):
            if number:
                time.sleep(max(0.0, lines[-1].here_s + _EVERY_S - time.monotonic()))
            line = _asked(meter, connection.host)
            lines.append(line.model_copy(update={"is_idle": True}))
            step.update(len(lines))
            if all(each.reading is None for each in lines):
                break
    return tuple(lines)


@contextlib.contextmanager
def power_recorded(
    connection: Connection, path: Path, progress: Progress, *, idle: Sequence[PowerLine] = ()
) -> Iterator[None]:
    """Keep what a board's meter shows within the block; without a meter nothing happens.

    A meter that cannot be read is mentioned once, and ends nothing.

    Args:
        path: the lines are added to this file.
        idle: lines of the idle board, to be kept with them.
    """
    meter = connection.board.power
    if meter is None:
        yield
        return
    ended = threading.Event()
    recorder = _Recorder(connection, meter, path, progress, ended)
    thread = threading.Thread(target=recorder.record, args=(idle,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A meter that hangs has its own limit.
        thread.join(30.0)


class _Recorder:
    def __init__(
        self,
        connection: Connection,
        meter: PowerMeter,
        path: Path,
        progress: Progress,
        ended: threading.Event,
    ) -> None:
        self._connection = connection
        self._meter = meter
        self._path = path
        self._progress = progress
        self._ended = ended
        self._mentioned = False

    def record(self, idle: Sequence[PowerLine]) -> None:
        """Ask until the end, and align the clocks at both ends."""
        with contextlib.suppress(ArmloadError, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for line in idle:
                self._write(line)
            with contextlib.closing(self._connection.beside()) as host:
                self._align(host)
                while not self._ended.is_set():
                    began_s = time.monotonic()
                    self._ask(host)
                    self._ended.wait(max(0.0, began_s + _EVERY_S - time.monotonic()))
                self._align(host)

    def _ask(self, host: Host) -> None:
        line = _asked(self._meter, host)
        self._write(line)
        if line.problem and not self._mentioned:
            self._mentioned = True
            self._progress.say(f"The run continues without a power reading: {line.problem}")

    def _align(self, host: Host) -> None:
        best: tuple[float, PowerLine] | None = None
        for _ in range(_CLOCK_TRIALS):
            began_s = time.monotonic()
            try:
                uptime = float(host.run("cat /proc/uptime").text.split()[0])
                took_s = time.monotonic() - began_s
                line = PowerLine(here_s=began_s + took_s / 2, board_s=uptime)
            except (ArmloadError, ValueError, IndexError):
                continue
            if best is None or took_s < best[0]:
                best = took_s, line
        if best is not None:
            self._write(best[1])

    def _write(self, line: PowerLine) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line.model_dump_json() + "\n")


def _asked(meter: PowerMeter, host: Host) -> PowerLine:
    began_s = time.monotonic()
    try:
        answer = try_read_power(meter, host)
        reading, problem = answer.reading, answer.problem
    except ArmloadError as error:  # the board is away; the next call connects anew
        reading, problem = None, error.message
    except Exception as error:  # noqa: BLE001 - no fault in reading a meter ends a run
        reading, problem = None, f"the power meter cannot be read: {error!r:.200}"
    here_s = (began_s + time.monotonic()) / 2
    return PowerLine(here_s=here_s, reading=reading, problem=problem)
