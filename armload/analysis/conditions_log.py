"""What a run's script did and counted on the board before, during and after the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from armload.analysis.background import BackgroundProcess
from armload.analysis.clocks import MeasuredClock
from armload.analysis.device_clocks import ClockUse
from armload.analysis.emulation import Emulation
from armload.boards.conditions import Conditions
from armload.boards.device_clocks import ClockKind, kind_of
from armload.boards.governors import governors_text
from armload.boards.probe import read_state
from armload.boards.sensors import chosen_names
from armload.boards.throttling import ThrottleReading, read_throttling
from armload.core.json_lines import any_cut
from armload.core.values import Count, Value
from armload.deploy.exit_record import read_exit_record
from armload.deploy.layout import STDERR_FILE, TRACE_FILE

_SECTOR_BYTES = 512  # of a block device's stat, whatever the device's own are

Cache = Literal["dropped", "evicted", "as found"]
"""What was dropped from the board's page cache before a run: all of it, the model, or nothing."""


class Swapped(Value):
    """What the board swapped during a run.

    Attributes:
        in_bytes, out_bytes: in all.
        zram_in_bytes, zram_out_bytes: of these, from and to compressed memory, which takes CPU
            time but does not wait for storage.
    """

    in_bytes: Count
    out_bytes: Count
    zram_in_bytes: Count = 0
    zram_out_bytes: Count = 0


@dataclass(frozen=True, kw_only=True)
class RunConditions:
    """What was noted on the board around a run; none where that is not known."""

    after: Conditions | None = None
    cache: Cache | None = None
    governor: str | None = None
    background: tuple[BackgroundProcess, ...] | None = None
    swapped: Swapped | None = None
    throttling: tuple[ThrottleReading, ...] = ()
    clocks: tuple[MeasuredClock, ...] = ()
    device_clocks: tuple[ClockUse, ...] = ()
    emulation: Emulation | None = None
    storage_was_full: bool = False
    full_members: tuple[str, ...] = ()
    lease_lost: bool = False


def read_after(folder: Path, before: Conditions) -> Conditions | None:
    """Read how the board was when the run had ended; none where its script could not note it.

    Args:
        before: the run, of which the same sensors count.
    """
    try:
        return read_state((folder / "after").read_bytes(), chosen_names(before.sensors))
    except FileNotFoundError:
        return None


def read_cache(folder: Path) -> Cache | None:
    """Read what became of the page cache; none for a run that left it alone."""
    noted = _text(folder / "cache").strip()
    return next((word for word in get_args(Cache) if word == noted), None)


def read_governors(folder: Path) -> dict[str, str]:
    """Read the governors that policies and devices had in the run, by the folder of each.

    Those that were left alone are not among them; ``-`` is one that is not known.
    """
    lines = (line.split(" ", 2) for line in _text(folder / "governors").splitlines())
    return {words[2]: words[1] for words in lines if len(words) == 3}


def read_governor(folder: Path) -> str | None:
    """Read the governors that were set for the run, as ``--governor`` takes them.

    None if none was; without the devices of which not all had the same.
    """
    set_to: dict[ClockKind, set[str]] = {}
    for path, now in read_governors(folder).items():
        is_device = "/devfreq/" in path
        kind = kind_of(path.rpartition("/")[2]) if is_device else "cpu"
        set_to.setdefault(kind, set()).add(now)
    return governors_text(
        {kind: min(names) for kind, names in set_to.items() if len(names) == 1 and "-" not in names}
    )


def read_swapped(folder: Path, page_bytes: int) -> Swapped | None:
    """Read how much was swapped; none when the kernel does not count it, or the run was cut."""
    try:
        before, after = (
            [int(word) for word in line.split()] for line in _text(folder / "swapped").splitlines()
        )
        moved = [late - early for early, late in zip(before, after, strict=True)]
        in_bytes, out_bytes = (pages * page_bytes for pages in moved[:2])
        return Swapped(
            in_bytes=in_bytes,
            out_bytes=out_bytes,
            zram_in_bytes=min(in_bytes, sum(moved[2::2]) * _SECTOR_BYTES),
            zram_out_bytes=min(out_bytes, sum(moved[3::2]) * _SECTOR_BYTES),
        )
    except ValueError:
        return None


def read_throttle_log(folder: Path) -> tuple[ThrottleReading, ...]:
    """Read what hardware and firmware told during a run; empty where they tell nothing."""
    try:
        return read_throttling(_text(folder / "throttling").splitlines())
    except ValueError:
        return ()


def storage_was_full(folder: Path, *, was_stopped: bool = False) -> bool:
    """Return whether the board's storage was full during a run, so that output may be lost.

    The run's script looks once a second; the trace library says so where standard error had space
    for it, and else leaves a line that was cut off though the program ended by itself.

    Args:
        was_stopped: armload ended the program, which had nothing to write then.
    """
    trace = folder / TRACE_FILE
    content = trace.read_bytes() if trace.is_file() else b""
    facts = read_exit_record(folder)
    return (
        (folder / "full").exists()
        or "No space left on device" in _text(folder / STDERR_FILE)
        or (facts is not None and (was_stopped or facts.status == 0) and any_cut(content))
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
