"""How long to repeat a run: until the median time per token is known as exactly as was asked.

Each run gives one figure, its median; how the tokens of one run resemble each other does not matter
then. One run alone tells nothing of the next, however alike its tokens are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal

from armload.analysis.confidence_sequence import FEWEST_FIGURES, interval_of_figures
from armload.analysis.finding import Disturbance, Finding, RunFinding, any_of
from armload.analysis.precision import (
    MEDIAN_WITHIN,
    MOST_MORE_RUNS,
    Imprecise,
    TooFewRepeats,
    WideSpreadOfRepeats,
    too_different,
)
from armload.analysis.run import Run
from armload.analysis.statistics import Interval, interval_of_runs
from armload.analysis.verdict import Verdict
from armload.core.values import Value, counted
from armload.deploy.exit_reason import INTERRUPTED
from armload.engines.job import Workstation
from armload.engines.plan import DEFAULT_PRECISION, DEFAULT_PRECISION_TIME_S

_DISTURBED_IN_A_ROW = 3
_HEADROOM = 1.5
"""Runs differ, and those after the first are prepared, too."""

_ROUND_S = 30


class Precision(Value):
    """How exactly a figure is to be known.

    Attributes:
        share: of the median, that its interval may reach from it.
        added_s: how long repeats may take together, beyond the first run.
    """

    share: float = DEFAULT_PRECISION
    added_s: float = DEFAULT_PRECISION_TIME_S


class Known(Value):
    """What the runs of one combination say together.

    Attributes:
        runs: how many count.
        median_s: of their medians of the time per token.
        interval_s: where that lies with 95% confidence; none for too few runs.
    """

    runs: int
    median_s: float
    interval_s: Interval | None

    @property
    def within(self) -> float | None:
        """How far the interval reaches from the median, as a share of it."""
        if self.interval_s is None:
            return None
        return max(
            self.interval_s.high / self.median_s - 1, 1 - self.interval_s.low / self.median_s
        )


class Stop(Finding):
    """Why no further run is made; its fact is a sentence that begins in lower case."""

    kind: str


class PrecisionReached(Stop):
    """The median is known as exactly as was asked."""

    kind: Literal["precision reached"] = "precision reached"

    def fact(self) -> str:
        return "the requested precision was reached."


class NotRepeatable(Stop):
    """A repeat would have the same fault, in the words of the run's verdict."""

    kind: Literal["not repeatable"] = "not repeatable"
    reason: str

    def fact(self) -> str:
        return f"repeating would not help. {self.reason}"


class NotFinished(Stop):
    """The run was interrupted, in the words of its verdict."""

    kind: Literal["not finished"] = "not finished"
    reason: str

    def fact(self) -> str:
        return f"the run did not finish. {self.reason}"


class NothingTimed(Stop):
    """The run has no output token after the first."""

    kind: Literal["nothing timed"] = "nothing timed"

    def fact(self) -> str:
        return "no output token was timed."


class DisturbedInARow(Stop):
    """So many runs in a row were disturbed, the last of them for this reason."""

    kind: Literal["disturbed in a row"] = "disturbed in a row"
    runs: int
    reason: str

    def fact(self) -> str:
        return f"{self.runs} runs in a row were disturbed. {self.reason}"


