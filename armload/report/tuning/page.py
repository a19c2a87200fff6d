"""A search as a page that opens anywhere: figures, settings, trials, and links to their runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import counted, format_bytes
from armload.core.workspace import evaluations_folder, loads_folder, runs_folder
from armload.report import formatting as words
from armload.report.figures.figure import Figure
from armload.report.pages import PAGE_NAME, Report, render, report_place, write_report
from armload.report.tuning.effects import effects_figure
from armload.report.tuning.front import front_figure
from armload.report.tuning.progress import progress_figure
from armload.report.tuning.told import SearchStep, TuningView
from armload.report.tuning.trials import settings_table
from armload.tuning.outcome_words import cost_words
from armload.tuning.record import TuningFolder
from armload.tuning.settings import words_of
from armload.tuning.wanted import AIMS, Constraints

TEMPLATE_NAME = "tuning/page.html.j2"


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A trial, as the table shows it.

    Attributes:
        rung: how long it was, from 1.
        evidence: ids of what was run, each with a link; empty where that is gone.
    """

    number: int
    words: str
    rung: int
    cost: str
    took: str
    status: str
    evidence: tuple[tuple[str, str], ...]


def write_page(told: TuningView, tuned: TuningFolder) -> Path:
    """Write a search's page into its folder, and return its path."""
    page = tuned.folder / PAGE_NAME
    write_whole(page, render_page(told, figures_of(told), tuned.folder).encode())
    return page


def write_tuning_report(
    told: TuningView, folder: Path | None = None, progress: Progress | None = None
) -> Report:
    """Write the page and the pictures of a search into a folder.

    Args:
        folder: may exist; none for one of the search's name among the reports.

    Raises:
        UsageError: there are no trials, or the folder is a file.
    """
    if not told.steps:
        raise UsageError(f"{told.tuning.id} has no trials yet.", "Repeat its armload tune command.")
    place = report_place(folder, told.tuning.id)
    figures = figures_of(told)
    return write_report(
        *(place, figures, lambda: render_page(told, figures, place), progress),
        headline=headline(told),
        table=settings_table(told),
    )


def figures_of(told: TuningView) -> list[Figure]:
    """Return the figures in the order in which a person reads them."""
    drawn = (progress_figure(told), effects_figure(told), front_figure(told))
    return [figure for figure in drawn if figure is not None]


def headline(told: TuningView) -> str:
    """Say what was searched for what."""
    tuning = told.tuning
    model = tuning.model.removesuffix(".gguf")
    return f"{model} on {tuning.board}, tuned for {AIMS[tuning.objective].cost}"


def render_page(told: TuningView, figures: list[Figure], folder: Path) -> str:
    """Return the page of a search with at least one trial.

    Args:
        folder: that the page will lie in, for its links.
    """
    winner = told.result.winner if told.result else (told.leader.setting if told.leader else None)
    values = {
        "version": told.tuning.armload,
        "headline": headline(told),
        "subject": f"{counted(len(told.steps), 'trial')} of {told.tuning.space.size} settings",
        "tuning": told.tuning,
        "result": told.result,
        "found": told.result.sentence if told.result else _so_far(told),
        "violation": _violation(told),
        "figures": figures,
        "winner": [
            (name, "default" if choice is None else choice)
            for name, choice in (winner.choices.items() if winner else ())
        ],
        "table": settings_table(told),
        "trials": [_trial_row(told, step, folder) for step in told.steps],
        "asked": _asked(told),
    }
    return render(TEMPLATE_NAME, values, {figure.name: figure.specification for figure in figures})


def _so_far(told: TuningView) -> str:
    if told.leader is None:
        return "The search is incomplete. Every configuration has failed so far."
    leader = words_of(told.leader.setting, told.tuning.space.defaults, {})
    cost = cost_words(told.tuning.objective, told.leader.cost)
    return f"The search is incomplete. Best so far: {cost} with {leader}."


def _violation(told: TuningView) -> str:
    found = told.result.violation if told.result else None
    if found is None:
        return ""
    setting = words_of(found.setting, told.tuning.space.defaults, {})
    cost = cost_words(told.tuning.objective, found.cost)
    return f"Faster, but violates a constraint: {setting} ({cost}): {found.reason}"


def _trial_row(told: TuningView, step: SearchStep, folder: Path) -> TrialRow:
    trial, outcome = step.entry.trial, step.entry.outcome
    reason = f": {outcome.reason}" if outcome.reason else ""
    return TrialRow(
        number=trial.number + 1,
        words=words_of(trial.setting, told.tuning.space.defaults, {}),
        rung=trial.rung + 1,
        cost=words.UNKNOWN
        if outcome.cost is None
        else cost_words(told.tuning.objective, outcome.cost),
        took=words.seconds(outcome.took_s),
        status=f"{outcome.status}{reason}",
        evidence=tuple((name, _link(name, folder)) for name in outcome.evidence),
    )


def _link(name: str, folder: Path) -> str:
    for root in (runs_folder(), loads_folder(), evaluations_folder()):
        if (root / name).is_dir():
            return quote(os.path.relpath(root / name, folder)) + "/"
    return ""


def _asked(told: TuningView) -> list[tuple[str, str]]:
    tuning = told.tuning
    return [
        ("tuning", tuning.id),
        ("board", tuning.board),
        ("model", f"{tuning.model}, SHA-256 {tuning.model_sha256}"),
        ("engine", tuning.engine),
        ("work", ", ".join(f"{name} {value}" for name, value in tuning.work.items())),
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
    parts = ["sane text"]
    if constraints.max_kld is not None:
        parts.append(f"KL divergence of at most {constraints.max_kld:g}")
    if constraints.min_accuracy is not None:
        least = constraints.min_accuracy
        share = f"{100 * least.share:g}%"
        parts.append(f"surely {share} right of {least.questions} questions of {least.task}")
    if constraints.max_rss_bytes is not None:
        parts.append(f"memory of at most {format_bytes(constraints.max_rss_bytes)}")
    return ", ".join(parts)
