"""The decisions of a search for the highest rate that a service sustains.

A rate counts as sustained if its backlog does not grow, and the 90th percentile of how much of its
objective each request takes is surely not above 1. A descent begins with a rate and lowers it as
long as it will not be shown to be sustained in the time that is left. It is one test: requests at
the higher rates count for the lower ones, since at those even fewer would be late. From a rate that
is sustained another descent begins above it. Its error is no additional one as long as none before
it had to lower its rate: then all of their rates were low enough to be right (a fixed sequence of
tests). After one that had to, the next gets a part of the probability that is left. Which rates are
tried follows from a model of a queue; what is said of them does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from armload.analysis.load.evidence import Evidence, judged_with
from armload.analysis.load.queue_model import MISSED_UP_TO, Counted, QueueModel, SaturatedRun
from armload.analysis.load.records import RateVerdict
from armload.analysis.statistics import CONFIDENCE

BUDGET_SERVICE_TIMES = 3000.0
"""In which a search ends, if no time is given."""

_PROBED, _PROBED_SHARE = 600.0, 0.1
"""Requests of the closed loop, and the share of the search's time that it may take: more would show
little more than how fast a service is, and fewer not even that."""

_LEVELS = (0.8, 0.15, 0.05)
"""Of the probability of error, for the first descents, and after each that had to lower its rate
before one was sustained."""

_LOOKS: tuple[tuple[float, float], ...] = (
    (0.12, 0.03),
    (0.25, 0.1),
    (0.5, 0.2),
    (0.75, 0.35),
    (1.0, 0.7),
)
"""At which share of a descent's time its rate is judged, with which share of its probability of
error. They add up to more than 1, since each look has the requests of those before: of means of
independent samples one or more err with 0.95 of the whole probability."""

_HOPES = 0.7
"""Standard errors of luck that a rate may need to be shown to be sustained, or is given up."""

_SPENT = 0.7
"""Share of the time that is left which a descent may take while no rate is sustained."""

_SAFE, _HOPED = 1.0, 0.5
"""Standard errors that a rate is to be better than one that is shown in half of the cases: while no
rate is sustained, and after that."""

_HIGHER, _LEAST_HIGHER, _LOWER, _FAILED_LOWER = 1.04, 1.03, 0.96, 0.88
_HOPEFUL = 0.5
_BELOW_REFUTED = 0.97
_FEWEST_REQUESTS = 20.0
_LEAST_LEFT = 0.05


def probed_per_client(clients: int, service_times: float) -> int:
    """Return how many requests each client sends in the closed loop of a search of that length."""
    return max(1, int(min(_PROBED / clients, _PROBED_SHARE * service_times)))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A rate to be tried.

    Attributes:
        warmup_s: excluded from the figures.
        looks: when it is judged, in seconds since its beginning, and with which probability of
            error; at the last it ends.
    """

    rate: float
    warmup_s: float
    looks: tuple[tuple[float, float], ...]

    @property
    def length_s(self) -> float:
        """With its warm-up, at most."""
        return self.looks[-1][0]

    def looks_s(self) -> tuple[float, ...]:
        return tuple(at_s for at_s, _ in self.looks)


