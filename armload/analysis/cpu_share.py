"""How much of the CPU the engine's threads had, and how often they were preempted."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.summary import generating
from armload.engines.trace import Step


def without_storage(steps: Sequence[Step]) -> list[Step]:
    """Return the generating steps that read no storage: others are slow for another reason."""
    return _quiet(generating(steps))


def prompt_without_storage(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that read the prompt and no storage, of a run that did no more."""
    return [] if generating(steps) else _quiet(steps)


def _quiet(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not step.read_bytes and not step.major_faults]


def busy_share(steps: Sequence[Step], threads: int) -> float:
    """Return the share of the wall time of some steps that the threads ran, on average.

    Args:
        steps: with some wall time.
    """
    wall_s = sum(step.duration_s for step in steps)
    return sum(step.cpu_ns for step in steps) / 1e9 / (wall_s * threads)


def switches_per_token(steps: Sequence[Step]) -> float:
    """Return how many times per token a thread had to give way; at least one step."""
    switches = sum(step.involuntary_switches or 0 for step in steps)
    return switches / sum(step.output_tokens for step in steps)
