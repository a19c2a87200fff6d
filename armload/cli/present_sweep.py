"""Run a sweep and lay its cells before a person, or a program."""

from __future__ import annotations

from armload.analysis.run import Run
from armload.bench.options import Options
from armload.bench.sweep import Journal
from armload.bench.sweeping import run_sweep
from armload.cli import terminal
from armload.cli.document import show_document
from armload.core.errors import ArmloadError, RunError
from armload.core.values import counted
from armload.engines.job import Place
from armload.report.layout import Prose, whole
from armload.report.sweep import CellResult, Lines, cell_results, notes, sweep_table, swept_cells
from armload.runs.request import Request


def sweep_and_present(
    request: Request,
    options: Options,
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
                f"Resuming {journal.sweep.id} after {counted(done, 'run')}. (--new starts over.)"
            )
        lines.append(Lines(journal.sweep, done))
        progress.say(lines[0].head())

    def report(place: Place, result: Run | ArmloadError) -> None:
        progress.say(lines[0].line(place, result))

    journal = run_sweep(
        request,
        options.models,
        tuple(options.plans()),
        progress,
        repeats=options.repeats or 1,
        warmups=options.warmups or 0,
        reference=reference,
        begun=begun,
        report=report,
    )
    results = show_sweep(journal, as_json=as_json)
    if not any(run.exit.status == 0 for each in results if each.cell for run in each.cell.runs):
        raise RunError(
            f"{journal.sweep.board}: no run of the sweep completed.",
            "The table shows why; the runs are kept.",
        )


def show_sweep(journal: Journal, *, as_json: bool) -> list[CellResult]:
    """Show what is done of a sweep, and return what became of its cells."""
    results = cell_results(journal.sweep, *journal.results())
    if as_json:
        show_document(swept_cells(journal.sweep, results))
        return results
    terminal.show(sweep_table(results))
    for note in notes(results):
        terminal.show(Prose(note, style="dim"))
    terminal.show(whole(f"sweep    {journal.folder}"))
    terminal.show(whole(f"page     armload report {journal.sweep.id}"))
    return results
