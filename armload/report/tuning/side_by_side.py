"""Searches on several boards, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.wording.figures import up_to_three_figures
from armload.core.values import Value
from armload.report import formatting as words
from armload.report.failure import Failure
from armload.report.layout import Column, Prose, Table, whole
from armload.report.tuning.table import interval_words
from armload.report.tuning.view import TuningView
from armload.tuning.record import TuningDocument


class TunedBoard(Value):
    """A search on one of several boards.

    Attributes:
        board: its name.
        tuning: the search; none if it failed.
        error: why it failed; none if it did not.
    """

    board: str
    tuning: TuningDocument | None
    error: Failure | None


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
            interval_words(view, winner) if winner else words.UNKNOWN,
            words.size(winner.max_rss_bytes if winner else None),
        )
        lines += [
            Text(""),
            Prose(f"{view.tuning.board}: {view.result.sentence}"),
            whole(f"plan    {view.result.plan}"),
        ]
    return Group(*lines)
