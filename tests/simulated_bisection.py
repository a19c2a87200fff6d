"""Searches for a slow commit over the recorded times of real runs."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from armload.analysis.bisection import (
    BisectionGoal,
    FoundCommits,
    Sample,
    WrongEndpointsError,
    search,
)
from armload.core.errors import InconclusiveError

COMMITS = 40
SLOWER = 0.05
RECORDED = Path(__file__).parent / "unit" / "data" / "run_times.json"

Outcome = Literal["right", "wrong", "several", "not confirmed", "nothing", "inconclusive"]


class Line:
    """A history without branches, whose commits are numbers."""

    def suspects(self, bad: str, good: Sequence[str]) -> Sequence[str]:
        last, first = int(bad), max(map(int, good))
        between = range(first + 1, last + 1)
        return [str(each) for each in sorted(between, key=lambda at: -min(at - first, last - at))]

    def parent(self, commit: str) -> str:
        return str(int(commit) - 1)


class Commits:
    """What runs of these commits take, by recorded times from one of them on, one after another.

    Args:
        times_s: recorded, in their order.
        slow: number of the first slow commit.
        slowdown: 0.06 for 6%.
        unbuilt: commits that do not build.
    """

    def __init__(
        self,
        times_s: Sequence[float],
        lots: random.Random,
        *,
        slow: int,
        slowdown: float,
        unbuilt: Sequence[int] = (),
    ) -> None:
        self.runs: Counter[str] = Counter()
        self._times_s = times_s
        self._at = lots.randrange(len(times_s))
        self._slow = slow
        self._slowdown = slowdown
        self._unbuilt = unbuilt

    def sample(self, commit: str) -> Sample:
        if int(commit) in self._unbuilt:
            return Sample(commit=commit, failure="error: not yet", is_built=False)
        self.runs[commit] += 1
        self._at = (self._at + 1) % len(self._times_s)
        factor = 1 + self._slowdown * (int(commit) >= self._slow)
        return Sample(commit=commit, run="run", cost_s=factor * self._times_s[self._at])


@dataclass(frozen=True, kw_only=True)
class Searched:
    """How a simulated search ended.

    Attributes:
        found: none where it ended with an error.
        runs: that it made.
    """

    outcome: Outcome
    runs: int
    found: FoundCommits | None = None


def searched(times_s: Sequence[float], number: int, slowdown: float) -> Searched:
    """Search once; the first slow commit is drawn by lot."""
    lots = random.Random(f"{number} {slowdown}")
    slow = lots.randint(1, COMMITS)
    commits = Commits(times_s, lots, slow=slow, slowdown=slowdown)
    wanted = BisectionGoal(good="0", bad=str(COMMITS), slower=SLOWER)
    try:
        found = search(wanted, Line(), commits.sample, seed=str(number))
    except WrongEndpointsError:
        return Searched(outcome="nothing", runs=commits.runs.total())
    except InconclusiveError:
        return Searched(outcome="inconclusive", runs=commits.runs.total())
    outcome: Outcome = "right" if found.commits == (str(slow),) else "wrong"
    if len(found.commits) > 1:
        outcome = "several"
    elif outcome == "right" and not found.is_confirmed:
        outcome = "not confirmed"
    return Searched(outcome=outcome, runs=found.runs, found=found)


def recorded_times_s(share: float = 1) -> list[float]:
    """Return the medians of real runs' times per token, one after another.

    They were made on a busy machine. Other boards are quieter.

    Args:
        share: of their variation that is left, on a logarithmic scale.
    """
    times_s: list[float] = json.loads(RECORDED.read_text(encoding="utf-8"))["token_s"]
    return [each**share for each in times_s]
