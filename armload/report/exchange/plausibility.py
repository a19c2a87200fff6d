"""What cannot be true of a run that somebody else measured: a wrong unit, or an invented figure."""

from __future__ import annotations

from collections.abc import Iterator

from armload.analysis.run import Run
from armload.boards.conditions import Conditions
from armload.boards.sensors import COLDEST_CELSIUS, HOTTEST_CELSIUS
from armload.engines.plan import LONGEST_RUN_S
from armload.engines.trace import wall_time_s

MOST_TOKENS = 1 << 20
"""Of a run."""

_MOST_CORES = 4096
_MOST_KHZ = 10_000_000
_LEAST_KHZ = 10_000
_LEAST_MEMORY_BYTES = 16 << 20
_MOST_MEMORY_BYTES = 1 << 50
_MOST_BYTES_PER_S = 10**13
_CACHES_HELP = 50
"""How many times as fast as the memory a model may be read that lies in the CPU's caches."""


def implausible(run: Run) -> Iterator[str]:
    """Yield what cannot be true of a run, each as a sentence without its full stop."""
    if not 1 <= run.board.cores <= _MOST_CORES:
        yield f"board.cores must be a number between 1 and {_MOST_CORES}"
    for name, rate in (
        ("memory_bytes_per_s", run.board.memory_bytes_per_s),
        ("storage_read_bytes_per_s", run.board.storage_read_bytes_per_s),
    ):
        if rate is not None and not 0 < rate < _MOST_BYTES_PER_S:
            yield f"board.{name} must be a number of bytes per second"
    for name, count in (
        ("size_bytes", run.model.size_bytes),
        ("parameters", run.model.parameters),
        ("bytes_per_token", run.model.bytes_per_token),
    ):
        if count is not None and not 0 < count < _MOST_MEMORY_BYTES:
            yield f"model.{name} is {count}, which is not plausible"
    for when, now in (("before", run.before), ("after", run.after)):
        if now is not None:
            yield from _implausible_conditions(when, now)
    yield from _implausible_steps(run)


def _implausible_conditions(when: str, now: Conditions) -> Iterator[str]:
    if not _LEAST_MEMORY_BYTES <= now.memory_total_bytes < _MOST_MEMORY_BYTES:
        yield f"{when}.memory_total_bytes is {now.memory_total_bytes}: it must be in bytes"
    yield from _implausible_celsius(f"{when}.celsius", now.celsius)
    for cluster in now.clusters:
        for khz in (cluster.khz, cluster.max_khz, cluster.limit_khz):
            yield from _implausible_khz(f"{when}.clusters", khz)
    for clock in now.device_clocks:
        for hz in (clock.hz, clock.limit_hz, clock.highest_hz):
            if hz and hz > _MOST_KHZ * 1000:
                yield f"{when}.device_clocks has a frequency of {hz}: it must be in Hz"


def _implausible_celsius(name: str, celsius: float | None) -> Iterator[str]:
    if celsius is not None and not COLDEST_CELSIUS < celsius < HOTTEST_CELSIUS:
        yield f"{name} is {celsius:g}: it must be in degrees Celsius"


def _implausible_khz(name: str, khz: int | None) -> Iterator[str]:
    if khz and not _LEAST_KHZ <= khz <= _MOST_KHZ:
        yield f"{name} has a frequency of {khz}: it must be in kHz"


def _implausible_steps(run: Run) -> Iterator[str]:
    steps = run.steps
    for step in steps:
        yield from _implausible_celsius(f"steps.{step.step}.celsius", step.celsius)
        for khz in step.cpu_khz:
            yield from _implausible_khz(f"steps.{step.step}.cpu_khz", khz)
        if max(step.device_khz, default=0) > _MOST_KHZ:
            yield f"steps.{step.step}.device_khz must be in kHz"
    tokens = sum(step.tokens + step.accepted_tokens for step in steps)
    if tokens > MOST_TOKENS:
        yield f"it holds {tokens:,} tokens; {MOST_TOKENS:,} is the limit"
    if not steps:
        return
    starts_ns = [run.trace.start_ns if run.trace else 0, *(step.start_ns for step in steps)]
    if starts_ns != sorted(starts_ns):
        yield "the steps are not in chronological order"
    lasted_ns = steps[-1].end_ns - steps[0].start_ns
    if lasted_ns > LONGEST_RUN_S * 10**9:
        yield f"it lasted {lasted_ns} ns, longer than the limit: times must be in nanoseconds"
    # A clock's tick and the time between steps are in it too.
    if sum(step.cpu_ns for step in steps) > 2 * run.board.cores * (lasted_ns + 10**8):
        yield (
            f"{run.board.cores} cores cannot have computed for so long in that time: start_ns, "
            "end_ns and cpu_ns must be in nanoseconds"
        )
    yield from _too_fast(run)


def _too_fast(run: Run) -> Iterator[str]:
    read = run.model.bytes_per_token
    passes = [step for step in run.steps[1:] if step.model == 0]
    known = run.board.memory_bytes_per_s
    most = _CACHES_HELP * known if known else _MOST_BYTES_PER_S
    lasted_s = wall_time_s(passes)
    if read and passes and read * len(passes) > most * lasted_s:
        yield (
            f"weights cannot be read {len(passes)} times in {lasted_s:g} s: start_ns and end_ns "
            "must be in nanoseconds"
        )
