"""Which commit made a program slower, or wrong: what to run next, and what the runs say.

A speed is judged by pairs of runs that follow on one another, in an order drawn by lot, so that a
board that warms up, or whatever else changes with time, favours neither. Only the sign of a pair's
difference counts, and a confidence sequence says how many signs are enough:
no assumption about the noise is needed, and one may look after every pair.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, Protocol

from armload.analysis.confidence_sequence import FEWEST_FIGURES, decide, ratio_of_pairs
from armload.analysis.ratios import as_long, times
from armload.analysis.statistics import CONFIDENCE, Ratio
from armload.core.errors import InconclusiveError, UsageError
from armload.core.values import Value

MOST_PAIRS = 80
"""Of one decision."""

FEWEST_RATIOS = 10
"""Pairs from which the result's interval is computed, at least."""

Effect = Literal["slower", "text differs", "fails"]
"""What the first bad commit did."""


class Sample(Value):
    """What became of one run of a commit.

    Attributes:
        run: its id; empty where there is none.
        cost_s: seconds per token; none where nothing was timed.
        text_sha256: of what was written.
        failure: why the commit does not build, or how its run ended; else empty.
        is_built: there is a program.
    """

    commit: str
    run: str = ""
    cost_s: float | None = None
    text_sha256: str = ""
    failure: str = ""
    is_built: bool = True


class JudgedCommit(Value):
    """What was found out about one commit.

    Attributes:
        suspects: how many commits could still be the first bad one, before.
        pairs: of runs that counted.
        ratio: its time over that of the good commit, as far as they ran as a pair; else none.
        reason: why it was skipped.
    """

    commit: str
    verdict: Literal["good", "bad", "skipped"]
    suspects: int
    pairs: int = 0
    ratio: float | None = None
    reason: str = ""


class FoundCommits(Value):
    """The end of a search.

    Attributes:
        effect: of the first bad commit.
        commits: it alone; or all that it could be, where those between were skipped.
        parent: the commit before it; empty where there are several commits.
        ratio: its time per token over its parent's; none where speed is not the question.
        parent_s, commit_s: the medians of both.
        is_confirmed: that it is slower than its parent by enough was tested beyond its search.
        endpoints: the bad commit's time over the good one's; none where speed is not the question.
        judged: the commits that were tried, in this order.
        runs: how many were made.
        error: the probability that a decision was wrong is at most this for the whole search.
    """

    effect: Effect
    commits: tuple[str, ...]
    parent: str = ""
    ratio: Ratio | None = None
    parent_s: float | None = None
    commit_s: float | None = None
    is_confirmed: bool = True
    endpoints: Ratio | None = None
    judged: tuple[JudgedCommit, ...]
    runs: int
    error: float | None


class BisectionGoal(Value):
    """What is looked for.

    Attributes:
        slower: the smallest slowdown that counts, 0.05 for 5%.
        text_differs: look for another text instead.
        error: the probability of a wrong decision in the whole search.
    """

    good: str
    bad: str
    slower: float
    text_differs: bool = False
    error: float = 1 - CONFIDENCE


class WrongEndpointsError(UsageError):
    """The good or the bad commit is not what it is called; there is nothing to search for."""


class History(Protocol):
    """The commits between the two."""

    def suspects(self, bad: str, good: Sequence[str]) -> Sequence[str]:
        """Return those that could be the first bad one, ``bad`` included, the best to try first."""
        ...

    def parent(self, commit: str) -> str: ...


RunCommit = Callable[[str], Sample]
"""Runs a commit once more, or says why it cannot be built."""


def search(
    wanted: BisectionGoal,
    history: History,
    run: RunCommit,
    *,
    seed: str,
    said: Callable[[JudgedCommit], None] = lambda _: None,
) -> FoundCommits:
    """Find the first bad commit, by the order of ``git bisect``.

    With the same seed and samples it always asks for the same ones.

    Args:
        seed: of the order in which the two of a pair run.
        said: is told what was found out about each commit.

    Raises:
        WrongEndpointsError: the good or the bad commit does not build, the good one's run fails, or
            the bad one is not bad.
        InconclusiveError: the runs differ too much to tell the two apart.
    """
    return _Search(wanted, history, run, random.Random(seed), said).run()  # noqa: S311 - no secret


