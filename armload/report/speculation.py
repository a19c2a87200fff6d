"""Speculation in words: what the guesses gave, if they pay, and if the text stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from armload.analysis.run import Run
from armload.analysis.sanity import departure
from armload.analysis.speculation import (
    SpeculationResult,
    WithoutSpeculation,
    compare_with_baseline,
)
from armload.core.values import Value
from armload.report import formatting as words
from armload.report.cells import Cell

_OUTCOMES = {
    "gains": "Speculation gains",
    "loses": "Speculation loses",
    "unclear": "Speculation makes no clear difference",
}


_NOT_VALID = "Speculation cannot be judged from runs that are not valid"


class SpeculationOfCell(Value):
    """What the guesses of a cell's runs gave.

    Attributes:
        tokens_per_pass, acceptance_rate, s_per_token: medians over the runs that count.
        without: how they compare with the cell that differs in nothing else; none without one.
    """

    tokens_per_pass: float
    acceptance_rate: float | None
    s_per_token: float
    without: WithoutSpeculation | None


def speculation_line(run: Run) -> str:
    """Say what guessed tokens gave; nothing where none were to be guessed."""
    found = run.summary.speculation
    if found is None:
        return ""
    drafted = f"{found.speculated_tokens} drafted tokens"
    parts = [
        f"{found.tokens_per_pass:.2f} tokens per pass",
        "no token was drafted"
        if found.acceptance_rate is None
        else f"{found.acceptance_rate:.0%} of {drafted} accepted",
        f"{words.seconds(found.s_per_token)} per token",
    ]
    if found.draft_s:
        parts[-1] += f", {found.draft_s / (found.s_per_token * found.tokens):.0%} of it drafting"
    return ", ".join(parts)


def gain_lines(run: Run) -> tuple[str, ...]:
    """Compare a run that speculates with those without; nothing for any other run."""
    found = run.summary.speculation
    if found is None or run.plan is None:
        return ()
    if run.without_speculation is None:
        return (
            (
                "There is no run without speculation to compare with. Use --speculate "
                f"none,{run.plan.speculate}, or run it with --speculate none first."
            ),
        )
    return _gain(run.without_speculation, found.s_per_token, valid=run.verdict.valid)


def speculation_of(cell: Cell, cells: Sequence[Cell]) -> SpeculationOfCell | None:
    """Return what guesses gave in a cell, beside the one of the cells that differs in them alone.

    None for a cell without guesses, or without figures.
    """
    figures = [each for run in cell.counted if (each := run.summary.speculation) is not None]
    if not figures:
        return None
    rates = [each.acceptance_rate for each in figures if each.acceptance_rate is not None]
    baseline = next((each for each in cells if _is_the_same_without(cell, each)), None)
    return SpeculationOfCell(
        tokens_per_pass=median(each.tokens_per_pass for each in figures),
        acceptance_rate=median(rates) if rates else None,
        s_per_token=median(each.s_per_token for each in figures),
        without=_beside(cell, figures, baseline) if baseline else None,
    )


def gains(cells: Mapping[str, Cell]) -> list[str]:
    """Say of each cell that speculates what that gave; the cells are given by their names."""
    every = list(cells.values())
    found = {name: (cell, speculation_of(cell, every)) for name, cell in cells.items()}
    return [
        f"{name}: {' '.join(_gain(its.without, its.s_per_token, valid=cell.is_valid))}"
        for name, (cell, its) in found.items()
        if its is not None and its.without is not None
    ]


def _gain(found: WithoutSpeculation, s_per_token: float, *, valid: bool) -> tuple[str, ...]:
    text = found.text.sentence
    opening = _OUTCOMES[found.outcome] if valid and found.valid else _NOT_VALID
    ratio = found.ratio
    if ratio is None:
        return (text,)
    slower = ratio.ratio >= 1
    how = f"{max(ratio.ratio, 1 / ratio.ratio):.2f} times {'slower' if slower else 'faster'}"
    times = [words.seconds(each) for each in (s_per_token, median(found.s_per_token))]
    low, high = sorted((ratio.low, ratio.high) if slower else (1 / ratio.low, 1 / ratio.high))
    basis = "95% CI" if ratio.unit == "runs" else "with an allowance for too few repeats"
    return (
        (
            f"{opening}: {how} than without, {times[0]} instead of {times[1]} per "
            f"token ({low:.2f} to {high:.2f} times, {basis})."
        ),
        text,
    )


def _is_the_same_without(cell: Cell, other: Cell) -> bool:
    one, its = cell.runs[0], other.runs[0]
    if one.plan is None or its.plan is None or its.plan.speculate is not None:
        return False
    return (
        bool(other.counted)
        and its.plan.without_speculation == one.plan.without_speculation
        and its.model.sha256 == one.model.sha256
        and its.board.name == one.board.name
    )


def _beside(cell: Cell, figures: Sequence[SpeculationResult], baseline: Cell) -> WithoutSpeculation:
    last = baseline.counted[-1]
    texts = [departure(run.text, last.text, name=last.id) for run in cell.counted]
    return compare_with_baseline(
        next((text for text in texts if text.kind != "same"), texts[0]),
        [run.id for run in baseline.counted],
        valid=baseline.is_valid,
        baseline_s=[1 / tps for run in baseline.counted if (tps := run.summary.decode_tps)],
        speculating_s=[each.s_per_token for each in figures],
    )
