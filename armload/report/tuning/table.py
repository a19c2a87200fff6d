"""The settings of a search: the fastest for a terminal, all for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.ratios import up_to_three_figures
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.layout import Column, Entry, Prose, Table, whole
from armload.report.tuning.figures import front_of
from armload.report.tuning.view import Candidate, TuningView
from armload.tuning.space import Choice

MOST_ROWS = 10


def settings_view(view: TuningView) -> Group:
    """Lay out the fastest settings that may win, and count the others."""
    table = Table(
        Column(heading="configuration", is_prose=True),
        Column(heading=view.scale.unit, is_number=True),
        Column(heading="95% CI", is_number=True),
        Column(heading="trials", is_number=True),
        Column(heading="memory", is_number=True),
    )
    able = [each for each in ordered(view) if each.status == "measured"]
    defaults = view.tuning.space.defaults.key
    shown = [
        each
        for number, each in enumerate(able)
        if number < MOST_ROWS or each.setting.key == defaults
    ]
    for each in shown:
        table.add(
            Text(each.words, style="bold" if each is able[0] else ""),
            up_to_three_figures(view.scale.value(each.estimate.cost))
            if each.estimate
            else words.UNKNOWN,
            _interval_words(view, each),
            str(each.estimate.trials if each.estimate else 0),
            words.size(each.max_rss_bytes),
        )
    lines: list[RenderableType] = [table] if table.rows else []
    if rest := _rest(view, len(able) - len(shown)):
        lines.append(Prose(rest, "dim"))
    return Group(*lines)


def _rest(view: TuningView, slower: int) -> str:
    violating = sum(each.status == "violates" for each in view.candidates)
    failed = sum(each.status == "failed" for each in view.candidates)
    worse = "with more energy" if view.scale.heading == "energy" else "slower"
    parts = [
        f"{slower} {worse}" if slower else "",
        f"{violating} violating a constraint" if violating else "",
        f"{failed} failed" if failed else "",
    ]
    named = ", ".join(filter(None, parts))
    every = counted(len(view.candidates), "configuration")
    return f"Not shown: {named} of {every}." if named else ""


def settings_table(view: TuningView) -> Table:
    """Lay out the settings for a page: the fastest that may win first, those that failed last."""
    parameters = view.tuning.space.parameters
    leader = view.leader.setting.key if view.leader else None
    front = {each.setting.key for each in front_of(view)}
    table = Table(
        *(Column(heading=each.name, is_number=_is_number(each.choices)) for each in parameters),
        Column(heading=view.scale.heading, unit=view.scale.unit, is_number=True),
        Column(heading="trials", is_number=True),
        Column(heading="memory", unit="at its peak", is_number=True),
        Column(heading="text", unit="beside the defaults'"),
        Column(heading="KL divergence", unit="mean, nats", is_number=True),
        Column(heading="accuracy", unit="and its bound", is_number=True),
        Column(heading="verdict"),
    )
    for each in ordered(view):
        table.add(
            *(_choice(each.setting.choices.get(name.name)) for name in parameters),
            _cost(view, each),
            _trials(view, each),
            Entry(text=words.size(each.max_rss_bytes), number=each.max_rss_bytes),
            *_quality(each),
            _verdict(view, each, is_on_front=each.setting.key in front),
            state="failed" if each.status == "failed" else "",
            is_best=each.setting.key == leader,
        )
    return table


def ordered(view: TuningView) -> list[Candidate]:
    """Return the settings: the leader, others that may win, then those that cannot."""
    ranks = {"measured": 1, "violates": 2, "failed": 3}
    leader = view.leader.setting.key if view.leader else None

    def place(each: Candidate) -> tuple[int, float]:
        rank = 0 if each.setting.key == leader else ranks[each.status]
        return rank, each.estimate.cost if each.estimate else math.inf

    return sorted(view.candidates, key=place)


def _interval_words(view: TuningView, candidate: Candidate) -> str:
    """Write where the cost lies with 95% confidence; empty for one that was not measured."""
    if candidate.estimate is None:
        return ""
    interval = candidate.estimate.interval
    low, high = sorted((view.scale.value(interval.low), view.scale.value(interval.high)))
    return f"{up_to_three_figures(low)} to {up_to_three_figures(high)}"


def _is_number(choices: tuple[Choice, ...]) -> bool:
    return any(isinstance(choice, int) for choice in choices)


def _choice(choice: Choice) -> Entry:
    if choice is None:
        return Entry(text="default")
    return Entry(text=str(choice), number=choice if isinstance(choice, int | float) else None)


def _cost(view: TuningView, candidate: Candidate) -> Entry:
    if candidate.estimate is None:
        return Entry(text=words.UNKNOWN)
    value = view.scale.value(candidate.estimate.cost)
    return Entry(
        text=up_to_three_figures(value), number=value, range=_interval_words(view, candidate)
    )


def _trials(view: TuningView, candidate: Candidate) -> Entry:
    count = sum(step.entry.trial.setting.key == candidate.setting.key for step in view.steps)
    return Entry(text=str(count), number=count)


def _quality(candidate: Candidate) -> tuple[Entry, Entry, Entry]:
    quality = candidate.quality
    text = {True: "the same", False: "other", None: words.UNKNOWN}[quality.same_text]
    kl, share = quality.kl_mean, quality.accuracy
    surely = f"at least {quality.accuracy_low:.1%}" if quality.accuracy_low else ""
    return (
        Entry(text=text),
        Entry(text=words.UNKNOWN if kl is None else f"{kl:.4f}", number=kl),
        Entry(
            text=words.UNKNOWN if share is None else f"{share:.1%}",
            number=share,
            range=surely,
        ),
    )


def _verdict(view: TuningView, candidate: Candidate, *, is_on_front: bool) -> str:
    if candidate.status != "measured":
        return f"{candidate.status}: {candidate.reason}"
    winner = view.result.winner.key if view.result else None
    notes = [
        "winner" if candidate.setting.key == winner else "",
        "defaults" if candidate.setting.key == view.tuning.space.defaults.key else "",
        "Pareto front" if is_on_front else "",
    ]
    return ", ".join(filter(None, notes))


def tunings_view(views: Sequence[TuningView]) -> Group:
    """Lay out what searches have found, a board a line, and what each is worth."""
    table = Table(
        Column(heading="board", below=""),
        Column(heading="configuration", is_prose=True),
        Column(heading=views[0].scale.unit, is_number=True),
        Column(heading="95% CI", is_number=True),
        Column(heading="memory", is_number=True),
    )
    lines: list[RenderableType] = [table]
    for view in views:
        if view.result is None:
            continue
        winner = view.candidate(view.result.winner)
        table.add(
            Text(view.tuning.board, style="bold"),
            winner.words if winner else words.UNKNOWN,
            up_to_three_figures(view.scale.value(view.result.cost)),
            _interval_words(view, winner) if winner else words.UNKNOWN,
            words.size(winner.max_rss_bytes if winner else None),
        )
        lines += [
            Text(""),
            Prose(f"{view.tuning.board}: {view.result.sentence}"),
            whole(f"plan    {view.result.plan}"),
        ]
    return Group(*lines)
