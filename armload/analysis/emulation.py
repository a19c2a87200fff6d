"""What a virtual board's emulator had of the CPU time that it wanted while a run lasted.

Nothing in the board can tell: a virtual CPU that waits for a real one counts as busy there.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from armload.analysis.finding import Disturbance
from armload.core.values import Count, Finite, Value, counted

FILE_NAME = "emulator.jsonl"

STARVED_BELOW = 0.80
"""Share of the CPU time it wanted that the emulator must have had."""

_DELAYED_FROM = 0.10
"""Share of the run that it must have waited: one that mostly waits for its disk is delayed less."""


class Emulation(Value):
    """What the emulator had of the workstation's CPU during a run.

    Attributes:
        watched_s: how long it was watched.
        ran_s: CPU time that its threads had.
        waited_s: that they were ready to run and did not have it, added up.
        cores: of the workstation.
        load: the highest average number of programs that ran there or waited to.
    """

    watched_s: Finite
    ran_s: Finite
    waited_s: Finite
    cores: Count
    load: Finite

    @property
    def cpu_share(self) -> float:
        """Share of the CPU time it wanted that it had."""
        wanted_s = self.ran_s + self.waited_s
        return self.ran_s / wanted_s if wanted_s else 1.0

    @property
    def is_starved(self) -> bool:
        """Whether that slowed the run down."""
        is_delayed = self.waited_s >= _DELAYED_FROM * self.watched_s
        return is_delayed and self.cpu_share < STARVED_BELOW


class EmulatorDelayed(Disturbance):
    """The workstation that emulates a virtual board was busy with other programs.

    Attributes:
        cpu_share: that the emulator had of the CPU time it wanted.
        cores, load: of the workstation; the load is the highest during the run.
        board_cores: how many the board has.
    """

    name: ClassVar[str] = "contended"
    kind: Literal["emulator delayed"] = "emulator delayed"
    cpu_share: float
    cores: int
    load: float
    board_cores: int

    def fact(self) -> str:
        return (
            "Contended: the workstation that emulates the board was busy. The emulator got only "
            f"{self.cpu_share:.0%} of the CPU time that it needed (load {self.load:.1f} on "
            f"{counted(self.cores, 'core')})."
        )

    def advice(self) -> str:
        fewer = " emulate no more cores than it has," if self.board_cores > self.cores else ""
        return f"Stop other programs on the workstation,{fewer} and repeat the run."


def read_emulation(folder: Path) -> Emulation | None:
    """Add up what was noted second by second; none where nothing was."""
    try:
        lines = (folder / FILE_NAME).read_bytes().split(b"\n")
        # The last line may have been cut off.
        noted = [Emulation.model_validate_json(line) for line in lines[:-1]]
    except (OSError, ValueError):
        return None
    if not noted:
        return None
    return Emulation(
        watched_s=sum(each.watched_s for each in noted),
        ran_s=sum(each.ran_s for each in noted),
        waited_s=sum(each.waited_s for each in noted),
        cores=noted[-1].cores,
        load=max(each.load for each in noted),
    )


def doubts_about_the_emulator(found: Emulation | None, board_cores: int) -> list[EmulatorDelayed]:
    """Return that the workstation was too busy to emulate a board with so many cores, if it was."""
    if found is None or not found.is_starved:
        return []
    return [
        EmulatorDelayed(
            cpu_share=found.cpu_share,
            cores=found.cores,
            load=found.load,
            board_cores=board_cores,
        )
    ]
