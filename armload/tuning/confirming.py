"""The end of a search: the leader beside the defaults, in runs that nothing else slowed down.

Their time is reserved where the search has a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from armload.analysis.statistics import FEWEST_RUNS, ratio_of_runs
from armload.core.errors import RunError
from armload.core.json_lines import append_lines
from armload.core.values import Value, counted, format_duration
from armload.engines.job import SweepPoint
from armload.tuning.record import Confirmation, TuningFolder
from armload.tuning.space import Setting
from armload.tuning.trial import Outcome, Trial

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


CONFIRMATION_FILE = "confirmation.jsonl"

MOST_PAIRS = 3 * FEWEST_RUNS
"""Of one command, those with a disturbed run included; then the board is too busy to compare on."""

ConfirmedSide = Literal["defaults", "leader"]
_SIDES: tuple[ConfirmedSide, ConfirmedSide] = ("defaults", "leader")


class Compared(Value):
    """One run of a side.

    Attributes:
        leader: that is compared with the defaults.
        pair: number of the two runs, one of each side, that follow on one another.
        disturbance: what else slowed it down; then its pair does not count.
    """

    leader: Setting
    pair: int
    side: ConfirmedSide
    cost: float
    disturbance: str = ""
    evidence: tuple[str, ...]


class UnconfirmedError(RunError):
    """The leader did not run as it did in the search.

    Attributes:
        outcome: what became of it.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"The best configuration failed when it was run again: {outcome.reason}")
        self.outcome = outcome


def confirm(
    measure: Callable[[Setting, SweepPoint], Outcome],
    leader: Setting,
    defaults: Setting,
    tuned: TuningFolder,
    said: Callable[[Compared], None],
) -> Confirmation:
    """Run both sides in turn, until there are as many undisturbed pairs as an interval takes.

    Whole pairs that an interrupted command has made of the same leader are not made again.

    Args:
        measure: a setting once, on the highest rung.
        said: is given each run.
    """
    earlier = runs_compared(tuned)
    pairs = _whole_pairs(each for each in earlier if each.leader.key == leader.key)
    number = max((each.pair for each in earlier), default=-1)
    for _ in range(MOST_PAIRS):
        if len(_undisturbed(pairs)) >= FEWEST_RUNS:
            break
        number += 1
        pair: dict[ConfirmedSide, Compared] = {}
        # What drifts in one direction meets both sides alike: A B, B A, A B, ...
        for side in _SIDES if len(pairs) % 2 == 0 else _SIDES[::-1]:
            setting = leader if side == "leader" else defaults
            place = SweepPoint(
                sweep=f"{tuned.tuning.id}-comparison",
                cell=int(side == "leader"),
                round=2 * number + len(pair),
            )
            outcome = measure(setting, place)
            if outcome.status != "measured" or outcome.cost is None:
                if side == "leader":
                    raise UnconfirmedError(outcome)
                raise RunError(
                    f"The defaults failed when they were run again: {outcome.reason}",
                    "Run the command again to repeat the comparison.",
                )
            pair[side] = Compared(
                leader=leader,
                pair=number,
                side=side,
                cost=outcome.cost,
                disturbance=outcome.disturbance,
                evidence=outcome.evidence,
            )
            append_lines(tuned.folder / CONFIRMATION_FILE, [pair[side]])
            said(pair[side])
        pairs.append(pair)
    counted = _undisturbed(pairs)[:FEWEST_RUNS]
    costs = {side: tuple(pair[side].cost for pair in counted) for side in _SIDES}
    runs = {side: tuple(run for pair in counted for run in pair[side].evidence) for side in _SIDES}
    is_confirmed = len(counted) == FEWEST_RUNS
    speed = ratio_of_runs(costs["leader"], costs["defaults"]) if is_confirmed else None
    every = [run for pair in pairs for run in pair.values()]
    return Confirmation(
        leader=leader,
        defaults_costs=costs["defaults"],
        leader_costs=costs["leader"],
        defaults_runs=runs["defaults"],
        leader_runs=runs["leader"],
        speed=speed,
        is_faster=speed is not None and speed.low > 1,
        runs=len(every),
        disturbances=tuple(each.disturbance for each in every if each.disturbance),
    )


def _whole_pairs(runs: Iterable[Compared]) -> list[dict[ConfirmedSide, Compared]]:
    pairs: dict[int, dict[ConfirmedSide, Compared]] = {}
    for each in runs:
        pairs.setdefault(each.pair, {})[each.side] = each
    return [pair for pair in pairs.values() if len(pair) == len(_SIDES)]


def _undisturbed(
    pairs: Sequence[Mapping[ConfirmedSide, Compared]],
) -> list[Mapping[ConfirmedSide, Compared]]:
    return [pair for pair in pairs if not any(run.disturbance for run in pair.values())]


def runs_compared(tuned: TuningFolder) -> list[Compared]:
    """Return the runs of a search's comparisons so far; none where there was no comparison."""
    return tuned.kind.read_lines(
        tuned.folder / CONFIRMATION_FILE, Compared, "Delete it to run the comparison again."
    )
