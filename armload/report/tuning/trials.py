"""The settings that were tried, as a table that can be sorted."""

from __future__ import annotations

import math

from armload.core.values import percentage
from armload.report import formatting as words
from armload.report.cell_table import CellTable, PageColumn, TableEntry, TableRow
from armload.report.tuning.front import front_of
from armload.report.tuning.told import Candidate, Scale, TuningView
from armload.tuning.outcome_words import three_figures
from armload.tuning.space import Choice


def settings_table(told: TuningView) -> CellTable:
    """Lay out the settings: the fastest that may win first, those that failed last."""
    parameters = told.tuning.space.parameters
    leader = told.leader.setting.key if told.leader else None
    front = {each.setting.key for each in front_of(told)}
    return CellTable(
        columns=(
            *(
                PageColumn(heading=each.name, is_number=_is_number(each.choices))
                for each in parameters
            ),
            PageColumn(heading=_heading(told.scale), unit=told.scale.unit, is_number=True),
            PageColumn(heading="trials", is_number=True),
            PageColumn(heading="memory", unit="at its peak", is_number=True),
            PageColumn(heading="text", unit="beside the defaults'"),
            PageColumn(heading="KL divergence", unit="mean, nats", is_number=True),
            PageColumn(heading="accuracy", unit="and its bound", is_number=True),
            PageColumn(heading="verdict"),
        ),
        rows=tuple(
            TableRow(
                state="failed" if each.status == "failed" else "",
                is_fastest=each.setting.key == leader,
                entries=(
                    *(_choice(each.setting.choices.get(name.name)) for name in parameters),
                    _cost(told, each),
                    _trials(told, each),
                    TableEntry(text=words.size(each.max_rss_bytes), number=each.max_rss_bytes),
                    *_quality(each),
                    TableEntry(text=_verdict(told, each, is_on_front=each.setting.key in front)),
                ),
            )
            for each in ordered(told)
        ),
    )


def ordered(told: TuningView) -> list[Candidate]:
    """Return the settings: the leader, others that may win, then those that cannot."""
    ranks = {"measured": 1, "violates": 2, "failed": 3}
    leader = told.leader.setting.key if told.leader else None

    def place(each: Candidate) -> tuple[int, float]:
        rank = 0 if each.setting.key == leader else ranks[each.status]
        return rank, each.estimate.cost if each.estimate else math.inf

    return sorted(told.candidates, key=place)


def interval_words(told: TuningView, candidate: Candidate) -> str:
    """Write where the cost lies with 95% confidence; empty for one that was not measured."""
    if candidate.estimate is None:
        return ""
    interval = candidate.estimate.interval
    low, high = sorted((told.scale.value(interval.low), told.scale.value(interval.high)))
    return f"{three_figures(low)} to {three_figures(high)}"


def _heading(scale: Scale) -> str:
    return "speed" if scale.is_rate else "time"


def _is_number(choices: tuple[Choice, ...]) -> bool:
    return any(isinstance(choice, int) for choice in choices)


def _choice(choice: Choice) -> TableEntry:
    if choice is None:
        return TableEntry(text="default")
    return TableEntry(text=str(choice), number=choice if isinstance(choice, int | float) else None)


def _cost(told: TuningView, candidate: Candidate) -> TableEntry:
    if candidate.estimate is None:
        return TableEntry(text=words.UNKNOWN)
    value = told.scale.value(candidate.estimate.cost)
    return TableEntry(
        text=three_figures(value), number=value, range=interval_words(told, candidate)
    )


def _trials(told: TuningView, candidate: Candidate) -> TableEntry:
    count = sum(step.entry.trial.setting.key == candidate.setting.key for step in told.steps)
    return TableEntry(text=str(count), number=count)


def _quality(candidate: Candidate) -> tuple[TableEntry, TableEntry, TableEntry]:
    quality = candidate.quality
    text = {True: "the same", False: "other", None: words.UNKNOWN}[quality.same_text]
    kl, share = quality.kl_mean, quality.accuracy
    surely = (
        f"at least {percentage(quality.accuracy_low, digits=1)}" if quality.accuracy_low else ""
    )
    return (
        TableEntry(text=text),
        TableEntry(text=words.UNKNOWN if kl is None else f"{kl:.4f}", number=kl),
        TableEntry(
            text=words.UNKNOWN if share is None else percentage(share, digits=1),
            number=share,
            range=surely,
        ),
    )


def _verdict(told: TuningView, candidate: Candidate, *, is_on_front: bool) -> str:
    if candidate.status != "measured":
        return f"{candidate.status}: {candidate.reason}"
    winner = told.result.winner.key if told.result else None
    notes = [
        "winner" if candidate.setting.key == winner else "",
        "defaults" if candidate.setting.key == told.tuning.space.defaults.key else "",
        "Pareto front" if is_on_front else "",
    ]
    return ", ".join(filter(None, notes))