class _Search:
    def __init__(
        self,
        wanted: BisectionGoal,
        history: History,
        run: RunCommit,
        lots: random.Random,
        said: Callable[[JudgedCommit], None],
    ) -> None:
        self._wanted = wanted
        self._history = history
        self._run = run
        self._lots = lots
        self._said = said
        self._judged: list[JudgedCommit] = []
        self._error_left = wanted.error
        self._runs = 0
        self._endpoints: list[tuple[float, float]] = []
        self._text = ""

    def run(self) -> FoundCommits:
        suspects = self._history.suspects(self._wanted.bad, [self._wanted.good])
        effect = self._check_ends(len(suspects))
        bad, good, skipped = self._wanted.bad, [self._wanted.good], set[str]()
        while True:
            left = [each for each in suspects if each != bad and each not in skipped]
            if not left:
                break
            commit = left[self._place(len(left)) if skipped & set(suspects) else 0]
            judged = self._judge(commit, effect, len(suspects))
            self._judged.append(judged)
            self._said(judged)
            if judged.verdict == "skipped":
                skipped.add(commit)
                continue
            if judged.verdict == "bad":
                bad = commit
            else:
                good.append(commit)
            suspects = self._history.suspects(bad, good)
        return self._found(effect, bad, [each for each in suspects if each != bad])

    def _place(self, count: int) -> int:
        # Commits that do not build are neighbours; git bisect moves away from them in this way.
        return int(count * self._lots.random() ** 1.5)

    def _check_ends(self, suspects: int) -> Effect:
        good = self._built("good", self._wanted.good)
        if good.failure:
            raise WrongEndpointsError(
                f"The good commit {good.commit[:12]} fails: {good.failure}",
                "Choose another one with --good, or correct the options of the run.",
            )
        bad = self._built("bad", self._wanted.bad)
        if bad.failure:
            return "fails"
        if self._wanted.text_differs:
            self._check_texts(good, bad)
            return "text differs"
        self._check_speed(suspects)
        return "slower"

    def _built(self, name: str, commit: str) -> Sample:
        sample = self._sample(commit)
        if not sample.is_built:
            raise WrongEndpointsError(
                f"The {name} commit {commit[:12]} cannot be built: {sample.failure}",
                f"Choose a commit near it that builds, with --{name}.",
            )
        return sample

    def _check_texts(self, good: Sample, bad: Sample) -> None:
        again = self._sample(self._wanted.good)
        if again.text_sha256 != good.text_sha256:
            raise WrongEndpointsError(
                "The good commit writes a different text on each run.",
                "Use --temperature 0, or a fixed --seed.",
            )
        if bad.text_sha256 == good.text_sha256:
            raise WrongEndpointsError(
                "The bad commit writes the same text as the good one.",
                "Generate more tokens with -n, or use another prompt.",
            )
        self._text = good.text_sha256

    def _check_speed(self, suspects: int) -> None:
        wanted = self._wanted
        error, half = self._share_of_error(suspects), self._half_wanted
        found = None
        for _ in self._pairs(wanted.good, wanted.bad, self._endpoints):
            logs = [math.log(b / a) for a, b in self._endpoints]
            found = decide([each - half for each in logs], error)
            if found == "above":
                return
            if found == "below":
                break
        if found is None:
            raise self._undecided()
        ratio = ratio_of_pairs(self._endpoints)
        if ratio.high < 1:
            raise WrongEndpointsError(
                f"The bad commit is faster than the good one: it takes {times(ratio.ratio)} as "
                "long.",
                "Swap --good and --bad.",
            )
        raise WrongEndpointsError(
            f"The bad commit is not slower than the good one by {wanted.slower:.0%}: it "
            f"takes {as_long(ratio)}.",
            "Use the board, model and options with which you saw it, or a smaller --slower.",
        )

    def _undecided(self) -> InconclusiveError:
        known = ""
        if len(self._endpoints) >= FEWEST_FIGURES:
            ratio = ratio_of_pairs(self._endpoints)
            known = f": it takes {as_long(ratio)}"
        return InconclusiveError(
            f"After {len(self._endpoints)} pairs of runs, it is still unclear whether the bad "
            f"commit is slower than the good one by {self._wanted.slower:.0%}{known}.",
            "Stop other programs on the board, use longer runs (-n) or another --slower, and "
            "repeat the command.",
        )

    def _judge(self, commit: str, effect: Effect, suspects: int) -> JudgedCommit:
        if effect != "slower":
            return self._judge_once(commit, effect, suspects)
        error = self._share_of_error(suspects)
        half = median(math.log(b / a) for a, b in self._endpoints) / 2
        references: Mapping[str, list[tuple[float, float]]] = {
            self._wanted.good: [],
            self._wanted.bad: [],
        }
        failure = ""
        for number in range(MOST_PAIRS):
            reference = self._wanted.bad if number % 2 else self._wanted.good
            first, second = self._pair(reference, commit)
            if second.failure:
                failure = second.failure
                break
            references[reference] += _costs(first, second)
            above_good, above_bad = (
                [math.log(b / a) for a, b in pairs] for pairs in references.values()
            )
            shifts = [each - half for each in above_good] + [each + half for each in above_bad]
            found = decide(shifts, error)
            if found is not None:
                return JudgedCommit(
                    commit=commit,
                    verdict="bad" if found == "above" else "good",
                    suspects=suspects,
                    pairs=len(shifts),
                    ratio=math.exp(median(above_good)) if above_good else None,
                )
        return JudgedCommit(
            commit=commit,
            verdict="skipped",
            suspects=suspects,
            reason=failure or f"undecided after {MOST_PAIRS} pairs of runs",
        )

    def _judge_once(self, commit: str, effect: Effect, suspects: int) -> JudgedCommit:
        sample = self._sample(commit)
        verdict: Literal["good", "bad", "skipped"]
        if not sample.is_built or (sample.failure and effect != "fails"):
            return JudgedCommit(
                commit=commit, verdict="skipped", suspects=suspects, reason=sample.failure
            )
        if effect == "fails":
            verdict = "bad" if sample.failure else "good"
        else:
            verdict = "good" if sample.text_sha256 == self._text else "bad"
        return JudgedCommit(commit=commit, verdict=verdict, suspects=suspects)

    def _found(self, effect: Effect, bad: str, skipped: Sequence[str]) -> FoundCommits:
        result = FoundCommits(
            effect=effect,
            commits=(bad, *skipped),
            parent="" if skipped else self._history.parent(bad),
            endpoints=ratio_of_pairs(self._endpoints) if effect == "slower" else None,
            judged=tuple(self._judged),
            runs=self._runs,
            error=self._wanted.error if effect == "slower" else None,
        )
        if effect != "slower" or skipped:
            return result
        ends = (self._wanted.good, self._wanted.bad)
        pairs = self._endpoints if (result.parent, bad) == ends else []
        decided: str | None = "above" if pairs else None
        error = self._error_left
        more = self._pairs(result.parent, bad, pairs) if len(pairs) < FEWEST_RATIOS else ()
        for _ in more:
            shifts = [math.log(b / a) - self._half_wanted for a, b in pairs]
            decided = decided or decide(shifts, error)
            if decided and len(pairs) >= FEWEST_RATIOS:
                break
        return result.model_copy(
            update={
                "ratio": ratio_of_pairs(pairs) if pairs else None,
                "parent_s": median(a for a, _ in pairs) if pairs else None,
                "commit_s": median(b for _, b in pairs) if pairs else None,
                "is_confirmed": decided == "above",
                "runs": self._runs,
            }
        )

    @property
    def _half_wanted(self) -> float:
        return math.log1p(self._wanted.slower) / 2

    def _share_of_error(self, suspects: int) -> float:
        """Take a decision's share of the error; one is left for the test of the result."""
        decisions = math.ceil(math.log2(max(1, suspects))) + 1
        share = self._error_left / (decisions + 1)
        self._error_left -= share
        return share

    def _pairs(self, one: str, other: str, counted: list[tuple[float, float]]) -> Iterator[None]:
        for _ in range(MOST_PAIRS):
            first, second = self._pair(one, other)
            counted += _costs(first, second)
            yield

    def _pair(self, one: str, other: str) -> tuple[Sample, Sample]:
        if self._lots.random() < 0.5:
            first = self._sample(one)
            return first, self._sample(other)
        second = self._sample(other)
        return (second if second.failure else self._sample(one)), second

    def _sample(self, commit: str) -> Sample:
        sample = self._run(commit)
        self._runs += bool(sample.run)
        return sample


def _costs(one: Sample, other: Sample) -> list[tuple[float, float]]:
    # A run of a good commit that fails once costs its pair, not the search.
    if one.failure or other.failure or one.cost_s is None or other.cost_s is None:
        return []
    return [(one.cost_s, other.cost_s)]
