"""What the repeats of one combination say together, in words and as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel

from armload.analysis.confidence_sequence import FEWEST_FIGURES
from armload.analysis.repeats import AnyStop, Known, Precision, Stop, counts, known, middle
from armload.analysis.run import Run
from armload.bench.sweep import Sweep
from armload.core.shell import program_name
from armload.core.values import Value
from armload.core.workspace import runs_folder
from armload.report import formatting as words
from armload.report.layout import Details
from armload.report.result import Part, labelled
from armload.report.table import NewRun


class Combined(Value):
    """What the repeats of one combination say together.

    Attributes:
        sweep: its id.
        runs: their ids, in order.
        counted: how many of them count; the others were disturbed, or did not end well.
        p50_s: median of their medians of the time per token; none where no run counts.
        p50_low_s, p50_high_s: its 95% confidence interval; none where that takes more runs.
        precision: how far the interval may reach from the median, as a share of it.
        known_within: how far it does.
        reached: that is no more than ``precision``.
        stop: why no more runs were made, in numbers.
        stopped: the same, for people.
    """

    sweep: str
    runs: tuple[str, ...]
    counted: int
    p50_s: float | None
    p50_low_s: float | None
    p50_high_s: float | None
    precision: float
    known_within: float | None
    reached: bool
    stop: AnyStop
    stopped: str


class RepeatedRun(Run):
    """The run in the middle of its repeats, and what all of them say together."""

    combined: Combined


@dataclass(frozen=True, kw_only=True)
class RepeatedResult(NewRun):
    """The run in the middle of its repeats, with what all say together."""

    runs: tuple[Run, ...]
    stop: Stop
    sweep: Sweep
    wanted: Precision

    @classmethod
    def of(cls, sweep: Sweep, runs: Sequence[Run], stop: Stop, wanted: Precision) -> Self:
        run = middle(runs)
        folder = runs_folder() / run.id
        return cls(run=run, folder=folder, runs=tuple(runs), stop=stop, sweep=sweep, wanted=wanted)

    def document(self) -> BaseModel:
        combined = together_json(self.sweep, self.runs, self.wanted, self.stop)
        return RepeatedRun(**dict(self.run), combined=combined)

    def view(self) -> Iterable[Part]:
        yield from super().view()
        yield together(self.runs, self.stop)
        if len(self.runs) > 1:
            yield from labelled(9, [("all", f"{program_name()} report {self.sweep.id}")])


def progress_line(runs: Sequence[Run]) -> str:
    """Return the line that tells a person of the latest run, and what is known with it."""
    latest = runs[-1]
    found = known(runs)
    together = f"; {_width(found)}" if found and found.within is not None else ""
    if not counts(latest):
        together = f"; not counted: {latest.verdict.names}"
    summary = latest.summary
    median = f"{words.seconds(summary.median_s)} per {summary.unit} (median)"
    return f"run {len(runs)}: {median}{together}"


def together(runs: Sequence[Run], stop: Stop) -> Details:
    """Lay out the combined figure with its interval, how many runs it is of, and why they ended.

    It stands below the figures and the verdict of the run in the middle.
    """
    found = known(runs)
    count = found.runs if found else 0
    of_all = "" if count == len(runs) else f", {count} of them counted"
    rows = [("runs", f"{len(runs)}{of_all}")]
    if found:
        unit = runs[-1].summary.unit
        median = f"{words.seconds(found.median_s)} per {unit}{confidence(found)}"
        rows.append(("median", f"{median}; {_width(found)}"))
    why = stop.fact()
    for reason in middle(runs).verdict.reasons:  # it is shown with that run
        why = why.replace(reason, "See the verdict.")
    rows.append(("stopped", why))
    return Details(rows)


def confidence(found: Known) -> str:
    """Write between which figures the median lies, to follow it; nothing where no one knows."""
    interval = found.interval_s
    if interval is None:
        return ""
    low, high = words.seconds(interval.low), words.seconds(interval.high)
    return f", 95% CI over {found.runs} runs {low} to {high}"


def together_json(sweep: Sweep, runs: Sequence[Run], wanted: Precision, stop: Stop) -> Combined:
    """Return the same as data."""
    found = known(runs)
    interval = found.interval_s if found else None
    return Combined(
        sweep=sweep.id,
        runs=tuple(run.id for run in runs),
        counted=found.runs if found else 0,
        p50_s=found.median_s if found else None,
        p50_low_s=interval.low if interval else None,
        p50_high_s=interval.high if interval else None,
        precision=wanted.share,
        known_within=found.within if found else None,
        reached=stop.kind == "precision reached",
        stop=stop,
        stopped=stop.fact(),
    )


def _width(found: Known) -> str:
    if found.within is None:
        return f"an interval needs {FEWEST_FIGURES} runs"
    return f"known within {found.within:.1%}"
