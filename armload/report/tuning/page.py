"""A search as a page that opens anywhere: figures, settings, trials, and links to their runs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from armload.core.columns import Column
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import counted, format_bytes
from armload.core.workspace import evaluations_folder, loads_folder, runs_folder
from armload.report import formatting as words
from armload.report.layout import Details, Table
from armload.report.pages import (
    Folded,
    Items,
    Notice,
    Page,
    Report,
    Section,
    figure_section,
    html,
    paragraphs,
    report_place,
    results_section,
    write_report,
)
from armload.report.tuning.effects import effects_figure
from armload.report.tuning.figures import front_figure, progress_figure
from armload.report.tuning.table import settings_table
from armload.report.tuning.view import TuningView
from armload.tuning.outcome_words import cost_words, violation_words
from armload.tuning.settings import words_of
from armload.tuning.wanted import AIMS, Constraints


def write_tuning_report(
    view: TuningView, folder: Path | None = None, progress: Progress | None = None
) -> Report:
    """Write the page and the pictures of a search into a folder.

    Args:
        folder: may exist; none for one of the search's name among the reports.

    Raises:
        UsageError: there are no trials, or the folder is a file.
    """
    if not view.steps:
        raise UsageError(f"{view.tuning.id} has no trials yet.", "Repeat its armload tune command.")
    place = report_place(folder, view.tuning.id)
    return write_report(tuning_page(view, place), place, settings_table(view), progress)


def tuning_page(view: TuningView, folder: Path) -> Page:
    """Return the page of a search with at least one trial.

    Args:
        folder: that the page will lie in, for its links.
    """
    tuning, result = view.tuning, view.result
    trials = counted(len(view.steps), "trial")
    figures = (progress_figure(view), effects_figure(view), front_figure(view))
    size = counted(tuning.space.size, "configuration")
    about = f"{trials} of {size}. {words.minute(tuning.started_utc)} UTC."
    found = (result.sentence, result.ended) if result else (_so_far(view),)
    violation = result.violation if result else None
    violated = [violation_words(tuning, violation)] if violation else []
    runs = Folded(summary=f"{trials}, with links to what was run", blocks=(_trials(view, folder),))
    return Page(
        headline=headline(view),
        header=tuple(paragraphs(about, style="soft")),
        lead=(
            Notice(lines=found),
            *(Items(items=(each,), style="doubts doubtful") for each in violated),
        ),
        sections=(
            *(figure_section(figure) for figure in figures if figure),
            *_winner(view),
            results_section(
                "All configurations",
                "Costs are estimated from all trials of a configuration, with 95% confidence "
                "intervals.",
                settings_table(view),
            ),
            Section(title="Trials", blocks=(runs,)),
            Section(title="What was searched", blocks=(Details(_asked(view)),)),
        ),
        version=tuning.armload,
    )


def headline(view: TuningView) -> str:
    """Say what was searched for what."""
    tuning = view.tuning
    model = tuning.model.removesuffix(".gguf")
    return f"{model} on {tuning.board}, tuned for {AIMS[tuning.objective].cost}"


def _so_far(view: TuningView) -> str:
    if view.leader is None:
        return "The search is incomplete. Every configuration has failed so far."
    leader = words_of(view.leader.setting, view.tuning.space.defaults, {})
    cost = cost_words(view.tuning.objective, view.leader.cost)
    return f"The search is incomplete. Best so far: {cost} with {leader}."


def _winner(view: TuningView) -> list[Section]:
    result, leader = view.result, view.leader
    winner = result.winner if result else leader.setting if leader else None
    if winner is None:
        return []
    rows = [
        (name, "default" if choice is None else str(choice))
        for name, choice in winner.choices.items()
    ]
    if result and result.plan:
        rows.append(("plan file", result.plan))
    title = f"Settings of the {'winner' if result else 'leader so far'}"
    return [Section(title=title, blocks=(Details(rows),))]


def _trials(view: TuningView, folder: Path) -> Table:
    headings = ("trial", "configuration", "length", "cost", "took", "status", "runs")
    table = Table(*(Column(heading=heading) for heading in headings))
    for step in view.steps:
        trial, outcome = step.entry.trial, step.entry.outcome
        cost = outcome.cost
        table.add(
            str(trial.number + 1),
            words_of(trial.setting, view.tuning.space.defaults, {}),
            str(trial.rung + 1),
            words.UNKNOWN if cost is None else cost_words(view.tuning.objective, cost),
            words.seconds(outcome.took_s),
            f"{outcome.status}{f': {outcome.reason}' if outcome.reason else ''}",
            Markup(" ").join(_link(name, folder) for name in outcome.evidence),
        )
    return table


def _link(name: str, folder: Path) -> Markup:
    for root in (runs_folder(), loads_folder(), evaluations_folder()):
        if (root / name).is_dir():
            target = quote(os.path.relpath(root / name, folder)) + "/"
            return html('<a href="{}">{}</a>', target, name)
    return html("{}", name)


def _asked(view: TuningView) -> list[tuple[str, str]]:
    tuning = view.tuning
    return [
        ("tuning", tuning.id),
        ("board", tuning.board),
        ("model", f"{tuning.model}, SHA-256 {tuning.model_sha256}"),
        ("engine", tuning.engine),
        ("work", ", ".join(f"{name} {value}" for name, value in tuning.work.items())),
        *([("energy measurement", str(tuning.energy_basis))] if tuning.energy_basis else []),
        ("constraints", _constraints(tuning.constraints)),
        ("seed", str(tuning.seed)),
        *(
            (
                each.name,
                ", ".join("default" if choice is None else str(choice) for choice in each.choices),
            )
            for each in tuning.space.parameters
        ),
    ]


def _constraints(constraints: Constraints) -> str:
    parts = ["output not degenerate"]
    if constraints.max_kld is not None:
        parts.append(f"KL divergence of at most {constraints.max_kld:g}")
    if constraints.min_accuracy is not None:
        least = constraints.min_accuracy
        questions = f"{least.questions} questions of {least.task}"
        parts.append(f"at least {100 * least.share:g}% of {questions} correct (95% confidence)")
    if constraints.max_rss_bytes is not None:
        parts.append(f"memory of at most {format_bytes(constraints.max_rss_bytes)}")
    return ", ".join(parts)
