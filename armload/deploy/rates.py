"""Measuring once per boot what a board's memory and storage give, while nobody else uses them."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.board import Board, VirtualReach
from armload.boards.device_clocks import DeviceClock, clocks_of, sampled_clocks
from armload.boards.framing import reason
from armload.boards.governors import governors_in
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.boards.rates import Rates, read_rates
from armload.build.helper import RATES
from armload.core.errors import ArmloadError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import render
from armload.core.values import Value
from armload.deploy.launch import governor_settings
from armload.deploy.layout import Layout
from armload.deploy.own_programs import own_program

_NOTHING_TO_READ = "#nothing to read"
_OWN_BYTES = 64 << 20
"""Size of the file that is written to be read, where no file of that size lies on the board."""

_SPARE_TIMES = 4  # as much must be free as that file takes


class Missing(Value):
    """Why there is no rate; empty where there is one."""

    memory: str = ""
    storage: str = ""

    @classmethod
    def of(cls, rates: Rates, why: str) -> Missing:
        """Give the same reason for each rate that is missing."""
        return cls(
            memory="" if rates.memory_bytes_per_s else why,
            storage="" if rates.storage_read_bytes_per_s else why,
        )


def measured_rates(
    host: Host,
    board: Board,
    found: Probe,
    progress: Progress,
    *,
    file: PurePosixPath | None = None,
    governor: str | None = None,
) -> Rates:
    """Return the rates that ``measure`` finds."""
    return measure(host, board, found, progress, file=file, governor=governor)[0]


def measure(
    host: Host,
    board: Board,
    found: Probe,
    progress: Progress,
    *,
    file: PurePosixPath | None = None,
    governor: str | None = None,
) -> tuple[Rates, Missing]:
    """Return what a board gives, after measuring what was not measured in its present boot.

    What was measured while other programs were busy, or while the memory had another clock than
    it will have, counts only until the next time. It takes
    some three seconds, and longer where a file is written first. What cannot be measured is left
    out: it is no reason to give up a run.

    Args:
        found: what it reported, with what was measured before.
        file: what the storage is measured on if it is long enough; else any model that lies there,
            or a file that is written for that and removed again.
        governor: that the run will set: the memory is measured under it.
    """
    known = found.rates
    clocks = found.conditions.device_clocks
    clock = next(iter(clocks_of("memory", sampled_clocks(clocks))), None)
    wanted = governors_in(governor).get("memory") if governor else None
    memory = not known.memory_is_settled or has_other_clock(known, clock, wanted)
    storage = not known.storage_is_settled
    if not memory and not storage:
        return known, Missing()
    try:
        program = own_program(host, Layout(workdir=board.workdir), RATES, found, progress)
        if program is None:
            return known, Missing.of(known, f"armload has no program for {found.machine}")
        free_bytes = found.conditions.workdir_free_bytes
        is_spare = free_bytes is None or free_bytes >= _SPARE_TIMES * _OWN_BYTES
        values = {
            "workdir": board.workdir,
            "program": program,
            "threads": found.conditions.usual_threads if memory else 0,
            "free_bytes": found.conditions.memory_available_bytes,
            "clock": (clock.path,) if clock else (),
            "governors": governor_settings(board.name, governor, clocks),
            "storage": storage,
            "file": file,
            "long_bytes": _OWN_BYTES,
            "own_bytes": _OWN_BYTES if is_spare else 0,
            "nothing_to_read": _NOTHING_TO_READ,
        }
        with progress.step(f"Measuring memory and storage of {board.name}"):
            done = host.run(render("board/rates.sh.j2", values))
    except ConnectError:
        raise
    except ArmloadError as error:
        progress.say(f"{board.name}: memory and storage bandwidth not measured: {error.message}")
        return known, Missing.of(known, error.message.rstrip("."))
    lines = done.text.splitlines()
    rates = known.better_of(read_rates(lines))
    too_low = (
        rates.memory_bytes_per_s and not rates.memory_is_settled,
        rates.storage_read_bytes_per_s and not rates.storage_is_settled,
    )
    if any(too_low):
        shared = f"the workstation that emulates {board.name}"
        busy = shared if isinstance(board.reach, VirtualReach) else board.name
        progress.say(
            f"Other programs were using {busy} while memory and storage bandwidth were measured: "
            "the rates may be too low, and will be measured again next time."
        )
    missing = Missing.of(rates, reason(done.stderr))
    if missing.storage and _NOTHING_TO_READ in lines:
        why = (
            f"there is no model on the board to read, and {_OWN_BYTES >> 20} MiB could not be "
            f"written; free space with armload board.clean --board {board.name}"
        )
        missing = missing.model_copy(update={"storage": why})
    return rates, missing


_SAME_CLOCK = 0.05
_FIXED = ("powersave", "userspace")


def has_other_clock(known: Rates, clock: DeviceClock | None, governor: str | None) -> bool:
    """Return whether the memory was measured at another clock than it will have at full load.

    Args:
        clock: of the memory; none where none is known.
        governor: that it will have; none for its present one.
    """
    if clock is None or clock.hz is None or known.memory_bytes_per_s is None:
        return False
    is_fixed = (governor or clock.governor) in _FIXED
    # Which frequency powersave brings, only the lowest step tells.
    if governor in _FIXED and clock.governor != governor:
        return True
    expected_hz = clock.hz if is_fixed else clock.allowed_hz or clock.hz
    measured_hz = known.memory_clock_hz
    return measured_hz is None or abs(measured_hz - expected_hz) > _SAME_CLOCK * expected_hz
