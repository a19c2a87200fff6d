"""What a run took from its board's supply: a power meter's samples, integrated over its steps."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import ValidationError

from armload.boards.power import EnergyBasis, PowerReading, Sees, place
from armload.core.values import Finite, Value, counted
from armload.engines.trace import Step

FILE_NAME = "power.jsonl"
"""In a run's folder on this machine."""

FEWEST_SAMPLES = 5
"""Of a time whose energy may be believed."""

_STUCK_SAMPLES = 20
_LONGEST_GAP_S = 5.0
_MOST_DRIFT_S, _MOST_DRIFT_SHARE = 1.0, 0.05


class PowerLine(Value):
    """One line of a run's file of power samples.

    Attributes:
        here_s: on this machine's monotonic clock, halfway through the asking.
        board_s: the board's uptime at that time, in a line that aligns the clocks; else none.
        reading: what the meter showed; none where it showed nothing.
        problem: why not.
        is_idle: the board did nothing then, before what is measured.
    """

    here_s: Finite
    board_s: Finite | None = None
    reading: PowerReading | None = None
    problem: str = ""
    is_idle: bool = False


Sample = tuple[Finite, Finite]
"""Seconds, and watts."""


class MeteredTime(Value):
    """What a meter showed over a time.

    Attributes:
        source: the meter.
        sees: where it measures.
        samples: that lie within.
        interval_s: mean time between two samples.
        average_w, peak_w: as shown.
        idle_w: mean of the idle board, before it; none without enough samples.
        subtracts_idle: energies are without what the idle board would have taken.
        joules: over that time.
        curve: the samples, in seconds since its beginning.
        problem: why none of these figures may be believed; empty where they may.
    """

    source: str
    sees: Sees
    samples: int
    interval_s: Finite | None = None
    average_w: Finite | None = None
    peak_w: Finite | None = None
    idle_w: Finite | None = None
    subtracts_idle: bool = False
    joules: Finite | None = None
    curve: tuple[Sample, ...] = ()
    problem: str = ""

    @property
    def power(self) -> str:
        """What the meter showed, or why its figures are not valid."""
        if self.problem or self.average_w is None or self.peak_w is None:
            return f"not valid: {self.problem} ({self.source})"
        idle = "idle power"
        if self.idle_w is not None:
            idle += f" ({self.idle_w:.2f} W)"
        included = "subtracted from the energy" if self.subtracts_idle else "included"
        rate = f"{counted(self.samples, 'sample')}, one every {self.interval_s or 0.0:.1f} s"
        return (
            f"{self.average_w:.2f} W on average, {self.peak_w:.2f} W peak {place(self.sees)}, "
            f"{idle} {included} ({self.source}; {rate})"
        )

    @property
    def basis(self) -> EnergyBasis:
        """What another must have in common with it to be compared."""
        return EnergyBasis(sees=self.sees, subtracts_idle=self.subtracts_idle)


class Energy(MeteredTime):
    """What the meter showed from a run's first step to its last.

    Attributes:
        prefill_j, decode_j: of ``joules``, until the end of the prompt's last step, and after
            that; none where the two alternate, or last for too few samples.
        joules_per_prompt_token, joules_per_token: of these two.
    """

    prefill_j: Finite | None = None
    decode_j: Finite | None = None
    joules_per_prompt_token: Finite | None = None
    joules_per_token: Finite | None = None


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
    folder: Path,
    steps: Sequence[Step],
    prefill: Phase,
    decode: Phase,
    *,
    subtracts_idle: bool = False,
) -> Energy | None:
    """Compute a run's energy from the samples in its folder; none where there was no meter."""
    lines = read_power(folder / FILE_NAME)
    if not lines:
        return None
    known = _offsets(lines)
    if not known:
        samples = []
    else:
        # Of two clocks that drift apart, the difference changes steadily.
        samples = sorted(
            (line.here_s + _at(known, line.here_s), line.reading.watts)
            for line in lines
            if line.reading is not None and not line.is_idle
        )
    begin_s = steps[0].start_ns / 1e9 if steps else 0.0
    end_s = max((step.end_ns for step in steps), default=0) / 1e9
    found = metered(
        *(lines, samples, begin_s, end_s),
        subtracts_idle=subtracts_idle,
        problem=_drift(lines) if steps else "the run has no steps",
    )
    first = [step.end_ns for step in prefill.steps]
    second = [step.start_ns for step in decode.steps]
    prefill_j = decode_j = None
    if not found.problem and first and second and max(first) <= min(second):
        turn_s = max(first) / 1e9
        idle_w = (found.idle_w or 0.0) if subtracts_idle else 0.0
        prefill_j = _joules(samples, begin_s, turn_s, idle_w)
        decode_j = _joules(samples, turn_s, end_s, idle_w)
    return Energy(
        **dict(found),
        prefill_j=prefill_j,
        decode_j=decode_j,
        joules_per_prompt_token=per(prefill_j, prefill.tokens),
        joules_per_token=per(decode_j, decode.tokens),
    )


