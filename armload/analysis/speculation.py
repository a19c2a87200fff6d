"""Speculation: what it gave, and whether it pays beside the same run without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from armload.analysis.sanity import Departure
from armload.analysis.statistics import Ratio, ratio_of_runs
from armload.core.values import Value


class SpeculationResult(Value):
    """What the guesses of a run gave.

    Attributes:
        passes: of the main model over its weights, after the prompt's.
        tokens: that these gave.
        tokens_per_pass: the mean; 1 without speculation.
        speculated_tokens: guesses that the main model verified.
        accepted_tokens: of these, those that it would have written itself.
        acceptance_rate: their share; none where nothing was guessed.
        s_per_token: the mean, with the draft model's time.
        draft_s: time that a draft model took, of all these passes.
    """

    passes: int
    tokens: int
    tokens_per_pass: float
    speculated_tokens: int
    accepted_tokens: int
    acceptance_rate: float | None
    s_per_token: float
    draft_s: float


class WithoutSpeculation(Value):
    """A run with speculation beside runs of the same without.

    Attributes:
        runs: their ids.
        valid: whether they are valid.
        text: how the text compares with that of the latest of them.
        s_per_token: of each of them, the mean.
        ratio: how many times as long a token takes with speculation; below 1 it gains.
    """

    runs: tuple[str, ...]
    valid: bool
    text: Departure
    s_per_token: tuple[float, ...]
    ratio: Ratio | None

    @property
    def outcome(self) -> Literal["gains", "loses", "unclear"]:
        """Whether speculation pays, as far as the interval of the ratio tells."""
        if self.ratio is None or self.ratio.low <= 1 <= self.ratio.high:
            return "unclear"
        return "gains" if self.ratio.high < 1 else "loses"


def compare_with_baseline(
    text: Departure,
    runs: Sequence[str],
    *,
    valid: bool,
    baseline_s: Sequence[float],
    speculating_s: Sequence[float],
) -> WithoutSpeculation:
    """Compare runs with speculation with runs without it.

    Args:
        text: how the texts compare.
        runs: ids of those without.
        valid: whether these are valid.
        baseline_s: their seconds per token, the mean of each run.
        speculating_s: the same of those with speculation.
    """
    return WithoutSpeculation(
        runs=tuple(runs),
        valid=valid,
        text=text,
        s_per_token=tuple(baseline_s),
        ratio=ratio_of_runs(baseline_s, speculating_s) if baseline_s and speculating_s else None,
    )
