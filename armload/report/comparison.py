"""A comparison in words and as a table."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from armload.analysis.compare import Comparison, Measured, Side
from armload.report import formatting as words
from armload.report.layout import Rows
from armload.report.side_by_side import (
    STYLES,
    change,
    figures_table,
    finding_cell,
    side_by_side,
    span,
)


def sentence(compared: Comparison) -> str:
    """Say the finding plainly, with its figures."""
    if not compared.measured:
        return f"Not comparable: {'; '.join(compared.differences)}."
    first = compared.measured[0]
    what = "to its first token" if first.measure == "first token" else f"per {_token(first)}"
    figures = f"{words.seconds(first.b_s)} {what} against {words.seconds(first.a_s)}"
    interval = span(first.ratio.low, first.ratio.high)
    if compared.finding == "not comparable":
        return (
            f"Not comparable: {'; '.join(compared.differences)}. The figures anyway: B takes "
            f"{figures}, {change(first.ratio.ratio)}."
        )
    if compared.finding == "no difference":
        return (
            f"No significant difference: B takes {figures}; the 95% confidence interval is "
            f"{interval}."
        )
    return (
        f"B is {compared.finding}: {figures}, {change(first.ratio.ratio)} "
        f"({interval}, 95% confidence).{_doubt(compared)}"
    )


def _doubt(compared: Comparison) -> str:
    """Say that a finding rests on runs which are not valid themselves."""
    doubted = {label: side for label, side in (("A", compared.a), ("B", compared.b)) if side.doubts}
    if not doubted:
        return ""
    labels = " and ".join(doubted)
    if all(len(side.names) == 1 for side in doubted.values()):
        what = f"the run of {labels} is" if len(doubted) == 1 else f"the runs of {labels} are"
        return f" But {what} not valid."
    return f" But not all runs of {labels} are valid."


def advice(compared: Comparison) -> str:
    """Say how many repeats it takes to see a small difference; nothing when one was found."""
    if compared.finding != "no difference":
        return ""
    needed = compared.runs_to_see_3_percent
    if needed is None:
        return "Repeat both: with 4 or more runs per side, the variation between runs is measured."
    runs = min(len(compared.a.names), len(compared.b.names))
    if needed <= runs:
        return ""
    return f"At this spread, {needed} runs per side are needed to detect a difference of 3%."


def comparison_view(compared: Comparison) -> Group:
    """Lay out one comparison: the sides, their figures, and the finding."""
    said = Text(sentence(compared), style=STYLES[compared.finding])
    if advice(compared):
        said = Text.assemble(said, " ", (advice(compared), "bold"))
    return side_by_side(
        *(_side(compared.a), _side(compared.b), compared.finding, said),
        [_figures(compared)] if compared.measured else [],
        notes=compared.notes,
        doubts=(*compared.a.doubts, *compared.b.doubts),
    )


def _side(side: Side) -> str:
    work = side.work
    count = f" and {len(side.names) - 1} more" if len(side.names) > 1 else ""
    known = [
        word
        for word in (
            work.model,
            work.board,
            side.way.engine,
            words.counted(side.way.threads, "thread") if side.way.threads else None,
            f"predicted {words.seconds(side.predicted_token_s)} per token"
            if side.predicted_token_s
            else None,
        )
        if word
    ]
    return f"{side.names[0]}{count}: {', '.join(known)}"


def _figures(compared: Comparison) -> Rows:
    table = figures_table()
    for each in compared.measured:
        table.add(
            _label(each),
            words.seconds(each.a_s),
            words.seconds(each.b_s),
            change(each.ratio.ratio),
            span(each.ratio.low, each.ratio.high),
            finding_cell(each.finding, compared.finding),
        )
    return table


def _label(each: Measured) -> str:
    return each.measure if each.measure == "first token" else f"{each.measure}, per token"


def _token(each: Measured) -> str:
    return "prompt token" if each.measure == "prefill" else "token"