def metered(
    lines: Sequence[PowerLine],
    samples: Sequence[Sample],
    begin_s: float,
    end_s: float,
    *,
    subtracts_idle: bool,
    problem: str = "",
) -> MeteredTime:
    """Return what a meter showed between two times.

    Args:
        lines: at least one, those of the idle board among them.
        samples: of these lines without the idle board, on the clock of the two times.
        problem: that is known already.
    """
    readings = [line.reading for line in lines if line.reading is not None]
    within = [one for one in samples if begin_s <= one[0] <= end_s]
    idle = [line.reading.watts for line in lines if line.is_idle and line.reading is not None]
    idle_w = fmean(idle) if len(idle) >= FEWEST_SAMPLES else None
    found = MeteredTime(
        source=readings[0].source if readings else "unknown",
        sees=readings[0].sees if readings else "wall",
        samples=len(within),
        idle_w=idle_w,
        subtracts_idle=subtracts_idle,
        problem=problem or _problem(lines, samples, within, begin_s, end_s),
    )
    if found.problem:
        return found
    average_w = integral(samples, begin_s, end_s) / (end_s - begin_s)
    if subtracts_idle and (idle_w is None or average_w <= idle_w):
        why = (
            "the power of the idle board is unknown, so it cannot be subtracted"
            if idle_w is None
            else f"the average of {average_w:.2f} W does not exceed the idle board's {idle_w:.2f} W"
        )
        return found.model_copy(update={"problem": why})
    return found.model_copy(
        update={
            "interval_s": (within[-1][0] - within[0][0]) / (len(within) - 1),
            "average_w": average_w,
            "peak_w": max(watts for _, watts in within),
            "joules": (average_w - ((idle_w or 0.0) if subtracts_idle else 0.0))
            * (end_s - begin_s),
            "curve": tuple((time_s - begin_s, watts) for time_s, watts in within),
        }
    )


def per(joules: float | None, count: int | None) -> float | None:
    """Divide an energy by what was done with it; none where either is unknown, or nothing was."""
    return joules / count if joules is not None and count else None


def read_power(path: Path) -> list[PowerLine]:
    """Return the lines of a file of samples; none where there is no file."""
    found = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        # A command that was killed leaves the last one unfinished.
        try:
            found.append(PowerLine.model_validate_json(line))
        except ValidationError:
            continue
    return found


def _joules(samples: Sequence[Sample], begin_s: float, end_s: float, idle_w: float) -> float | None:
    if sum(begin_s <= time <= end_s for time, _ in samples) < FEWEST_SAMPLES:
        return None
    return integral(samples, begin_s, end_s) - idle_w * (end_s - begin_s)


def _offsets(lines: Sequence[PowerLine]) -> list[tuple[float, float]]:
    return [(line.here_s, line.board_s - line.here_s) for line in lines if line.board_s]


def _drift(lines: Sequence[PowerLine]) -> str:
    known = _offsets(lines)
    if len(known) < 2:
        return ""
    (first_s, before_s), (last_s, after_s) = known[0], known[-1]
    drift_s, span_s = abs(after_s - before_s), last_s - first_s
    if drift_s <= max(_MOST_DRIFT_S, _MOST_DRIFT_SHARE * span_s):
        return ""
    return (
        f"the board's clock and this machine's drifted apart by {drift_s:.0f} s in {span_s:.0f} s"
    )


def _problem(
    lines: Sequence[PowerLine],
    samples: Sequence[Sample],
    within: Sequence[Sample],
    begin_s: float,
    end_s: float,
) -> str:
    failures = [line.problem for line in lines if line.problem and not line.is_idle]
    because = f": {failures[0]}" if failures else ""
    meters = {(each.reading.source, each.reading.sees) for each in lines if each.reading}
    if not samples:
        return f"the meter reported nothing{because}"
    if len(meters) > 1:
        return f"different meters were read: {', '.join(sorted(source for source, _ in meters))}"
    if len(within) < FEWEST_SAMPLES:
        return f"only {counted(len(within), 'sample')} within {end_s - begin_s:.1f} s{because}"
    times = [begin_s, *(time for time, _ in within), end_s]
    gap_s = max(later - earlier for earlier, later in pairwise(times))
    if gap_s > _LONGEST_GAP_S:
        return f"no samples for {gap_s:.0f} s{because}"
    if len(within) >= _STUCK_SAMPLES and len({watts for _, watts in within}) == 1:
        return f"the meter reported a constant {within[0][1]:g} W"
    return ""
