"""An evaluation as a page that opens anywhere, with its figures as pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import percentage
from armload.evaluation.record import Evaluation, EvaluationFolder
from armload.evaluation.results import AccuracyPoint, points_of
from armload.report import formatting as words
from armload.report.cell_table import CellTable, PageColumn, TableEntry, TableRow
from armload.report.evaluation.answers import AnswerRow, answer_rows, grader_rows
from armload.report.evaluation.deadlines import deadline_figure
from armload.report.evaluation.figures import token_figure
from armload.report.evaluation.series import BudgetSeries, EvaluationView, SeriesGroup, standing_of
from armload.report.evaluation.table import between, notes, percent
from armload.report.figures.figure import Figure
from armload.report.pages import Report, render, report_place, write_report

PAGE_NAME = "report.html"
TEMPLATE_NAME = "evaluation/page.html.j2"


def write_page(evaluated: EvaluationFolder, standing: EvaluationView, grader: str) -> Path:
    """Write an evaluation's page into its folder, and return its path.

    Args:
        grader: that judged the answers.
    """
    page = evaluated.folder / PAGE_NAME
    write_whole(page, render_page(evaluated, standing, grader).encode())
    return page


def figures_of(standing: EvaluationView) -> list[Figure]:
    """Return the figures in the order in which a person reads them."""
    return [
        figure
        for number, group in enumerate(standing.groups, start=1)
        for figure in _figures(group, number)
    ]


def render_page(evaluated: EvaluationFolder, standing: EvaluationView, grader: str) -> str:
    """Return the page of one evaluation."""
    answers = answer_rows(evaluated, standing.series, grader)
    figures = figures_of(standing)
    evaluation = evaluated.evaluation
    values = {
        "headline": headline(evaluation, standing.points),
        "evaluation": evaluation,
        "version": evaluation.armload,
        "series": standing.series,
        "figures": figures,
        "sentences": [
            *(statement for group in standing.groups for statement in group.statements),
            *notes(standing.points),
        ],
        "answers": answers,
        "filters": _filters(standing.series, answers),
        "grader": grader,
        "graders": grader_rows([row.grades for row in answers]),
        "percent": percent,
        "between": between,
    }
    return render(TEMPLATE_NAME, values, {figure.name: figure.specification for figure in figures})


def _figures(group: SeriesGroup, number: int) -> list[Figure]:
    """Draw a group of lines; of several groups, title and name say which one it is."""
    if not group.systems:
        return []
    figures = [deadline_figure(group.systems, group.crossover), token_figure(group.series)]
    return [
        replace(
            figure,
            name=figure.name if number == 1 else f"{figure.name}-{number}",
            title=": ".join(filter(None, [figure.title, group.heading])),
        )
        for figure in figures
    ]


def headline(evaluation: Evaluation, points: Sequence[AccuracyPoint]) -> str:
    """Say how many questions how many models have answered."""
    models = len({part.model for part in evaluation.parts})
    by = "one model" if models == 1 else f"{models} models"
    answered = max((len(point.attempts) for point in points), default=0)
    share = f"{answered:,} of " if answered < evaluation.questions else ""
    return f"{evaluation.task}: {share}{evaluation.questions:,} questions, {by}"


def _filters(
    series: Sequence[BudgetSeries], answers: Sequence[AnswerRow]
) -> list[tuple[str, str, int]]:
    """Return outcomes to choose rows by: of two lines, what one gets right and the other not."""
    counts = Counter(row.outcome for row in answers)
    if len(series) == 2:
        a, b = (line.label for line in series)
        named = {
            "rw": f"right: {a}, wrong: {b}",
            "wr": f"wrong: {a}, right: {b}",
            "rr": "both right",
            "ww": "both wrong",
        }
    else:
        every = len(series)
        named = {"r" * every: "all right", "w" * every: "all wrong"}
    filters = [(outcome, label, counts[outcome]) for outcome, label in named.items()]
    disputed = sum(row.is_disputed for row in answers)
    return [*filters, ("disputed", "graders disagree", disputed)] if disputed else filters


def write_evaluation_report(
    evaluated: EvaluationFolder, folder: Path | None = None, progress: Progress | None = None
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


def _point_table(standing: EvaluationView) -> CellTable:
    return CellTable(
        columns=(
            PageColumn(heading="model"),
            PageColumn(heading="budget", unit="tokens", is_number=True),
            PageColumn(heading="right", unit="of the answered", is_number=True),
            PageColumn(heading="accuracy", is_number=True),
            PageColumn(heading="boxed", is_number=True),
            PageColumn(heading="mean time", is_number=True),
        ),
        rows=tuple(
            TableRow(state="valid", is_fastest=False, entries=_entries(line.label, point))
            for line in standing.series
            for point in line.points
        ),
    )


def _entries(label: str, point: AccuracyPoint) -> tuple[TableEntry, ...]:
    accuracy = TableEntry(text=words.UNKNOWN)
    if point.accuracy is not None:
        share = point.accuracy.share
        accuracy = TableEntry(
            text=percent(share), number=share, range=between(point.accuracy.interval)
        )
    boxed = TableEntry(text=words.UNKNOWN)
    if point.budget is not None:
        boxed = TableEntry(text=percentage(point.boxed_share), number=point.boxed_share)
    return (
        TableEntry(text=label),
        TableEntry(
            text=words.UNKNOWN if point.budget is None else str(point.budget), number=point.budget
        ),
        TableEntry(text=f"{point.correct} / {len(point.attempts)}", number=point.correct),
        accuracy,
        boxed,
        TableEntry(text=words.seconds(point.mean_s), number=point.mean_s),
    )
