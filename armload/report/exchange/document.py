"""The document in which results travel: written by ``export``, and never trusted when read.

What cannot be true of a run is refused: a wrong unit, or an invented figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from armload.analysis.conditions_log import RunConditions
from armload.analysis.run import FORMAT as RUN_FORMAT
from armload.analysis.run import Run
from armload.analysis.verdict import Verdict, judge
from armload.boards.conditions import Conditions
from armload.boards.sensors import COLDEST_CELSIUS, HOTTEST_CELSIUS
from armload.core.bounds import read_bounded
from armload.core.errors import DataError, NewerFormatError, UsageError
from armload.core.validation_messages import explain_mistake
from armload.core.values import Value, counted, parse_json
from armload.engines.output import Output
from armload.engines.plan import LONGEST_RUN_S
from armload.engines.trace import wall_time_s
from armload.report.exchange.excerpt import excerpt_of
from armload.report.result import Aside, Part
from armload.report.table import list_table

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


FORMAT = 1
LARGEST_BYTES = 64 << 20
MOST_RUNS = 1000
MOST_STEPS = 100_000
"""Of all runs in a document."""

_AGAIN = "Ask for a document written by: armload export RUN --format json"


class Results(Value):
    """Runs as they are published.

    Attributes:
        kind: tells such a document from others.
        format: goes up when former documents no longer fit.
        runs: what is published of each; the figures in them can be computed from their steps.
    """

    kind: Literal["armload results"] = "armload results"
    format: Literal[1] = 1
    runs: tuple[Run, ...] = Field(min_length=1, max_length=MOST_RUNS)


def read_results(path: Path) -> tuple[Run, ...]:
    """Read a document that somebody else may have written.

    Everything that can be computed is computed again, and no text is taken over that ``excerpt_of``
    would not publish.

    Raises:
        DataError: it is no such document, or cannot be true.
        NewerFormatError: a newer armload wrote it.
        DiskError: it cannot be read.
    """
    content = _content(path)
    listed = content.get("runs")
    runs = [run for run in listed if isinstance(run, dict)] if isinstance(listed, list) else []
    for found, known in ((content, FORMAT), *((run, RUN_FORMAT) for run in runs)):
        version = found.get("format")
        if isinstance(version, int) and version > known:
            raise NewerFormatError(path, version, known)
    steps = sum(len(run["steps"]) for run in runs if isinstance(run.get("steps"), list))
    if steps > MOST_STEPS:
        raise DataError(
            f"{path}: it holds {steps:,} steps; {MOST_STEPS:,} is the limit.",
            "Ask for a document of fewer or shorter runs.",
        )
    try:
        results = Results.model_validate(content)
    except ValidationError as error:
        raise DataError(f"{path}: {explain_mistake(error, Results)}.", _AGAIN) from error
    for number, run in enumerate(results.runs):
        if problem := next(implausible(run), ""):
            raise DataError(f"{path}, run {number + 1}: {problem}.", _AGAIN)
    return tuple(_judged_again(path, run) for run in results.runs)


def _content(path: Path) -> dict[str, Any]:
    text = read_bounded(path, LARGEST_BYTES, _AGAIN)
    try:
        content = parse_json(text)
    except ValueError as error:
        raise DataError(f"{path}: not a JSON document: {error}.", _AGAIN) from error
    if not isinstance(content, dict) or content.get("kind") != "armload results":
        raise DataError(f"{path}: not a document that armload export wrote.", _AGAIN)
    return content


def _judged_again(path: Path, claimed: Run) -> Run:
    """Return a run with the findings that its own records make, and those that it came with."""
    try:
        run = excerpt_of(claimed.model_copy(update={"is_excerpt": True}))
    except UsageError as error:
        raise DataError(f"{path}: {error.message}", _AGAIN) from error
    if not run.started_utc:
        raise DataError(f"{path}: started_utc must look like 2026-01-31T12:00:00+00:00.", _AGAIN)
    if run.model.name and not run.model.sha256:
        raise DataError(f"{path}: model.sha256 must be 64 hexadecimal digits.", _AGAIN)
    around = RunConditions(
        after=run.after,
        cache=run.cache,
        governor=run.governor,
        background=run.background_processes,
        swapped=run.swapped,
        clocks=run.clocks,
        device_clocks=run.device_clocks,
        emulation=run.emulation,
    )
    output = Output(
        header=run.trace,
        steps=run.steps,
        text=run.text or None,
        restored_tokens=run.restored_tokens,
    )
    found = judge(run, output, run.exit, around)
    names = {each.name for each in found}
    others = (each.figures for each in run.verdict.findings if each.name not in names)
    return run.model_copy(update={"verdict": Verdict.of((*found, *others), advises=False)})


def results_of(runs: Sequence[Run]) -> Results:
    """Return the document of some runs, as ``excerpt_of`` gives them.

    Raises:
        DataError: there are more runs or steps in them than a document may hold.
    """
    steps = sum(len(run.steps) for run in runs)
    if len(runs) > MOST_RUNS or steps > MOST_STEPS:
        raise DataError(
            f"{len(runs):,} runs of {steps:,} steps are too many for one document.",
            f"At most {MOST_RUNS:,} runs and {MOST_STEPS:,} steps fit; export fewer at a time.",
        )
    return Results(runs=tuple(runs))


def imported_view(runs: Sequence[Run], *, known: int, has_own: bool) -> Iterator[Part]:
    """Yield runs that were imported, how many are new, and what to do with them.

    Args:
        known: how many had been imported before.
        has_own: there are runs to compare them with.
    """
    yield list_table(runs)
    before = f"; {known} had been imported before" if known else ""
    yield Aside(text=f"Imported {counted(len(runs) - known, 'run')}{before}.")
    first = runs[0].id
    if has_own:
        yield Aside(text=f"Compare with your own: armload compare latest {first}")
    else:
        yield Aside(text=f"Show one: armload show {first}")