class OutOfTime(Stop):
    """Repeats would take longer than they may.

    Attributes:
        more_runs: that would be needed.
        run_s: of one of them.
        allowed_s, needed_s: for all repeats together; what is needed, with headroom.
        runs, disturbed: that were made, and those of them that do not count.
        reason: of the last of those, in the words of its verdict.
        is_storage_limited: the last run waited for storage.
        within: how far the median's interval reaches from it now, as a share of it; none for too
            few runs.
        workstation: that a virtual board shares its CPU with.
    """

    kind: Literal["out of time"] = "out of time"
    more_runs: int
    run_s: float
    allowed_s: float
    needed_s: int
    runs: int
    disturbed: int
    reason: str
    is_storage_limited: bool
    within: float | None = None
    workstation: Workstation | None = None

    def fact(self) -> str:
        needed = (
            f"{counted(self.more_runs, 'more run')} of about {self.run_s:.0f} s would be needed, "
            f"which exceeds the time limit for repeats ({self.allowed_s:g} s)"
        )
        if self.disturbed == self.runs:  # more runs of this kind would not count either
            all_runs = "The only run was" if self.runs == 1 else f"All {self.runs} runs were"
            return f"at least {needed}. {all_runs} disturbed. {self.reason}"
        if self.within is not None and self.more_runs > MOST_MORE_RUNS:
            said = (
                f"the median of {self.runs - self.disturbed} runs is known only within "
                f"{self.within:.0%}. {too_different(self.workstation)}"
            )
        else:
            them = "it" if self.more_runs == 1 else "them"
            said = f"{needed}. To allow {them}, use --precision-time {self.needed_s}."
        if self.disturbed:
            were = "was" if self.disturbed == 1 else "were"
            said += f" {self.disturbed} of {self.runs} runs {were} disturbed. {self.reason}"
        if self.is_storage_limited:
            said += " Tokens wait for storage, whose speed varies."
        return said


if TYPE_CHECKING:
    AnyStop = Stop
else:
    AnyStop = any_of(Stop)


def known(runs: Sequence[Run]) -> Known | None:
    """Return what runs of one combination say together; none where none counts.

    A run counts unless something disturbed it or spoilt its result.
    """
    figures = _figures(runs)
    if not figures:
        return None
    return Known(
        runs=len(figures), median_s=median(figures), interval_s=interval_of_figures(figures)
    )


def _figures(runs: Sequence[Run]) -> list[float]:
    return [run.summary.median_s for run in runs if run.summary.median_s and counts(run)]


def counts(run: Run) -> bool:
    """Return whether a run's median counts: nothing is wrong with it but that it is imprecise."""
    return run.summary.median_s is not None and all(
        isinstance(each, Imprecise) for each in _found(run)
    )


def is_disturbed(run: Run) -> bool:
    """Return whether only an outside disturbance makes a run's figures doubtful."""
    return _may_pass(run) and any(isinstance(each, Disturbance) for each in _found(run))


def stop(
    runs: Sequence[Run], wanted: Precision, *, added_s: float, a_run_s: float | None
) -> Stop | None:
    """Decide whether to run a combination again; none means that it is to be run again.

    Args:
        wanted: how precisely the median is to be known, and in how much time.
        added_s: how long the runs after the first took.
        a_run_s: how long another takes; none where that is not known.
    """
    if not runs:
        return None
    last = runs[-1]
    if last.exit.kind in INTERRUPTED:
        return NotFinished(reason=last.verdict.reasons[0])
    if not counts(last) and not _may_pass(last):
        return NotRepeatable(reason=last.verdict.reasons[0])
    if last.summary.median_s is None:
        return NothingTimed()
    found = known(runs)
    if found and found.within is not None and found.within <= wanted.share:
        return PrecisionReached()
    latest = runs[-_DISTURBED_IN_A_ROW:]
    if len(latest) == _DISTURBED_IN_A_ROW and not any(counts(run) for run in latest):
        return DisturbedInARow(runs=len(latest), reason=last.verdict.reasons[0])
    return _out_of_time(runs, found, wanted, added_s, a_run_s)


def middle(runs: Sequence[Run]) -> Run:
    """Return the representative run: the median nearest to that of all runs that count.

    Where none counts, or the last one did not end well, it is the last one.
    """
    found = known(runs)
    if found is None or runs[-1].exit.status != 0:
        return runs[-1]
    counting = [run for run in runs if counts(run)]
    return min(
        counting,
        key=lambda run: abs((run.summary.median_s or 0) - found.median_s),
    )


