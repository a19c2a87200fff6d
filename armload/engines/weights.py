"""Whether weights that exceed a board's memory are streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from armload.boards.conditions import Conditions
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import offers
from armload.engines.plan import WeightsMode

MODE_VARIABLE = "ARMLOAD_WEIGHTS"
RESIDENT_VARIABLE = "ARMLOAD_RESIDENT"

LEAST_RESERVE_BYTES = 24 << 20
RESERVE_SHARE = 20
"""As in ``toolchains/native/armload_reserve.c``: of all memory."""

LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES = 8 << 20, 64 << 20
WINDOW_SHARE = 16
"""As in ``toolchains/native/armload_stream.c``: of the available memory."""


class BoardMemory(Value):
    """What a board has of memory.

    Attributes:
        total_bytes: of the board, or of the control group that limits the run.
        available_bytes: before the run.
    """

    total_bytes: int
    available_bytes: int

    @classmethod
    def of(cls, now: Conditions) -> BoardMemory:
        """Return what a board has at that moment."""
        limit = now.memory_limit_bytes or now.memory_total_bytes
        return cls(
            total_bytes=min(limit, now.memory_total_bytes),
            available_bytes=now.memory_available_bytes,
        )

    @property
    def reserve_bytes(self) -> int:
        """Left free for everything else."""
        return max(LEAST_RESERVE_BYTES, self.total_bytes // RESERVE_SHARE)

    @property
    def window_bytes(self) -> int:
        """How far streamed weights are read ahead."""
        share = self.available_bytes // WINDOW_SHARE
        return min(max(share, LEAST_WINDOW_BYTES), MOST_WINDOW_BYTES)

    @property
    def free_bytes(self) -> int:
        """What a program may take."""
        return self.available_bytes - self.reserve_bytes

    def holds(self, need: MemoryNeed) -> bool:
        """Tell whether weights, KV cache and buffers stay in memory."""
        return need.wanted_bytes <= self.free_bytes


class WeightsSettings(Protocol):
    """How weights are to be held, as a plan says it."""

    @property
    def weights(self) -> WeightsMode:
        """Mapped, streamed, or whatever fits."""

    @property
    def resident_bytes(self) -> int | None:
        """Of streamed weights, that stay in memory; none for what fits."""


def are_streamed(plan: WeightsSettings, program: Path, need: MemoryNeed, now: Conditions) -> bool:
    """Tell whether a program is to stream its weights.

    Args:
        program: on this machine.
        now: the board before the run.
    """
    mode = plan.weights
    if mode == "auto" and plan.resident_bytes is None:
        # What lies in memory already is there for every token.
        exceeds = not BoardMemory.of(now).holds(need) and not now.workdir_in_memory
        return exceeds and offers(program, MODE_VARIABLE)
    if mode == "mapped":
        return False
    if not offers(program, MODE_VARIABLE):
        raise UsageError(
            f"--weights streamed: {program.name} was built by an armload that could not stream.",
            "Omit --weights and --resident, or build the program again.",
        )
    return True


def environment(plan: WeightsSettings, *, streamed: bool) -> dict[str, str]:
    """Return the variables that tell a program how to hold its weights."""
    if not streamed:
        return {}
    variables = {MODE_VARIABLE: "streamed"}
    if plan.resident_bytes is not None:
        variables[RESIDENT_VARIABLE] = str(plan.resident_bytes)
    return variables
