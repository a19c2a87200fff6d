"""Run a sweep and lay its cells before a person, or a program."""

from __future__ import annotations

from armload.bench.record import Place
from armload.bench.run import Run
from armload.bench.session import Request
from armload.bench.sweep import Journal
from armload.bench.sweeping import run_sweep
from armload.bench.wishes import Wishes
from armload.cli import terminal
from armload.core.errors import ArmloadError, RunError
from armload.report.sweep import Lines, Outcome, notes, outcomes_of, sweep_json, sweep_table


def sweep_and_present(
    request: Request,
    wishes: Wishes,
    *,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Run a sweep, with a line for each run, and show its cells.

    Raises:
        RunError: no run of it came to its end.
    """
    progress = terminal.progress()
    lines: list[Lines] = []

    def begun(journal: Journal) -> None:
        done = len(journal.entries)
        if done:
            progress.say(
                f"Going on with {journal.sweep.id}, of which {done} runs are done. "
                "(--new starts another.)"
            )
        lines.append(Lines(journal.sweep, done))
        progress.say(lines[0].head())

    def told(place: Place, outcome: Run | ArmloadError) -> None:
        progress.say(lines[0].line(place, outcome))

    journal = run_sweep(
        request,
        wishes.models,
        tuple(wishes.plans()),
        progress,
        repeats=wishes.repeats or 1,
        warmups=wishes.warmups or 0,
        reference=reference,
        begun=begun,
        told=told,
    )
    outcomes = show_sweep(journal, as_json=as_json)
    if not any(run.exit.status == 0 for each in outcomes if each.cell for run in each.cell.runs):
        raise RunError(
            f"{journal.sweep.board}: no run of the sweep came to its end.",
            "The table says why; the runs are kept.",
        )


def show_sweep(journal: Journal, *, as_json: bool) -> list[Outcome]:
    """Show what is done of a sweep, and return what became of its cells."""
    outcomes = outcomes_of(journal.sweep, *journal.outcomes())
    if as_json:
        terminal.show_json(sweep_json(journal.sweep, outcomes))
        return outcomes
    terminal.show(sweep_table(outcomes))
    for note in notes(outcomes):
        terminal.results().print(note, style="dim", highlight=False, markup=False)
    terminal.results().print(f"sweep    {journal.folder}", highlight=False, soft_wrap=True)
    terminal.results().print(
        f"page     armload report {journal.sweep.id}", highlight=False, soft_wrap=True
    )
    return outcomes
