"""Runs of one thing, taken together: what their repeats say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from armload.bench.run import Run
from armload.bench.statistics import FEWEST_RUNS, interval_of_runs, runs_to_know
from armload.core.values import Value

KNOWN_WITHIN = 0.05
"""A median over repeats that is not known better than this is too uncertain to compare."""


class Estimate(Value):
    """A median over runs.

    Attributes:
        median: of the runs' figures.
        low, high: its 95 % confidence interval; none for fewer than four runs.
    """

    median: float
    low: float | None = None
    high: float | None = None


class Together(Value):
    """What repeats say together.

    Figures come from the valid runs; where there is none, from those that came to their end.

    Attributes:
        runs: ids of all of them.
        valid: how many are valid.
        ended: how many came to their end.
        prefill_tps, decode_tps, ttft_s, token_p50_s: over the runs; none where no run has it.
        max_rss_bytes: the largest of all.
        doubts: why these figures are not to be trusted, in words; the runs' own reasons first.
    """

    runs: tuple[str, ...]
    valid: int
    ended: int
    prefill_tps: Estimate | None = None
    decode_tps: Estimate | None = None
    ttft_s: Estimate | None = None
    token_p50_s: Estimate | None = None
    max_rss_bytes: int | None = None
    doubts: tuple[str, ...] = ()


def together(runs: Sequence[Run]) -> Together:
    """Take repeats of one thing together; warm-ups do not belong to them."""
    ended = [run for run in runs if run.exit.status == 0]
    valid = [run for run in ended if run.verdict.valid]
    counted = valid or ended
    decode = _figures(counted, lambda run: run.summary.decode_tps)
    reasons = dict.fromkeys(reason for run in runs for reason in run.verdict.reasons)
    return Together(
        runs=tuple(run.id for run in runs),
        valid=len(valid),
        ended=len(ended),
        prefill_tps=estimate(_figures(counted, lambda run: run.summary.prefill_tps)),
        decode_tps=estimate(decode),
        ttft_s=estimate(_figures(counted, lambda run: run.summary.ttft_s)),
        token_p50_s=estimate(
            _figures(counted, lambda run: run.summary.token_s.p50 if run.summary.token_s else None)
        ),
        max_rss_bytes=max((run.memory.max_rss_bytes for run in runs if run.memory), default=None),
        doubts=(*reasons, *_too_few(decode)),
    )


def estimate(figures: Sequence[float]) -> Estimate | None:
    """Return the median of one figure per run, with its interval; none of no figures."""
    if not figures:
        return None
    interval = interval_of_runs(figures)
    return Estimate(
        median=median(figures),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
    )


def _figures(runs: Sequence[Run], figure: Callable[[Run], float | None]) -> list[float]:
    return [value for value in map(figure, runs) if value is not None]


def _too_few(decode_tps: Sequence[float]) -> list[str]:
    if len(decode_tps) < FEWEST_RUNS:
        return []  # nobody asked for an interval
    needed = runs_to_know(decode_tps, KNOWN_WITHIN)
    if needed <= len(decode_tps):
        return []
    return [
        (
            f"Too few repeats for their spread: the median of the decode rate is not known within "
            f"{KNOWN_WITHIN:.0%}. {needed - len(decode_tps)} more would do."
        )
    ]
