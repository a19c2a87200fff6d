"""An evaluation's page and pictures in a folder of their own."""

from __future__ import annotations

from pathlib import Path

from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import percentage
from armload.evaluation.record import Evaluated
from armload.evaluation.results import Point, points_of
from armload.report import formatting as words
from armload.report.cell_table import CellTable, Column, Entry, Row
from armload.report.evaluation.page import figures_of, headline, render_page
from armload.report.evaluation.series import Standing, standing_of
from armload.report.evaluation.table import between, percent
from armload.report.written import Report, report_place, write_report


def write_evaluation_report(
    evaluated: Evaluated, folder: Path | None = None, progress: Progress | None = None
) -> Report:
    """Write the page and the pictures of an evaluation into a folder.

    Args:
        folder: may exist; none for one of the evaluation's name among the reports.

    Raises:
        UsageError: the evaluation has no answers, or the folder is a file.
    """
    evaluation = evaluated.evaluation
    points = points_of(evaluated)
    if not any(point.attempts for point in points):
        raise UsageError(f"{evaluation.id} has no answers.", "Repeat its armload eval command.")
    place = report_place(folder, evaluation.id)
    standing = standing_of(points)
    return write_report(
        *(place, figures_of(standing)),
        lambda: render_page(evaluated, standing, evaluation.grader),
        progress,
        headline=headline(evaluation, points),
        table=_point_table(standing),
    )


def _point_table(standing: Standing) -> CellTable:
    return CellTable(
        columns=(
            Column(heading="model"),
            Column(heading="budget", unit="tokens", is_number=True),
            Column(heading="right", unit="of the answered", is_number=True),
            Column(heading="accuracy", is_number=True),
            Column(heading="boxed", is_number=True),
            Column(heading="mean time", is_number=True),
        ),
        rows=tuple(
            Row(state="valid", is_fastest=False, entries=_entries(line.label, point))
            for line in standing.series
            for point in line.points
        ),
    )


def _entries(label: str, point: Point) -> tuple[Entry, ...]:
    accuracy = Entry(text=words.UNKNOWN)
    if point.accuracy is not None:
        share = point.accuracy.share
        accuracy = Entry(text=percent(share), number=share, range=between(point.accuracy.interval))
    boxed = Entry(text=words.UNKNOWN)
    if point.budget is not None:
        boxed = Entry(text=percentage(point.boxed_share), number=point.boxed_share)
    return (
        Entry(text=label),
        Entry(
            text=words.UNKNOWN if point.budget is None else str(point.budget), number=point.budget
        ),
        Entry(text=f"{point.correct} / {len(point.attempts)}", number=point.correct),
        accuracy,
        boxed,
        Entry(text=words.seconds(point.mean_s), number=point.mean_s),
    )
