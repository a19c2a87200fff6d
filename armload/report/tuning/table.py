"""The settings of a search: the fastest for a terminal, all for a page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.columns import Column, Estimate, main_ones
from armload.core.values import counted, three_figures
from armload.report import formatting as words
from armload.report.layout import Entry, Prose, Table, whole
from armload.report.tuning.figures import front_of
from armload.report.tuning.view import Candidate, TuningView

MOST_ROWS = 10
_SAME_TEXT = {True: "the same", False: "other", None: words.UNKNOWN}


def settings_view(view: TuningView) -> Group:
    """Lay out the fastest settings that may win, and count the others."""
    able = [each for each in ordered(view) if each.status == "measured"]
    defaults = view.tuning.space.defaults.key
    shown = [
        each
        for number, each in enumerate(able)
        if number < MOST_ROWS or each.setting.key == defaults
    ]
    lines: list[RenderableType] = []
    if shown:
        words_of_each = Column[Candidate](
            heading="configuration",
            of=lambda each: Text(each.words, style="bold" if each is able[0] else ""),
            is_prose=True,
        )
        lines.append(Table.of((words_of_each, *main_ones(_columns(view))), shown))
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
    return f"{every} in all; not shown: {named}." if named else ""


def settings_table(view: TuningView) -> Table:
    """Lay out the settings for a page: the fastest that may win first, those that failed last."""
    settings = (
        Column[Candidate](
            heading=each.name,
            of=partial(_choice, each.name),
            is_number=any(isinstance(choice, int) for choice in each.choices),
        )
        for each in view.tuning.space.parameters
    )
    return Table.of(
        (*settings, *_columns(view)),
        ordered(view),
        state=lambda each: "failed" if each.status == "failed" else "",
        best=view.candidate(view.leader.setting) if view.leader else None,
    )


def _columns(view: TuningView) -> tuple[Column[Candidate], ...]:
    trials = Counter(step.entry.trial.setting.key for step in view.steps)
    front = {each.setting.key for each in front_of(view)}
    return (
        Column(
            heading=view.scale.heading,
            unit=view.scale.unit,
            of=partial(_cost, view),
            write=three_figures,
            has_interval=True,
            is_main=True,
        ),
        Column(
            heading="trials", of=lambda each: trials[each.setting.key], is_number=True, is_main=True
        ),
        Column(
            heading="peak\nRSS", of=lambda each: each.max_rss_bytes, write=words.size, is_main=True
        ),
        Column(
            heading="text",
            unit="beside the defaults'",
            of=lambda each: _SAME_TEXT[each.quality.same_text],
        ),
        Column(
            heading="KL divergence",
            unit="mean, nats",
            of=lambda each: each.quality.kl_mean,
            write="{:.4f}".format,
        ),
        Column(heading="accuracy", unit="and its bound", of=_accuracy, is_number=True),
        Column(
            heading="verdict",
            of=lambda each: _verdict(view, each, is_on_front=each.setting.key in front),
        ),
    )


def ordered(view: TuningView) -> list[Candidate]:
    """Return the settings: the leader, others that may win, then those that cannot."""
    ranks = {"measured": 1, "violates": 2, "failed": 3}
    leader = view.leader.setting.key if view.leader else None

    def place(each: Candidate) -> tuple[int, float]:
        rank = 0 if each.setting.key == leader else ranks[each.status]
        return rank, each.estimate.cost if each.estimate else math.inf

    return sorted(view.candidates, key=place)


def _choice(name: str, candidate: Candidate) -> Entry:
    choice = candidate.setting.choices.get(name)
    if choice is None:
        return Entry(text="default")
    return Entry(text=str(choice), number=choice if isinstance(choice, int | float) else None)


def _cost(view: TuningView, candidate: Candidate) -> Estimate | None:
    found = candidate.estimate
    if found is None:
        return None
    low, high = sorted(map(view.scale.value, (found.interval.low, found.interval.high)))
    return Estimate(value=view.scale.value(found.cost), low=low, high=high)


def _accuracy(candidate: Candidate) -> Entry | None:
    share, surely = candidate.quality.accuracy, candidate.quality.accuracy_low
    if share is None:
        return None
    bound = f"at least {surely:.1%}" if surely else ""
    return Entry(text=f"{share:.1%}", number=share, range=bound)


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
    found = [(view, view.result) for view in views if view.result is not None]
    winners = [(view, view.candidate(result.winner)) for view, result in found]
    columns: tuple[Column[tuple[TuningView, Candidate | None]], ...] = (
        Column(heading="board", of=lambda pair: pair[0].tuning.board, below="", style="bold"),
        Column(heading="configuration", of=lambda pair: pair[1] and pair[1].words, is_prose=True),
        *(each.through(lambda pair: pair[1]) for each in main_ones(_columns(views[0]))),
    )
    lines: list[RenderableType] = [Table.of(columns, winners)]
    for view, result in found:
        lines += [
            Text(""),
            Prose(f"{view.tuning.board}: {result.sentence}"),
            whole(f"plan    {result.plan}"),
        ]
    return Group(*lines)
