"""``show`` and ``report``: what lies on this machine, on the terminal and as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import MOST, Option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from armload.report.pages import Report

Listed = TypeVar("Listed")


_RUN = (
    "id of a run, sweep, evaluation, load or tuning, or its beginning or end; latest, latest:TEXT, "
    "BOARD:MODEL, latest-sweep, latest-eval, latest-load, or latest-tune"
)


class ShowOptions(OutputOptions):
    """What is shown."""

    run: Annotated[str, Option(_RUN, usual="a list of runs", is_argument=True)] = ""
    loads: Annotated[bool, Option("list loads instead of runs")] = False
    last: Annotated[
        Annotated[int, Field(ge=0, le=MOST)], Option("length of the list; 0: all", "N")
    ] = 20
    as_json: Annotated[
        bool,
        Option("print one JSON document; without RUN, the ids of all", name="json"),
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
    from armload.core.errors import UsageError
    from armload.evaluation.record import EvaluationFolder
    from armload.report.load.table import loads_table
    from armload.report.table import list_table, run_table
    from armload.runs import store
    from armload.serving.loads import LoadFolder
    from armload.tuning.record import TuningFolder

    if options.run:
        if options.loads:
            raise UsageError("--loads lists all loads, and takes no RUN.", "Remove one.")
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
        folders = LoadFolder.kind.folders()
        _list(
            folders, options, LoadFolder.read, loads_table, "No loads yet. Start one: armload load."
        )
    else:
        nothing = "No runs yet. Start one: armload demo, or armload bench."
        _list(store.run_folders(), options, store.load, list_table, nothing)


def _list(
    folders: Sequence[Path],
    options: ShowOptions,
    read: Callable[[Path], Listed],
    table: Callable[[Sequence[Listed]], RenderableType],
    nothing: str,
) -> None:
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.values import ValueList

    if options.as_json:
        show_document(ValueList[str](tuple(folder.name for folder in folders)))
    elif folders:
        shown = folders[-options.last :]  # 0 is all of them
        terminal.show(table(list(_readable(shown, read))))
        if len(shown) < len(folders):
            older = len(folders) - len(shown)
            command = f"armload show{' --loads' if options.loads else ''} --last {len(folders)}"
            terminal.progress().say(f"{older} older: {command}")
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


class ReportOptions(OutputOptions):
    """What is drawn, and where the page goes."""

    runs: Annotated[
        tuple[str, ...],
        Option(
            "runs: an id or folder, latest, BOARD:MODEL, or several of these, comma-separated; or "
            "one evaluation, load or tuning",
            several="repeat",
            is_argument=True,
        ),
    ]
    output: Annotated[str, Option("folder to write to", "PATH", "a new one in reports/")] = ""


@verb(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write a page with charts of runs, an evaluation, a load, or a tuning.

    Repeats of a run are pooled. Example: armload report latest kitchen:llama-3.2-1b-q4_0
    """
    from armload.analysis.repeats import judged_together
    from armload.bench.references import folders_of
    from armload.cli import terminal
    from armload.cli.options import output_folder
    from armload.core.errors import ArmloadError
    from armload.evaluation.record import EvaluationFolder
    from armload.report.evaluation.page import write_evaluation_report
    from armload.report.load.loaded import loaded_of
    from armload.report.load.page import write_load_report
    from armload.report.multi_run import new_folder, write_runs_report
    from armload.report.tuning.page import write_tuning_report
    from armload.report.tuning.told import told_of
    from armload.runs import store
    from armload.serving.loads import LoadFolder
    from armload.tuning.record import TuningFolder

    place = output_folder(options.output) if options.output else None
    if len(options.runs) == 1 and EvaluationFolder.kind.is_meant(options.runs[0]):
        evaluated = EvaluationFolder.find(options.runs[0])
        _show(
            write_evaluation_report(evaluated, place, terminal.progress()), as_json=options.as_json
        )
        return
    if len(options.runs) == 1 and LoadFolder.kind.is_meant(options.runs[0]):
        written = write_load_report(
            loaded_of(LoadFolder.find(options.runs[0])), place, terminal.progress()
        )
        _show(written, as_json=options.as_json)
        return
    if len(options.runs) == 1 and TuningFolder.kind.is_meant(options.runs[0]):
        told = told_of(TuningFolder.find(options.runs[0]))
        _show(write_tuning_report(told, place, terminal.progress()), as_json=options.as_json)
        return
    folders = dict.fromkeys(
        folder.resolve() for word in options.runs for folder in folders_of(word)
    )
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
    for each in unreadable:
        terminal.progress().say(f"skipped: {each}")
    found = judged_together(found)
    written = write_runs_report(found, place or new_folder(found), terminal.progress())
    _show(written, as_json=options.as_json)


def _show(written: Report, *, as_json: bool) -> None:
    from armload.cli import terminal
    from armload.cli.streams import show_document

    if as_json:
        show_document(written)
        return
    terminal.show(f"{written.headline}\n  {written.page}")
    for figure in written.figures:
        terminal.show(f"{figure.title}: {figure.sentence}\n  {figure.png}")
