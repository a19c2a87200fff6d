"""Other programs that took the CPU from a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from armload.analysis.background import BackgroundProcess
from armload.analysis.columns import (
    busy_share,
    prompt_without_storage,
    switches_per_token,
    without_storage,
)
from armload.analysis.finding import Disturbance
from armload.core.values import counted
from armload.engines.job import Workstation
from armload.engines.trace import Step, Trace, wall_time_s

CONTENDED_BELOW = 0.80
"""Share of wall time that the engine's threads must run, when nothing is read from storage."""

_FEWEST_STEPS = 10
_SWITCHES_PER_TOKEN = 1
_SWITCHES_PER_S = 10
_SHORTEST_PROMPT_S = 0.05
"""In less time, a single preemption decides how much of it the threads had the CPU."""


class SlowedFromOutside(Disturbance):
    """What may have slowed a run down.

    Attributes:
        process: the busiest background process, if it was busy enough to be named.
        workstation: that a virtual board shares its CPU with.
    """

    process: BackgroundProcess | None
    workstation: Workstation | None


class Contended(SlowedFromOutside):
    """The engine's threads were preempted.

    Attributes:
        busy_share: of the time in which they had the CPU.
        switches: involuntary ones, per token or while the prompt was read.
    """

    name: ClassVar[str] = "contended"
    kind: Literal["contended"] = "contended"
    threads: int
    busy_share: float
    switches: int
    per: Literal["token", "prompt"]

    def fact(self) -> str:
        when = "per token" if self.per == "token" else "during prefill"
        by = f", mostly by {_process(self.process)}" if self.process else ""
        return (
            f"Contended: the engine's {counted(self.threads, 'thread')} had the CPU for "
            f"{self.busy_share:.0%} of the time and were preempted "
            f"{counted(self.switches, 'time')} {when}{by}."
        )

    def advice(self) -> str:
        return f"{stop_others(self.workstation)}, or use fewer threads."


class Unsteady(SlowedFromOutside):
    """The 90th percentile of the time per token is ``times_median`` medians."""

    name: ClassVar[str] = "unsteady"
    kind: Literal["unsteady"] = "unsteady"
    times_median: float

    def fact(self) -> str:
        other = f" Another program used the CPU: {_process(self.process)}." if self.process else ""
        return (
            f"Unsteady: the slowest 10% of the tokens took {self.times_median:.1f} times the "
            f"median or more, without reading from storage.{other}"
        )

    def advice(self) -> str:
        return f"{stop_others(self.workstation)}, and repeat the run."


def stop_others(workstation: Workstation | None) -> str:
    """Say where to stop other programs, without the sentence's end."""
    if workstation is None:
        return "Stop other programs on the board"
    return (
        "Stop other programs on this machine, whose CPU the virtual board shares (load "
        f"{workstation.load:.1f} on {counted(workstation.cores, 'core')} when the run began)"
    )


def _process(found: BackgroundProcess) -> str:
    kernel = "kernel, " if found.kernel else ""
    return f"{found.name} ({kernel}{found.share:.0%} of a core)"


def doubts_about_the_cpu(
    steps: Sequence[Step],
    header: Trace,
    process: BackgroundProcess | None,
    workstation: Workstation | None,
) -> list[Contended]:
    """Return that the engine's threads were preempted, if they were.

    Args:
        process: the busiest in the background, where it was busy enough to be named.
        workstation: that a virtual board shares its CPU with.
    """
    if header.threads is None:
        return []
    per: Literal["token", "prompt"]
    prompt, quiet = prompt_without_storage(steps), without_storage(steps)
    if wall_time_s(prompt) >= _SHORTEST_PROMPT_S:
        per, busy = "prompt", busy_share(prompt, header.threads)
        switches: float = sum(step.involuntary_switches or 0 for step in prompt)
        often = switches >= _SWITCHES_PER_S * wall_time_s(prompt)
    elif len(quiet) >= _FEWEST_STEPS and wall_time_s(quiet) > 0:
        per, busy = "token", busy_share(quiet, header.threads)
        switches = switches_per_token(quiet)
        often = switches >= _SWITCHES_PER_TOKEN
    else:
        return []
    if busy >= CONTENDED_BELOW or not often:
        return []
    return [
        Contended(
            threads=header.threads,
            busy_share=busy,
            switches=round(switches),
            per=per,
            process=process,
            workstation=workstation,
        )
    ]
