"""Watching the process that emulates a virtual board while a run lasts."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from armload.analysis.emulation import Emulation
from armload.boards.board import Board, VirtualReach
from armload.boards.virtual.machine import emulator
from armload.boards.virtual.process import CpuTime, Started
from armload.core.json_lines import append_lines

_EVERY_S = 1.0
_JOIN_S = 5.0


@contextlib.contextmanager
def emulator_recorded(board: Board, path: Path) -> Iterator[None]:
    """Note within the block what a virtual board's emulator has of the CPU time that it wants.

    Of a real board, and where the workstation's kernel does not tell, nothing is noted.

    Args:
        path: a line for each second is added to this file.
    """
    process = _watchable(board)
    if process is None:
        yield
        return
    ended = threading.Event()
    begun = (process, board, path, _moment(process), ended)
    thread = threading.Thread(target=_record, args=begun, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_S)


def emulator_watched(board: Board) -> Callable[[], Emulation | None]:
    """Begin to watch the same; what is returned says what the emulator had since then.

    It returns none of a real board, and where the workstation's kernel does not tell.
    """
    process = _watchable(board)
    if process is None:
        return lambda: None
    before = _moment(process)

    def seen() -> Emulation | None:
        return _between(before, _moment(process)) if process.is_alive() else None

    return seen


def _watchable(board: Board) -> Started | None:
    process = emulator(board) if isinstance(board.reach, VirtualReach) else None
    if process is None or not process.is_alive() or not process.cpu_times():
        return None
    return process


def _record(
    process: Started, board: Board, path: Path, before: _Moment, ended: threading.Event
) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        while not ended.is_set():
            ended.wait(_EVERY_S)
            if not process.is_alive():  # it may have been switched on again
                process = emulator(board) or process
                if not process.is_alive():
                    continue
            now = _moment(process)
            append_lines(path, [_between(before, now)], is_synced=False)
            before = now


class _Moment(NamedTuple):
    at_s: float
    threads: dict[str, CpuTime]
    stolen_s: float
    busy_s: float


def _moment(process: Started) -> _Moment:
    import psutil

    every = psutil.cpu_times()
    stolen_s = getattr(every, "steal", 0.0)
    idle_s = every.idle + getattr(every, "iowait", 0.0)
    # Guests are counted twice: within the time of the users, too.
    guests_s = getattr(every, "guest", 0.0) + getattr(every, "guest_nice", 0.0)
    busy_s = sum(every) - idle_s - stolen_s - guests_s
    return _Moment(time.monotonic(), process.cpu_times(), stolen_s, busy_s)


def _between(before: _Moment, now: _Moment) -> Emulation:
    both = before.threads.keys() & now.threads.keys()
    ran_s, waited_s = (
        sum(now.threads[each][which] - before.threads[each][which] for each in both) / 1e9
        for which in (0, 1)
    )
    # Where the workstation is a virtual machine itself, its host may have taken CPU time away.
    stolen_s = max(0.0, now.stolen_s - before.stolen_s)
    busy_s = max(0.0, now.busy_s - before.busy_s)
    if busy_s:
        waited_s += ran_s * stolen_s / busy_s
    return Emulation(
        watched_s=now.at_s - before.at_s,
        ran_s=ran_s,
        waited_s=waited_s,
        cores=os.cpu_count() or 1,
        load=os.getloadavg()[0],
    )
