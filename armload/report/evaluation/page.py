"""An evaluation as a page that opens anywhere, with its figures as pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from armload.core.columns import Column
from armload.evaluation.program import how_asked
from armload.evaluation.record import Evaluation, EvaluationFolder, files_of
from armload.evaluation.results import AccuracyPoint, GradedAttempt
from armload.report import formatting as words
from armload.report.evaluation.answers import AnswerRow, OtherGrade, answer_rows, grader_rows
from armload.report.evaluation.figures import deadline_figure, token_figure
from armload.report.evaluation.series import BudgetSeries, EvaluationView, SeriesGroup
from armload.report.evaluation.table import accuracy_table, notes, point_table
from armload.report.figures.figure import Figure
from armload.report.layout import Table
from armload.report.pages import Filter, Page, html


def evaluation_page(evaluated: EvaluationFolder, view: EvaluationView, grader: str) -> Page:
    """Return the page of one evaluation.

    Args:
        grader: that judged the answers.
    """
    evaluation, series = evaluated.evaluation, view.series
    answers = answer_rows(evaluated, series, grader)
    on = ", ".join(evaluation.boards)
    return Page(
        template="evaluation/page.html.j2",
        headline=headline(evaluation, view.points),
        version=evaluation.armload,
        figures=[
            figure
            for number, group in enumerate(view.groups, start=1)
            for figure in _figures(group, number)
        ],
        table=point_table(view),
        shown={
            "about": f"Graded by {grader}. On {on}, {words.minute(evaluation.started_utc)} UTC.",
            "statements": [each for group in view.groups for each in group.statements],
            "notes": notes(view.points),
            "lines": [(line.label, accuracy_table(line)) for line in series],
            "graders": _graders(series, answers, grader),
            "answers": _answers(series, answers),
            "filters": _filters(series, answers),
            "asked": [
                ("evaluation", evaluation.id),
                ("items per pass", evaluation.parallel),
                *((name, f"SHA-256 {sha256}") for name, sha256 in files_of(evaluation.parts)),
                *(("program", each) for each in how_asked(evaluation.parts)),
            ],
        },
    )


def _figures(group: SeriesGroup, number: int) -> list[Figure]:
    """Draw a group of lines; of several groups, title and name say which one it is."""
    if not group.systems:
        return []
    figures = [deadline_figure(group.systems, group.crossover), token_figure(group.series)]
    return [
        figure.model_copy(
            update={
                "name": figure.name if number == 1 else f"{figure.name}-{number}",
                "title": ": ".join(filter(None, [figure.title, group.heading])),
            }
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


def _filters(series: Sequence[BudgetSeries], answers: Sequence[AnswerRow]) -> list[Filter]:
    """Return outcomes to choose rows by: of two lines, what one gets right and the other not."""
    counts = Counter(row.outcome for row in answers)
    if len(series) == 2:
        a, b = (line.label for line in series)
        named = {
            "rw": f"correct: {a}, wrong: {b}",
            "wr": f"wrong: {a}, correct: {b}",
            "rr": "both correct",
            "ww": "both wrong",
        }
    else:
        every = len(series)
        named = {"r" * every: "all correct", "w" * every: "all wrong"}
    filters = [(outcome, label, counts[outcome]) for outcome, label in named.items()]
    disputed = sum(row.is_disputed for row in answers)
    return [*filters, ("disputed", "graders disagree", disputed)] if disputed else filters


def _graders(
    series: Sequence[BudgetSeries], answers: Sequence[AnswerRow], grader: str
) -> Table | None:
    rows = grader_rows([row.grades for row in answers])
    if not rows:
        return None
    table = Table(
        Column(heading="grader"),
        *(
            Column(heading=heading, is_number=True)
            for line in series
            for heading in (f"correct: {line.label}", f"unlike {grader}")
        ),
    )
    for row in rows:
        counts = zip(row.correct, row.answers, row.differing, strict=True)
        table.add(
            row.grader,
            *(
                entry
                for correct, answered, differing in counts
                for entry in (f"{correct}/{answered}", str(differing))
            ),
        )
    return table


def _answers(series: Sequence[BudgetSeries], answers: Sequence[AnswerRow]) -> Table:
    headings = ("question", "expected", *(line.label for line in series))
    table = Table(*(Column(heading=heading) for heading in headings))
    for row in answers:
        table.add(
            html(
                '<details><summary>{}</summary><p class="text">{}</p></details>', row.id, row.text
            ),
            row.expected,
            *map(_answer, row.attempts, row.grades),
            state=f"{row.outcome}{' disputed' if row.is_disputed else ''}",
        )
    return table


def _answer(attempt: GradedAttempt | None, grades: Sequence[OtherGrade]) -> str:
    if attempt is None:
        return words.UNKNOWN
    found = "no answer found" if attempt.extracted is None else attempt.extracted
    judged = ", ".join(
        f"{each.grader}: {_graded(is_correct=each.is_correct)} ({each.reason})" for each in grades
    )
    ended = ""
    if attempt.is_out_of_context:
        ended = ", ended because the context was full"
    elif attempt.stop == "budget":
        ended = ", cut off at the budget"
    return html(
        '<details class="{0}"><summary>{0}: {1}</summary><p class="text">{2}</p>{3}'
        '<p class="soft">{4} tokens, {5}{6}</p></details>',
        *(_graded(is_correct=attempt.is_correct), attempt.failure or found, attempt.text),
        html('<p class="soft">{}</p>', judged) if judged else Markup(),
        *(attempt.tokens, words.seconds(attempt.seconds), ended),
    )


def _graded(*, is_correct: bool) -> str:
    return "correct" if is_correct else "wrong"
