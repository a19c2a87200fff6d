"""A search as a page that opens anywhere: figures, settings, trials, and links to their runs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from armload.core.columns import Column
from armload.core.errors import UsageError
from armload.core.values import counted, format_bytes
from armload.core.workspace import evaluations_folder, loads_folder, runs_folder
from armload.report import formatting as words
from armload.report.layout import Table
from armload.report.pages import Page, html
from armload.report.tuning.figures import effects_figure, front_figure, progress_figure
from armload.report.tuning.table import settings_table
from armload.report.tuning.view import TuningView
from armload.tuning.outcome_words import cost_words, violation_words
from armload.tuning.settings import words_of
from armload.tuning.space import Choice
from armload.tuning.wanted import AIMS, Constraints


def tuning_page(view: TuningView, folder: Path) -> Page:
    """Return the page of a search.

    Args:
        folder: that the page will lie in, for its links.

    Raises:
        UsageError: it has no trials.
    """
    tuning, result = view.tuning, view.result
    if not view.steps:
        raise UsageError(f"{tuning.id} has no trials yet.", "Repeat its armload tune command.")
    trials, parameters = counted(len(view.steps), "trial"), tuning.space.parameters
    size = counted(tuning.space.size, "configuration")
    figures = (progress_figure(view), effects_figure(view), front_figure(view))
    return Page(
        template="tuning/page.html.j2",
        headline=headline(view),
        version=tuning.armload,
        figures=[figure for figure in figures if figure],
        table=settings_table(view),
        shown={
            "about": f"{trials} of {size}. {words.minute(tuning.started_utc)} UTC.",
            "found": (result.sentence, result.ended) if result else (_so_far(view),),
            "violated": violation_words(tuning, result.violation)
            if result and result.violation
            else "",
            "has_ended": bool(result),
            "winner": _winner(view),
            "trials": trials,
            "runs": _trials(view, folder),
            "asked": [
                ("tuning", tuning.id),
                ("board", tuning.board),
                ("model", f"{tuning.model}, SHA-256 {tuning.model_sha256}"),
                ("engine", tuning.engine),
                ("work", ", ".join(f"{name} {value}" for name, value in tuning.work.items())),
                *([("energy measurement", tuning.energy_basis)] if tuning.energy_basis else []),
                ("constraints", _constraints(tuning.constraints)),
                ("seed", tuning.seed),
                *((each.name, ", ".join(map(_choice, each.choices))) for each in parameters),
            ],
        },
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


def _winner(view: TuningView) -> list[tuple[str, str]]:
    result, leader = view.result, view.leader
    winner = result.winner if result else leader.setting if leader else None
    if winner is None:
        return []
    rows = [(name, _choice(choice)) for name, choice in winner.choices.items()]
    if result and result.plan:
        rows.append(("plan file", result.plan))
    return rows


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


def _choice(choice: Choice) -> str:
    return "default" if choice is None else str(choice)


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