def judged_together(runs: Sequence[Run]) -> list[Run]:
    """Return runs with verdicts that take their repeats into account.

    An imprecise run is valid if it and the repeats of its cell determine the median
    as precisely as a single run must, or as was requested; otherwise its finding says how well all
    of them do. Others are returned unchanged, as are fewer than four repeats of a fixed number.
    """
    groups: dict[_CellKey, dict[str, Run]] = {}
    for run in runs:
        if (key := _cell_of(run)) is not None:
            groups.setdefault(key, {})[run.id] = run
    together = {
        key: _together(list(group.values()))
        for key, group in groups.items()
        if any(map(_is_only_imprecise, group.values()))
    }
    return [
        _judged(run, found)
        if _is_only_imprecise(run) and (key := _cell_of(run)) and (found := together.get(key))
        else run
        for run in runs
    ]


_CellKey = tuple[str, int, str]


def _cell_of(run: Run) -> _CellKey | None:
    """Return which cell of a sweep a run is a repeat of, on which board; none for a warm-up."""
    if run.place is None or run.place.warm_up:
        return None
    return run.place.sweep, run.place.cell, run.board.name


def _is_only_imprecise(run: Run) -> bool:
    return not run.verdict.valid and counts(run)


def _together(repeats: Sequence[Run]) -> Known | None:
    """Return what repeats of a cell say; none where they say no more than each by itself."""
    found = known(repeats)
    if found is None or found.runs == 1:
        return None
    if _precision(repeats[0]) is not None:
        return found
    # Nobody has looked at the figures to decide how many of them there are to be.
    interval = interval_of_runs(_figures(repeats))
    return found.model_copy(update={"interval_s": interval}) if interval else None


def _precision(run: Run) -> float | None:
    return run.place.precision if run.place else None


def _judged(run: Run, found: Known) -> Run:
    wanted = max(MEDIAN_WITHIN, _precision(run) or 0)
    if found.within is not None and found.within <= wanted:
        note = (
            f"Valid with its repeats: the median of {found.runs} runs is known within "
            f"{found.within:.1%}."
        )
        return run.model_copy(update={"verdict": Verdict.of(()), "notes": (*run.notes, note)})
    finding = (
        TooFewRepeats(runs=found.runs, needed_runs=FEWEST_FIGURES)
        if found.within is None
        else WideSpreadOfRepeats(
            runs=found.runs,
            within=found.within,
            more_runs=_more_runs(found.runs, found.within, wanted),
            adds_repeats=_precision(run) is not None,
            workstation=run.board.workstation,
        )
    )
    return run.model_copy(update={"verdict": Verdict.of([finding], advises=not run.is_excerpt)})


def _out_of_time(
    runs: Sequence[Run],
    found: Known | None,
    wanted: Precision,
    added_s: float,
    a_run_s: float | None,
) -> OutOfTime | None:
    have = found.runs if found else 0
    fewest = max(1, FEWEST_FIGURES - have)
    if a_run_s is None or added_s + fewest * a_run_s <= wanted.added_s:
        return None
    more = fewest
    if found and found.within is not None:
        more = max(fewest, _more_runs(have, found.within, wanted.share))
    seconds = math.ceil((added_s + _HEADROOM * more * a_run_s) / _ROUND_S) * _ROUND_S
    doubts = [run.verdict.reasons[0] for run in runs if not counts(run)]
    return OutOfTime(
        more_runs=more,
        run_s=a_run_s,
        allowed_s=wanted.added_s,
        needed_s=seconds,
        runs=len(runs),
        disturbed=len(doubts),
        reason=doubts[-1] if doubts else "",
        is_storage_limited=runs[-1].limit.cause == "storage",
        within=found.within if found else None,
        workstation=runs[-1].board.workstation,
    )


def _more_runs(have: int, within: float, share: float) -> int:
    return math.ceil(have * ((within / share) ** 2 - 1))


def _may_pass(run: Run) -> bool:
    """Return whether a repeat may be without everything that was found."""
    return all(isinstance(each, Disturbance | Imprecise) for each in _found(run))


def _found(run: Run) -> list[RunFinding]:
    return [each.figures for each in run.verdict.findings]
