"""What a run's script did and counted on the board besides running the program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from armload.analysis.background import BackgroundProcess
from armload.boards.conditions import Conditions
from armload.boards.probe import read_state
from armload.core.values import Count, Value
from armload.deploy.exit_record import read_exit_record
from armload.deploy.traces import any_cut

Cache = Literal["dropped", "evicted", "as found"]
"""What was dropped from the board's page cache before a run: all of it, the model, or nothing."""


class Swapped(Value):
    """What the board swapped during a run."""

    in_bytes: Count
    out_bytes: Count


@dataclass(frozen=True, kw_only=True)
class Around:
    """What was noted on the board around a run; none where that is not known."""

    after: Conditions | None = None
    cache: Cache | None = None
    governor: str | None = None
    background: tuple[BackgroundProcess, ...] | None = None
    swapped: Swapped | None = None
    storage_was_full: bool = False
    lease_lost: bool = False


def read_after(folder: Path) -> Conditions | None:
    """Read how the board was when the run had ended; none where its script could not note it."""
    try:
        return read_state((folder / "after").read_bytes())
    except FileNotFoundError:
        return None


def read_cache(folder: Path) -> Cache | None:
    """Read what became of the page cache; none for a run that left it alone."""
    noted = _text(folder / "cache").strip()
    return next((word for word in get_args(Cache) if word == noted), None)


def read_governor(folder: Path) -> str | None:
    """Read the governor that was set for the run; none if none was, or not on all cores."""
    set_to = {}
    for line in _text(folder / "governors").splitlines():
        words = line.split(" ", 2)
        if len(words) == 3:
            _, now, policy = words
            set_to[policy] = now
    found = set(set_to.values())
    return found.pop() if len(found) == 1 and "-" not in found else None


def read_swapped(folder: Path, page_bytes: int) -> Swapped | None:
    """Read how much was swapped; none when the kernel does not count it, or the run was cut."""
    try:
        before, after = (
            [int(word) for word in line.split()] for line in _text(folder / "swapped").splitlines()
        )
        pages_in, pages_out = (late - early for early, late in zip(before, after, strict=True))
        return Swapped(in_bytes=pages_in * page_bytes, out_bytes=pages_out * page_bytes)
    except ValueError:
        return None


def storage_was_full(folder: Path) -> bool:
    """Say whether the board's storage was full during a run, so that output may be lost.

    The run's script looks once a second; the trace library says so where standard error had space
    for it, and else leaves a line that was cut off though the program ended by itself.
    """
    trace = folder / "trace.jsonl"
    content = trace.read_bytes() if trace.is_file() else b""
    facts = read_exit_record(folder)
    return (
        (folder / "full").exists()
        or "No space left on device" in _text(folder / "stderr")
        or (facts is not None and facts.status == 0 and any_cut(content))
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
