"""``show`` and ``report``: what lies on this machine, on the terminal and as pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from armload.cli.options import OutputOptions, json_option
from armload.cli.run_filter import RunFilter
from armload.cli.verb import verb
from armload.core.options import MOST, Option, Yields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from armload.analysis.run import Run
    from armload.report.pages import Page
    from armload.report.result import Result
    from armload.serving.loads import LoadFolder


_RUN = (
    "id of a run, sweep, evaluation, load, tuning or bisection, or the beginning or end of one; "
    "latest, latest:TEXT, BOARD:MODEL, latest-sweep, latest-eval, latest-load, latest-tune, or "
    "latest-bisect"
)


class ShowOptions(RunFilter, OutputOptions):
    """What is shown."""

    yields: ClassVar[Yields] = {"loads": ("run", *RunFilter.model_fields)}

    run: Annotated[str, Option(_RUN, usual="a list of runs", is_argument=True, takes="result")] = ""
    loads: Annotated[bool, Option("list loads instead of runs", harmless="anywhere")] = False
    last: Annotated[
        Annotated[int, Field(ge=0, le=MOST)] | None,
        Option("length of the list; 0: all", "N", "20; all with --json"),
    ] = None
    as_json: Annotated[bool, json_option("; without RUN, the ids of the list")] = False


@verb(ShowOptions)
def show(options: ShowOptions) -> Result:
    """Show a run, sweep, load or other result, or list runs or loads.

    Example: armload show latest
    """
    from armload.core.shell import program_name
    from armload.report.result import Listing

    if options.run:
        from armload.report.kinds import recorded

        options = options.refuse(
            RunFilter.model_fields, "RUN", "Leave out RUN to list the matching runs."
        )
        options = options.refuse(("loads",), "RUN", "Remove one.")
        return recorded(options.run)
    if options.loads:
        from armload.serving.loads import LoadFolder

        options = options.refuse(RunFilter.model_fields, "--loads", "Only runs can be filtered.")
        return Listing(
            folders=LoadFolder.kind.folders(),
            last=options.last,
            read=LoadFolder.read,
            table=_loads_table,
            nothing="No loads yet. Start one: armload load",
            again=f"{program_name()} show --loads",
        )
    from armload.runs.folders import run_folders

    selection = options.selection()
    is_all = selection is None
    return Listing(
        folders=run_folders(selection, imported=True),
        last=options.last,
        read=_load,
        table=_list_table,
        nothing="No runs yet. Start one: armload demo, or armload bench"
        if is_all
        else "No run matches the filter.",
        again=f"{program_name()} show" if is_all else "use",
    )


# What opens runs takes long to import, and a list of ids, or of nothing, opens none.


def _load(folder: Path) -> Run:
    from armload.runs import store

    return store.load(folder)


def _list_table(runs: Sequence[Run]) -> RenderableType:
    from armload.report.table import list_table

    return list_table(runs)


def _loads_table(loads: Sequence[LoadFolder]) -> RenderableType:
    from armload.report.load.table import loads_table

    return loads_table(loads)


class ReportOptions(RunFilter, OutputOptions):
    """What is drawn, and where the page goes."""

    yields: ClassVar[Yields] = {"leaderboard": tuple(RunFilter.model_fields)}

    runs: Annotated[
        tuple[str, ...],
        Option(
            "runs: an id or folder, latest, BOARD:MODEL, or several of these, comma-separated; or "
            "one evaluation, load or tuning",
            usual="all that match the filter",
            several="repeat",
            is_argument=True,
            takes="results",
        ),
    ] = ()
    leaderboard: Annotated[
        bool,
        Option(
            "rank published results: RUNS are folders of files that armload export --format json "
            "wrote",
            harmless="anywhere",
        ),
    ] = False
    output: Annotated[str, Option("folder to write to", "PATH", "a new one in reports/")] = ""


@verb(ReportOptions)
def report(options: ReportOptions) -> Result:
    """Write a page with charts of runs, an evaluation, a load, or a tuning.

    Repeats of a run are pooled. Example: armload report latest kitchen:llama-3.2-1b-q4_0
    Example: armload report --board @rk3568 --model llama-3.2-1b --since 7d
    """
    from armload.cli import terminal
    from armload.cli.options import output_folder
    from armload.core.errors import UsageError
    from armload.report.exchange.leaderboard import read_folders, write_leaderboard
    from armload.report.pages import report_lines, write_report
    from armload.report.result import as_result

    place, progress = output_folder(options.output) if options.output else None, terminal.progress()
    if not options.runs:
        options = options.without_usual(("leaderboard",))
    if options.leaderboard:
        options = options.refuse_filter("--leaderboard")
        if not options.runs:
            raise UsageError("RUNS is missing.", "Example: armload report results/ --leaderboard")
        written = write_leaderboard(read_folders([*map(Path, options.runs)], progress), place)
    else:
        written = write_report(*_page(options, place), progress)
    return as_result(written, *report_lines(written))


def _page(options: ReportOptions, place: Path | None) -> tuple[Page, Path]:
    """Return the page of what is named, and the folder for it."""
    from armload.analysis.repeats import judged_together
    from armload.bench.sweep import find_sweep
    from armload.core.workspace import reports_folder
    from armload.report.kinds import kind_of
    from armload.report.multi_run import new_folder, runs_page

    only = options.runs[0] if len(options.runs) == 1 else ""
    if only and (kind := kind_of(only)) and kind.has_page:
        options.refuse_filter(only)
        journal = kind.journal.find(only)
        folder = place or reports_folder() / journal.folder.name
        if page := kind.read(journal).page(folder):
            return page, folder
    runs = judged_together(_runs_named(options))
    sweep = find_sweep(only) if only else None
    suite = sweep.sweep.suite if sweep is not None else None
    return runs_page(runs, suite), place or new_folder(runs)


def _runs_named(options: ReportOptions) -> list[Run]:
    from armload.bench.run_names import folders_of
    from armload.cli import terminal
    from armload.core.errors import ArmloadError, UsageError
    from armload.runs import store
    from armload.runs.folders import run_folders

    selection, progress = options.selection(), terminal.progress()
    if not options.runs and selection is None:
        raise UsageError(
            "RUNS is missing, and no filter is given.",
            "Example: armload report latest, or armload report --board BOARD",
        )
    named = [folder for word in options.runs for folder in folders_of(word, selection, progress)]
    chosen = named if options.runs else run_folders(selection)
    folders = dict.fromkeys(folder.resolve() for folder in chosen)
    if not folders:
        raise UsageError("No run matches the filter.", "Widen it; armload show lists all runs.")
    with terminal.progress().step("Reading runs", total=len(folders), unit="runs") as step:
        found, unreadable = [], []
        for number, folder in enumerate(folders, 1):
            try:
                found.append(store.load(folder))
            except ArmloadError as error:
                unreadable.append(error)
            step.update(number)
    if not found:
        raise unreadable[0]
    if not options.runs:  # what is compared is a model's speed
        found = [run for run in found if run.plan or run.watched] or found
    for each in unreadable:
        terminal.progress().say(f"skipped: {each}")
    return found
