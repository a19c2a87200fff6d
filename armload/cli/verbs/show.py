"""``show`` and ``report``: what lies on this machine, on the terminal and as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

from pydantic import Field

from armload.cli.options import OutputOptions
from armload.cli.run_filter import RunFilter
from armload.cli.verb import verb
from armload.core.options import MOST, Option, Yields

if TYPE_CHECKING:
    from rich.console import RenderableType

    from armload.analysis.run import Run

Listed = TypeVar("Listed")


_RUN = (
    "id of a run, sweep, evaluation, load or tuning, or the beginning or end of one; latest, "
    "latest:TEXT, BOARD:MODEL, latest-sweep, latest-eval, latest-load, or latest-tune"
)


class ShowOptions(RunFilter, OutputOptions):
    """What is shown."""

    yields: ClassVar[Yields] = {"loads": ("run", *RunFilter.model_fields)}

    run: Annotated[str, Option(_RUN, usual="a list of runs", is_argument=True, takes="result")] = ""
    loads: Annotated[bool, Option("list loads instead of runs", harmless="anywhere")] = False
    last: Annotated[
        Annotated[int, Field(ge=0, le=MOST)], Option("length of the list; 0: all", "N")
    ] = 20
    as_json: Annotated[
        bool,
        Option(
            "print one JSON document; without RUN, the ids of all", name="json", harmless="anywhere"
        ),
    ] = False


@verb(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show a run, sweep, evaluation, load or tuning, or the list of runs or loads.

    Example: armload show latest
    """
    from armload.bench.sweep import find_sweep
    from armload.cli import terminal
    from armload.cli.present import show_sweep
    from armload.cli.streams import show_document
    from armload.evaluation.record import EvaluationFolder
    from armload.report.load.table import loads_table
    from armload.report.table import list_table, run_table
    from armload.runs import store
    from armload.serving.loads import LoadFolder
    from armload.tuning.record import TuningFolder

    if options.run:
        options = options.refuse(
            RunFilter.model_fields, "RUN", "Leave out RUN to list the matching runs."
        )
        options = options.refuse(("loads",), "RUN", "Remove one.")
        if EvaluationFolder.kind.is_meant(options.run):
            from armload.cli.present_evaluation import regrade_and_present

            regrade_and_present(options.run, (), as_json=options.as_json)
            return
        if LoadFolder.kind.is_meant(options.run):
            from armload.cli.present_load import present

            present(LoadFolder.find(options.run), as_json=options.as_json)
            return
        if TuningFolder.kind.is_meant(options.run):
            from armload.cli.present_tuning import show_tuning

            show_tuning(TuningFolder.find(options.run), as_json=options.as_json)
            return
        sweep = find_sweep(options.run)
        if sweep is not None:
            show_sweep(sweep, as_json=options.as_json)
            return
        found = store.load(store.find(options.run))
        if options.as_json:
            show_document(found)
        else:
            terminal.show(run_table(found))
        return
    if options.loads:
        options = options.refuse(RunFilter.model_fields, "--loads", "Only runs can be filtered.")
        folders = LoadFolder.kind.folders()
        _list(
            *(folders, options, LoadFolder.read, loads_table),
            nothing="No loads yet. Start one: armload load",
            again=f"{terminal.program()} show --loads",
        )
        return
    selection = options.selection()
    is_all = selection is None
    _list(
        *(store.run_folders(selection, imported=True), options, store.load, list_table),
        nothing="No runs yet. Start one: armload demo, or armload bench"
        if is_all
        else "No run matches the filter.",
        again=f"{terminal.program()} show" if is_all else "use",
    )


def _list(
    folders: Sequence[Path],
    options: ShowOptions,
    read: Callable[[Path], Listed],
    table: Callable[[Sequence[Listed]], RenderableType],
    *,
    nothing: str,
    again: str,
) -> None:
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.values import ValueList

    if options.as_json:
        show_document(ValueList[str](tuple(folder.name for folder in folders)))
    elif folders:
        shown = folders[-options.last :]  # 0 is all of them
        terminal.show(table(list(_readable(shown, read))))
        if len(shown) > 1:
            terminal.progress().say(f"Compare two: {terminal.program()} compare ID ID")
        if len(shown) < len(folders):
            older = len(folders) - len(shown)
            terminal.progress().say(f"{older} older: {again} --last {len(folders)}")
    else:
        terminal.progress().say(nothing)


def _readable(folders: Sequence[Path], read: Callable[[Path], Listed]) -> Iterator[Listed]:
    from armload.cli import terminal
    from armload.core.errors import ArmloadError

    for folder in folders:
        try:
            yield read(folder)
        except ArmloadError as error:
            terminal.progress().say(f"skipped: {error}")


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
def report(options: ReportOptions) -> None:
    """Write a page with charts of runs, an evaluation, a load, or a tuning.

    Repeats of a run are pooled. Example: armload report latest kitchen:llama-3.2-1b-q4_0
    Example: armload report --board @rk3568 --model llama-3.2-1b --since 7d
    """
    from armload.analysis.repeats import judged_together
    from armload.cli import terminal
    from armload.cli.options import output_folder
    from armload.cli.streams import show_document
    from armload.core.errors import UsageError
    from armload.evaluation.record import EvaluationFolder
    from armload.report.evaluation.page import write_evaluation_report
    from armload.report.exchange.leaderboard import read_folders, write_leaderboard
    from armload.report.load.loaded import LoadView
    from armload.report.load.page import write_load_report
    from armload.report.multi_run import new_folder, write_runs_report
    from armload.report.tuning.page import write_tuning_report
    from armload.report.tuning.view import TuningView
    from armload.serving.loads import LoadFolder
    from armload.tuning.record import TuningFolder

    place, progress = output_folder(options.output) if options.output else None, terminal.progress()
    only = options.runs[0] if len(options.runs) == 1 else ""
    if not options.runs:
        options = options.without_usual(("leaderboard",))
    if options.leaderboard:
        options = options.refuse_filter("--leaderboard")
        if not options.runs:
            raise UsageError("RUNS is missing.", "Example: armload report results/ --leaderboard")
        written = write_leaderboard(read_folders([*map(Path, options.runs)], progress), place)
    elif only and EvaluationFolder.kind.is_meant(only):
        options = options.refuse_filter(only)
        written = write_evaluation_report(EvaluationFolder.find(only), place, progress)
    elif only and LoadFolder.kind.is_meant(only):
        options = options.refuse_filter(only)
        written = write_load_report(LoadView.of(LoadFolder.find(only)), place, progress)
    elif only and TuningFolder.kind.is_meant(only):
        options = options.refuse_filter(only)
        written = write_tuning_report(TuningView.of(TuningFolder.find(only)), place, progress)
    else:
        found = judged_together(_runs_named(options))
        written = write_runs_report(found, place or new_folder(found), progress)
    if options.as_json:
        show_document(written)
        return
    terminal.show(f"{written.headline}\n  {written.page}")
    for figure in written.figures:
        terminal.show(f"{figure.title}: {figure.sentence}\n  {figure.png}")


def _runs_named(options: ReportOptions) -> list[Run]:
    from armload.bench.run_names import folders_of
    from armload.cli import terminal
    from armload.core.errors import ArmloadError, UsageError
    from armload.runs import store

    selection, progress = options.selection(), terminal.progress()
    if not options.runs and selection is None:
        raise UsageError("RUNS is missing.", "Example: armload report latest")
    named = [folder for word in options.runs for folder in folders_of(word, selection, progress)]
    chosen = named if options.runs else store.run_folders(selection)
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
