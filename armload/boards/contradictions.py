"""What a board's file declares, and the board itself shows otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from armload.boards.board import Board
from armload.boards.hardware import recognised
from armload.boards.probe import Probe
from armload.core.values import Value, format_bytes

LEAST_SHOWN = 0.75
"""Of the installed memory: firmware, kernel and a GPU keep the rest."""

CLOCK_DIFFERENCE = 0.1
RATE_DIFFERENCE = 0.3


class Contradiction(Value):
    """A fact that is declared, and what was found instead."""

    fact: Literal["hardware", "cores", "clock", "memory", "memory bandwidth", "storage bandwidth"]
    declared: str
    found: str


def contradictions(board: Board, found: Probe) -> tuple[Contradiction, ...]:
    """Compare a board's facts, its own or its hardware's, with what the board shows."""
    rates = found.rates
    every = (
        _hardware(board, found),
        _cores(board, found),
        _clock(board, found),
        _memory(board, found),
        _rate("memory bandwidth", board.facts.memory_bytes_per_s, rates.memory_bytes_per_s),
        _rate(
            "storage bandwidth",
            board.facts.storage_read_bytes_per_s,
            rates.storage_read_bytes_per_s,
        ),
    )
    return tuple(each for each in every if each is not None)


def _hardware(board: Board, found: Probe) -> Contradiction | None:
    itself = recognised(found.device, found.conditions.memory_total_bytes)
    if not board.hardware or itself is None or itself.name == board.hardware:
        return None
    return Contradiction(
        fact="hardware", declared=board.hardware, found=f"{itself.name} ({found.device})"
    )


def _cores(board: Board, found: Probe) -> Contradiction | None:
    declared: Counter[str] = Counter()
    for each in board.facts.clusters:
        declared[each.name] += each.cores
    shown = {each.name: each.cores for each in found.clusters}
    if not declared or declared == shown:
        return None
    return Contradiction(fact="cores", declared=_listed(declared), found=_listed(shown))


def _listed(cores: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(cores.items()))


def _clock(board: Board, found: Probe) -> Contradiction | None:
    declared = max((each.max_mhz or 0 for each in board.facts.clusters), default=0)
    shown = max(found.max_khz, default=0) // 1000
    if not declared or not shown or abs(shown / declared - 1) <= CLOCK_DIFFERENCE:
        return None
    return Contradiction(fact="clock", declared=f"{declared} MHz", found=f"{shown} MHz")


def _memory(board: Board, found: Probe) -> Contradiction | None:
    declared, shown = board.facts.memory, found.conditions.memory_total_bytes
    if not declared or LEAST_SHOWN * declared <= shown <= declared:
        return None
    return Contradiction(fact="memory", declared=format_bytes(declared), found=format_bytes(shown))


def _rate(
    fact: Literal["memory bandwidth", "storage bandwidth"],
    declared: int | None,
    measured: int | None,
) -> Contradiction | None:
    if not declared or not measured or abs(measured / declared - 1) <= RATE_DIFFERENCE:
        return None
    return Contradiction(
        fact=fact, declared=f"{format_bytes(declared)}/s", found=f"{format_bytes(measured)}/s"
    )
