"""Asking a board's power meter while a run goes on; its samples are kept beside the run's files."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from armload.analysis.energy import FILE_NAME, PowerLine
from armload.boards.host import Host
from armload.boards.power import PowerMeter, asked_power
from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.runs.session import Connection

_EVERY_S = 1.0
_CLOCK_TRIALS = 3


@contextlib.contextmanager
def power_recorded(connection: Connection, folder: Path, progress: Progress) -> Iterator[None]:
    """Keep what a board's meter shows within the block; without a meter nothing happens.

    A meter that cannot be read is mentioned once, and ends nothing.

    Args:
        folder: of the run on this machine.
    """
    meter = connection.board.power
    if meter is None:
        yield
        return
    ended = threading.Event()
    recorder = _Recorder(connection, meter, folder, progress, ended)
    thread = threading.Thread(target=recorder.record, daemon=True)
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
        folder: Path,
        progress: Progress,
        ended: threading.Event,
    ) -> None:
        self._connection = connection
        self._meter = meter
        self._path = folder / FILE_NAME
        self._progress = progress
        self._ended = ended
        self._mentioned = False

    def record(self) -> None:
        """Ask until the end, and align the clocks at both ends."""
        with contextlib.suppress(ArmloadError, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._connection.beside()) as host:
                self._align(host)
                while not self._ended.is_set():
                    began_s = time.monotonic()
                    self._ask(host)
                    self._ended.wait(max(0.0, began_s + _EVERY_S - time.monotonic()))
                self._align(host)

    def _ask(self, host: Host) -> None:
        began_s = time.monotonic()
        try:
            answer = asked_power(self._meter, host)
            reading, problem = answer.reading, answer.problem
        except ArmloadError as error:  # the board is away; the next call connects anew
            reading, problem = None, error.message
        here_s = (began_s + time.monotonic()) / 2
        self._write(PowerLine(here_s=here_s, reading=reading, problem=problem))
        if problem and not self._mentioned:
            self._mentioned = True
            self._progress.say(f"The run continues without a power reading: {problem}")

    def _align(self, host: Host) -> None:
        best: tuple[float, PowerLine] | None = None
        for _ in range(_CLOCK_TRIALS):
            began_s = time.monotonic()
            try:
                uptime = float(host.run("cat /proc/uptime").text.split()[0])
            except (ArmloadError, ValueError, IndexError):
                continue
            took_s = time.monotonic() - began_s
            line = PowerLine(here_s=began_s + took_s / 2, board_s=uptime)
            if best is None or took_s < best[0]:
                best = took_s, line
        if best is not None:
            self._write(best[1])

    def _write(self, line: PowerLine) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line.model_dump_json() + "\n")
