"""What a run took from its board's supply: a power meter's samples, integrated over its steps."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from armload.boards.power import PowerReading
from armload.core.values import Finite, Value
from armload.engines.trace import Step

FILE_NAME = "power.jsonl"
"""In a run's folder on this machine."""

_FEWEST_SAMPLES = 5
_STUCK_SAMPLES = 20
_LONGEST_GAP_S = 5.0


class PowerLine(Value):
    """One line of a run's file of power samples.

    Attributes:
        here_s: on this machine's monotonic clock, halfway through the asking.
        board_s: the board's uptime at that time, in a line that aligns the clocks; else none.
        reading: what the meter showed; none where it showed nothing.
        problem: why not.
    """

    here_s: Finite
    board_s: Finite | None = None
    reading: PowerReading | None = None
    problem: str = ""


class Energy(Value):
    """What the meter showed from a run's first step to its last.

    Attributes:
        source: the meter.
        sees: ``wall`` includes the supply's losses, ``board`` does not: never compare the two.
        samples: that lie within.
        interval_s: mean time between two samples.
        average_w, peak_w: over that time.
        joules: over that time.
        prefill_j, decode_j: of it, until the end of the prompt's last step, and after that; none
            where the two alternate, or last for too few samples.
        joules_per_prompt_token, joules_per_token: of these two.
        problem: why none of these figures may be believed; empty where they may.
    """

    source: str
    sees: Literal["wall", "board"]
    samples: int
    interval_s: Finite | None
    average_w: Finite | None
    peak_w: Finite | None
    joules: Finite | None
    prefill_j: Finite | None
    decode_j: Finite | None
    joules_per_prompt_token: Finite | None
    joules_per_token: Finite | None
    problem: str


Sample = tuple[float, float]
"""Seconds on the board's clock, and watts."""


def integral(samples: Sequence[Sample], begin_s: float, end_s: float) -> float:
    """Return the joules between two times by the trapezoid rule; the ends are interpolated.

    Args:
        samples: at rising times; outside them the nearest one holds.
    """
    times = [time for time, _ in samples]
    inside = samples[bisect_right(times, begin_s) : bisect_left(times, end_s)]
    points = [(begin_s, _at(samples, begin_s)), *inside, (end_s, _at(samples, end_s))]
    return math.fsum(
        (later - earlier) * (first + second) / 2
        for (earlier, first), (later, second) in pairwise(points)
    )


def _at(samples: Sequence[Sample], time_s: float) -> float:
    after = bisect_left([time for time, _ in samples], time_s)
    if after == 0:
        return samples[0][1]
    if after == len(samples):
        return samples[-1][1]
    (earlier, first), (later, second) = samples[after - 1], samples[after]
    return first + (second - first) * (time_s - earlier) / (later - earlier)


class Phase(NamedTuple):
    """The steps of prefill or of decode, and the tokens that went through the model in them."""

    steps: Sequence[Step]
    tokens: int | None


def read_energy(
    folder: Path, steps: Sequence[Step], prefill: Phase, decode: Phase
) -> Energy | None:
    """Compute a run's energy from the samples in its folder; none where there was no meter."""
    lines = _lines(folder / FILE_NAME)
    readings = [line for line in lines if line.reading is not None]
    if not lines:
        return None
    shown = readings[0].reading if readings else None
    samples = _on_the_boards_clock(lines, readings)
    if not steps:
        return _unusable(shown, 0, "the run has no steps")
    begin_s, end_s = steps[0].start_ns / 1e9, max(step.end_ns for step in steps) / 1e9
    within = [one for one in samples if begin_s <= one[0] <= end_s]
    problem = _problem(lines, samples, within, begin_s, end_s)
    if problem:
        return _unusable(shown, len(within), problem)
    assert shown is not None  # noqa: S101 - there are samples
    joules = integral(samples, begin_s, end_s)
    prefill_j = decode_j = None
    first = [step.end_ns for step in prefill.steps]
    second = [step.start_ns for step in decode.steps]
    if first and second and max(first) <= min(second):
        turn_s = max(first) / 1e9
        if _count(samples, begin_s, turn_s) >= _FEWEST_SAMPLES:
            prefill_j = integral(samples, begin_s, turn_s)
        if _count(samples, turn_s, end_s) >= _FEWEST_SAMPLES:
            decode_j = integral(samples, turn_s, end_s)
    return Energy(
        source=shown.source,
        sees=shown.sees,
        samples=len(within),
        interval_s=(within[-1][0] - within[0][0]) / (len(within) - 1),
        average_w=joules / (end_s - begin_s),
        peak_w=max(watts for _, watts in within),
        joules=joules,
        prefill_j=prefill_j,
        decode_j=decode_j,
        joules_per_prompt_token=_per(prefill_j, prefill.tokens),
        joules_per_token=_per(decode_j, decode.tokens),
        problem="",
    )


def _per(joules: float | None, tokens: int | None) -> float | None:
    return joules / tokens if joules is not None and tokens else None


def _count(samples: Sequence[Sample], begin_s: float, end_s: float) -> int:
    return sum(begin_s <= time <= end_s for time, _ in samples)


def _lines(path: Path) -> list[PowerLine]:
    found = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        # A command that was killed leaves the last one unfinished.
        try:
            found.append(PowerLine.model_validate_json(line))
        except ValidationError:
            continue
    return found


def _on_the_boards_clock(lines: Sequence[PowerLine], readings: Sequence[PowerLine]) -> list[Sample]:
    known = [(line.here_s, line.board_s - line.here_s) for line in lines if line.board_s]
    if not known:
        return []
    # Of two clocks that drift apart, the difference changes steadily.
    return sorted(
        (line.here_s + _at(known, line.here_s), line.reading.watts)
        for line in readings
        if line.reading is not None
    )


def _problem(
    lines: Sequence[PowerLine],
    samples: Sequence[Sample],
    within: Sequence[Sample],
    begin_s: float,
    end_s: float,
) -> str:
    failures = [line.problem for line in lines if line.problem]
    because = f": {failures[0]}" if failures else ""
    if not samples:
        return f"the meter showed nothing{because}"
    if len(within) < _FEWEST_SAMPLES:
        return f"only {len(within)} samples within {end_s - begin_s:.1f} s{because}"
    times = [begin_s, *(time for time, _ in within), end_s]
    gap_s = max(later - earlier for earlier, later in pairwise(times))
    if gap_s > _LONGEST_GAP_S:
        return f"no samples for {gap_s:.0f} s{because}"
    if len(within) >= _STUCK_SAMPLES and len({watts for _, watts in within}) == 1:
        return f"the meter showed {within[0][1]:g} W all the time"
    return ""


def _unusable(shown: PowerReading | None, samples: int, problem: str) -> Energy:
    nothing = dict.fromkeys(
        name for name in Energy.model_fields if name not in ("source", "sees", "samples", "problem")
    )
    return Energy(
        source=shown.source if shown else "unknown",
        sees=shown.sees if shown else "wall",
        samples=samples,
        problem=problem,
        **nothing,
    )
