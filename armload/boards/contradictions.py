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


Fact = Literal["hardware", "cores", "clock", "memory", "memory bandwidth", "storage bandwidth"]


class Contradiction(Value):
    """A fact that is declared, and what was found instead."""

    fact: Fact
    declared: str
    found: str


def contradictions(board: Board, found: Probe) -> tuple[Contradiction, ...]:
    """Compare a board's facts, its own or its hardware's, with what the board shows."""
    facts, memory, rates = board.facts, found.conditions.memory_total_bytes, found.rates
    every: list[Contradiction] = []

    def note(fact: Fact, declared: str, shown: str) -> None:
        every.append(Contradiction(fact=fact, declared=declared, found=shown))

    itself = recognised(found.device, memory)
    if board.hardware and itself is not None and itself.name != board.hardware:
        note("hardware", board.hardware, f"{itself.name} ({found.device})")
    cores: Counter[str] = Counter()
    for cluster in facts.clusters:
        cores[cluster.name] += cluster.cores
    shown_cores = {each.name: each.cores for each in found.clusters}
    if cores and cores != shown_cores:
        note("cores", _listed(cores), _listed(shown_cores))
    mhz = max((each.max_mhz or 0 for each in facts.clusters), default=0)
    shown_mhz = max(found.max_khz, default=0) // 1000
    if mhz and shown_mhz and abs(shown_mhz / mhz - 1) > CLOCK_DIFFERENCE:
        note("clock", f"{mhz} MHz", f"{shown_mhz} MHz")
    if facts.memory and not LEAST_SHOWN * facts.memory <= memory <= facts.memory:
        note("memory", format_bytes(facts.memory), format_bytes(memory))
    bandwidths: tuple[tuple[Fact, int | None, int | None], ...] = (
        ("memory bandwidth", facts.memory_bytes_per_s, rates.memory_bytes_per_s),
        ("storage bandwidth", facts.storage_read_bytes_per_s, rates.storage_read_bytes_per_s),
    )
    for fact, declared, measured in bandwidths:
        if declared and measured and abs(measured / declared - 1) > RATE_DIFFERENCE:
            note(fact, f"{format_bytes(declared)}/s", f"{format_bytes(measured)}/s")
    return tuple(every)


def _listed(cores: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(cores.items()))
