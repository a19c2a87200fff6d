"""When a search with a time limit begins no more trials, and what it does after that."""

from __future__ import annotations

from statistics import median

from armload.analysis.statistics import FEWEST_RUNS
from armload.core.values import counted, format_duration
from armload.tuning.record import TuningFolder
from armload.tuning.trial import Trial

COMPARISON_RUNS = 2 * FEWEST_RUNS
"""Of the leader and the defaults, where nothing disturbs them."""


class TimeLimit:
    """The time of a search, of which the comparison at its end has up to half.

    Args:
        max_time_s: none for no limit.
        tuned: has the trials.
    """

    def __init__(self, max_time_s: float | None, tuned: TuningFolder) -> None:
        self._max_time_s = max_time_s
        self._tuned = tuned

    def allows(self, trial: Trial) -> bool:
        """Return whether a trial begins: the first one always, others while they should fit."""
        if self._max_time_s is None or not self._tuned.entries:
            return True
        comparison_s = min(COMPARISON_RUNS * self._run_s(), self._max_time_s / 2)
        return self._tuned.spent_s + self._run_s(trial.rung) + comparison_s <= self._max_time_s

    def overrun(self) -> str:
        """Say how long the comparison lasts, where it ends after the limit; else nothing."""
        if self._max_time_s is None:
            return ""
        comparison_s = COMPARISON_RUNS * self._run_s()
        over_s = self._tuned.spent_s + comparison_s - self._max_time_s
        if over_s <= 0:
            return ""
        return (
            f" This takes {counted(COMPARISON_RUNS, 'run')}, about "
            f"{format_duration(comparison_s)}, and ends about {format_duration(over_s)} after "
            "--max-time: a speed-up is reported only if the comparison confirms it. Press Ctrl-C "
            "to stop; the same command continues from here."
        )

    def _run_s(self, rung: int | None = None) -> float:
        # Where that rung is unknown, and for the comparison, the longest known one stands for it.
        known = {entry.trial.rung for entry in self._tuned.entries}
        chosen = rung if rung in known else max(known)
        return median(e.outcome.took_s for e in self._tuned.entries if e.trial.rung == chosen)
