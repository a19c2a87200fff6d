"""Boards that are declared identical, but differ by more than their repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from armload.analysis.ratios import times
from armload.analysis.run import Run
from armload.analysis.statistics import CONFIDENCE
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_DRAWS = 4000
_SEED = 20260101


class UnequalBoards(Value):
    """Boards declared identical, and differ.

    Attributes:
        called: what calls them equal: a label with hardware and target, or the id of a sweep that
            they shared.
        slowest, fastest: two of them.
        ratio: how many times as long a token takes on the slowest as on the fastest, over all
            configurations that were run on several of them.
        repeats_ratio: how far repeats on the same board are apart, likewise: the median over
            configurations of the longest over the shortest time.
    """

    called: str
    slowest: str
    fastest: str
    ratio: float
    repeats_ratio: float

    def sentence(self) -> str:
        """Say how far they differ, beside their repeats."""
        return (
            f"{self.slowest} and {self.fastest} are declared identical ({self.called}), but "
            f"{self.slowest} takes {times(self.ratio)} as long per token. Repeats on one "
            f"board differ by {self.repeats_ratio - 1:.1%}."
        )


def unequal_boards(configurations: Sequence[Sequence[Run]]) -> list[UnequalBoards]:
    """Return the groups of boards declared identical that differ by more than their repeats.

    A label, with the same hardware and target, or sharing a sweep declares boards identical.
    Where they are, each run of a configuration could as well have come from another of them:
    the runs are exchanged at random, and boards differ if so large a difference is rarer than 5%
    (a permutation test, stratified by configuration).

    Args:
        configurations: the valid runs of each, on all boards.
    """
    found: dict[frozenset[str], UnequalBoards] = {}
    for called, boards in _called_equal(configurations).items():
        strata = [
            times
            for runs in configurations
            if len(times := _times_s(runs, boards)) > 1
            and any(len(each) > 1 for each in times.values())
        ]
        known = frozenset(board for times in strata for board in times)
        if len(known) > 1 and known not in found:
            unequal = _compared(called, strata, sorted(known))
            if unequal is not None:
                found[known] = unequal
    return list(found.values())


def equalities(run: Run) -> tuple[str, ...]:
    """Return what calls a run's board equal to those of other runs that have the same."""
    board = run.board
    labelled = (
        " ".join(filter(None, (f"@{label}", board.hardware, board.target)))
        for label in board.labels
    )
    # An evaluation, whose runs have no such plan, may be shared by boards of any kind.
    shared = (run.place.sweep,) if run.place is not None and run.plan is not None else ()
    return (*labelled, *shared)


def _called_equal(configurations: Sequence[Sequence[Run]]) -> Mapping[str, set[str]]:
    groups: dict[str, set[str]] = {}
    for run in (run for runs in configurations for run in runs):
        for called in equalities(run):
            groups.setdefault(called, set()).add(run.board.name)
    return {called: boards for called, boards in groups.items() if len(boards) > 1}


def _times_s(runs: Sequence[Run], boards: set[str]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for run in runs:
        if run.board.name in boards and (median_s := run.summary.median_s):
            times.setdefault(run.board.name, []).append(median_s)
    return times


def _compared(
    called: str, strata: Sequence[Mapping[str, Sequence[float]]], boards: Sequence[str]
) -> UnequalBoards | None:
    import numpy as np

    generator = np.random.default_rng(_SEED)
    numbers = {board: number for number, board in enumerate(boards)}
    observed, drawn = np.zeros((1, len(boards))), np.zeros((_DRAWS, len(boards)))
    counts = np.zeros(len(boards))
    for stratum in strata:
        owners = [numbers[board] for board, its in stratum.items() for _ in its]
        logs = np.log([time_s for its in stratum.values() for time_s in its])
        logs -= logs.mean()
        observed += _levels(logs[np.newaxis], owners, len(boards))
        drawn += _levels(
            generator.permuted(np.tile(logs, (_DRAWS, 1)), axis=1), owners, len(boards)
        )
        counts[sorted(set(owners))] += 1
    levels = (observed / counts)[0]
    spread, by_chance = np.ptp(levels), np.ptp(drawn / counts, axis=1)
    # The runs as they are count as one of the draws.
    chance = (1 + np.count_nonzero(by_chance >= spread - 1e-12)) / (1 + _DRAWS)
    if chance > 1 - CONFIDENCE:
        return None
    repeats = [max(its) / min(its) for times in strata for its in times.values() if len(its) > 1]
    return UnequalBoards(
        called=called,
        slowest=boards[int(levels.argmax())],
        fastest=boards[int(levels.argmin())],
        ratio=math.exp(spread),
        repeats_ratio=median(repeats),
    )


def _levels(logs: Floats, owners: Sequence[int], boards: int) -> Floats:
    """Return each board's mean in every draw; 0 for a board without a run there."""
    import numpy as np

    owner = np.asarray(owners)
    levels = np.zeros((len(logs), boards))
    for board in sorted(set(owners)):
        levels[:, board] = logs[:, owner == board].mean(axis=1)
    return levels
