"""The document in which results travel: written by ``export``, and never trusted when read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from armload.analysis.conditions_log import RunConditions
from armload.analysis.run import FORMAT as RUN_FORMAT
from armload.analysis.run import Run
from armload.analysis.verdict import Verdict, judge
from armload.core.bounds import read_bounded
from armload.core.errors import DataError, NewerFormatError, UsageError
from armload.core.validation_messages import explain_mistake
from armload.core.values import Value, counted, parse_json
from armload.engines.output import Output
from armload.report.exchange.excerpt import excerpt_of
from armload.report.exchange.plausibility import implausible
from armload.report.result import Aside, Part
from armload.report.table import list_table

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
