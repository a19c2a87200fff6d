"""The fastest settings of a search, for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.values import counted
from armload.report import formatting as words
from armload.report.layout import Column, Prose, Table
from armload.report.tuning.told import TuningView
from armload.report.tuning.trials import interval_words, ordered
from armload.tuning.outcome_words import three_figures

MOST_ROWS = 10


def settings_view(told: TuningView) -> Group:
    """Lay out the fastest settings that may win, and count the others."""
    table = Table(
        Column(heading="setting", is_prose=True),
        Column(heading=told.scale.unit, is_number=True),
        Column(heading="95% CI", is_number=True),
        Column(heading="trials", is_number=True),
        Column(heading="memory", is_number=True),
    )
    able = [each for each in ordered(told) if each.status == "measured"]
    defaults = told.tuning.space.defaults.key
    shown = [
        each
        for number, each in enumerate(able)
        if number < MOST_ROWS or each.setting.key == defaults
    ]
    for each in shown:
        table.add(
            Text(each.words, style="bold" if each is able[0] else ""),
            three_figures(told.scale.value(each.estimate.cost)) if each.estimate else words.UNKNOWN,
            interval_words(told, each),
            str(each.estimate.trials if each.estimate else 0),
            words.size(each.max_rss_bytes),
        )
    lines: list[RenderableType] = [table] if table.rows else []
    if rest := _rest(told, len(able) - len(shown)):
        lines.append(Prose(rest, "dim"))
    return Group(*lines)


def _rest(told: TuningView, slower: int) -> str:
    violating = sum(each.status == "violates" for each in told.candidates)
    failed = sum(each.status == "failed" for each in told.candidates)
    parts = [
        f"{slower} slower" if slower else "",
        f"{violating} violating a constraint" if violating else "",
        f"{failed} failed" if failed else "",
    ]
    named = ", ".join(filter(None, parts))
    return f"Not shown: {named} of {counted(len(told.candidates), 'setting')}." if named else ""
