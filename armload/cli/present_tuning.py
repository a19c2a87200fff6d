"""Search settings, and lay what was found before a person, or a program."""

from __future__ import annotations

from pathlib import Path

from armload.cli import terminal
from armload.cli.document import show_document
from armload.core.values import counted
from armload.report.layout import whole
from armload.report.tuning.page import write_page
from armload.report.tuning.table import settings_view
from armload.report.tuning.told import told_of
from armload.runs.request import Request
from armload.tuning.outcome_words import cost_words
from armload.tuning.record import Entry, Tuned
from armload.tuning.settings import words_of
from armload.tuning.space import Setting
from armload.tuning.standing import Standing
from armload.tuning.tune import tune
from armload.tuning.wish import Wish


def tune_and_present(request: Request, wish: Wish, *, output: Path | None, as_json: bool) -> None:
    """Search, with a line for each trial, and show what was found.

    Raises:
        ArmloadError: any of its kinds; the trials that were made are kept.
    """
    progress = terminal.progress()

    def begun(tuned: Tuned) -> None:
        done = len(tuned.entries)
        if done:
            trials = counted(done, "trial")
            progress.say(f"Resuming {tuned.tuning.id} after {trials}. (--new starts over.)")
        size = counted(tuned.tuning.space.size, "setting")
        progress.say(f"{size} may be tried. Tuning is kept in {tuned.folder}.")

    def report(entry: Entry, standing: Standing) -> None:
        progress.say(trial_line(wish, entry, standing))

    tuned = tune(request, wish, progress, output=output, begun=begun, report=report)
    show_tuning(tuned, as_json=as_json)


def show_tuning(tuned: Tuned, *, as_json: bool) -> None:
    """Show what a search has found."""
    if as_json:
        show_document(tuned.document())
        return
    told = told_of(tuned)
    result = told.result
    if told.steps:
        terminal.show(settings_view(told))
        terminal.show("")
    if result is None:
        terminal.show(f"{tuned.tuning.id} has not ended: {counted(len(tuned.entries), 'trial')}.")
        return
    terminal.show(result.sentence)
    if result.violation is not None:
        reason = result.violation.reason
        cost = cost_words(tuned.tuning.objective, result.violation.cost)
        words = words_of(result.violation.setting, tuned.tuning.space.defaults, {})
        terminal.show(f"Faster, but not allowed: {words} ({cost}): {reason}")
    terminal.show(whole(f"plan    {result.plan}"))
    terminal.show(whole(f"tuning  {tuned.folder}"))
    terminal.show(whole(f"page    {write_page(told, tuned)}"))


def trial_line(wish: Wish, entry: Entry, standing: Standing) -> str:
    """Write a line on a trial."""
    outcome, setting = entry.outcome, entry.trial.setting
    words = words_of(setting, Setting(choices=dict.fromkeys(setting.choices)), {})
    figure = cost_words(wish.objective, outcome.cost) if outcome.cost else ""
    ended = "" if outcome.status == "measured" else f"{outcome.status}: {outcome.reason}"
    best = f"best: {cost_words(wish.objective, standing.leader.cost)}" if standing.leader else ""
    told = "; ".join(each for each in (figure, ended, best) if each)
    return f"Trial {entry.trial.number + 1}, {words}: {told}"