class RateSearch:
    """A search under way.

    Attributes:
        sustained: the highest rate that is; none before there is one.
        refuted: the lowest that is not; at first the upper bound of the saturated rate.

    Args:
        budget_s: in which it ends.
    """

    def __init__(self, loop: SaturatedRun, budget_s: float) -> None:
        self._model = QueueModel(loop)
        self._budget_s = self._left_s = budget_s
        self._lowered = 0
        self.sustained: float | None = None
        self._below = math.inf
        self._begin_descent()
        self.refuted = loop.per_s.high

    def _begin_descent(self) -> None:
        self._descent_s = self._left_s * self._spent
        self._gone_s = 0.0
        self._above: list[Evidence] = []

    @property
    def _spent(self) -> float:
        return _SPENT if self.sustained is None and self._lowered == 0 else 1.0

    def next(self) -> Attempt | None:
        """Return the rate to try next; none at the end."""
        while self._left_s > max(0.0, _LEAST_LEFT * self._budget_s) and self._lowered < len(
            _LEVELS
        ):
            level = _LEVELS[self._lowered] * (1 - CONFIDENCE)
            rate = self._rate(_LOOKS[-1][1] * level)
            if rate is not None:
                return self._attempt(rate, level)
            if not self._above:
                break
            self._lowered += 1
            self._begin_descent()
        return None

    def _rate(self, level: float) -> float | None:
        luck = _SAFE if self.sustained is None else _HOPED
        left_s = self._descent_s - self._gone_s
        rate = self._model.highest_rate(left_s, level, luck, _sum(self._above))
        if rate is None and self._above:
            return None
        rate = rate or 0.0
        if self.sustained is not None and not self._above:
            rate = max(rate, _HIGHER * self.sustained)
        elif rate == 0:
            rate = _HOPEFUL * self._model.per_s
        rate = float(f"{min(rate, self._below, _BELOW_REFUTED * self.refuted):.3g}")
        is_higher = self.sustained is None or rate > _LEAST_HIGHER * self.sustained
        measured_s = left_s - self._model.warmup_s(rate, left_s)
        return rate if is_higher and rate * measured_s >= _FEWEST_REQUESTS else None

    def _attempt(self, rate: float, level: float) -> Attempt:
        left_s = self._descent_s - self._gone_s
        warmup_s = self._model.warmup_s(rate, left_s)
        looks = [(share * self._descent_s - self._gone_s, part * level) for share, part in _LOOKS]
        return Attempt(
            rate=rate,
            warmup_s=warmup_s,
            looks=(
                *(each for each in looks[:-1] if rate * (each[0] - warmup_s) > _FEWEST_REQUESTS),
                (left_s, looks[-1][1]),
            ),
        )

    def look(self, attempt: Attempt, number: int, evidence: Evidence) -> RateVerdict | None:
        """Judge a rate; none if it has to go on."""
        at_s, level = attempt.looks[number]
        verdict = judged_with(self._above, evidence, level)
        if verdict != "undecided":
            return verdict
        if number == len(attempt.looks) - 1:
            return "undecided"
        is_promising = self._is_promising(attempt, at_s, evidence)
        return None if is_promising or not self._has_other(at_s, evidence) else "undecided"

    def done(
        self, attempt: Attempt, verdict: RateVerdict, evidence: Evidence | None, spent_s: float
    ) -> None:
        """Take what a rate has shown, and how long it took."""
        self._left_s -= spent_s
        self._gone_s += spent_s
        if evidence is not None:
            self._model.learn(attempt.rate, evidence.margins_s, evidence.steady.most_per_s)
        if verdict == "not sustained":
            self.refuted = min(self.refuted, attempt.rate)
        if verdict == "sustained":
            self.sustained = attempt.rate
            self._lowered += bool(self._above)
            self._below = math.inf
            self._begin_descent()
        else:
            self._below = (_FAILED_LOWER if evidence is None else _LOWER) * attempt.rate
            if evidence is not None:
                self._above.append(evidence)

    def _is_promising(self, attempt: Attempt, at_s: float, evidence: Evidence) -> bool:
        """Return whether a rate will be shown to be sustained if it goes on as until now."""
        end_s, level = attempt.looks[-1]
        own = evidence.counted
        times = (end_s - attempt.warmup_s) / max(at_s - attempt.warmup_s, 1e-9)
        before = _sum(self._above)
        expected = Counted(
            requests=before.requests + times * own.requests,
            missed=before.missed + times * own.missed,
            independent=before.independent + times * own.independent,
        )
        chance = self._model.error(attempt.rate, own.requests) / MISSED_UP_TO
        lucky = expected.model_copy(update={"missed": expected.missed * math.exp(-_HOPES * chance)})
        return self._model.shows(attempt.rate, lucky, level, 0.0)

    def _has_other(self, at_s: float, evidence: Evidence) -> bool:
        """Return whether another rate would be shown to be sustained from now on."""
        luck = _SAFE if self.sustained is None else _HOPED
        levels = [each * (1 - CONFIDENCE) * _LOOKS[-1][1] for each in _LEVELS]
        here_s = self._descent_s - self._gone_s - at_s
        later_s = self._left_s - at_s
        above = _sum([*self._above, evidence])
        found = self._model.highest_rate(here_s, levels[self._lowered], luck, above)
        if found is None and self._lowered + 1 < len(levels):
            found = self._model.highest_rate(later_s, levels[self._lowered + 1], luck, Counted())
        return found is not None


def _sum(every: Sequence[Evidence]) -> Counted:
    counts = [each.counted for each in every]
    return Counted(
        requests=sum(each.requests for each in counts),
        missed=sum(each.missed for each in counts),
        independent=sum(each.independent for each in counts),
    )
