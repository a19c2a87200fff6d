"""``show``: runs that lie on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from armload.cli.options import Output
from armload.cli.verb import verb
from armload.core.options import MOST, Option

if TYPE_CHECKING:
    from armload.analysis.run import Run

_RUN = (
    "id of a run, sweep, evaluation, load or tuning, or its beginning or end; latest, latest:TEXT, "
    "BOARD:MODEL, latest-sweep, latest-eval, latest-load, or latest-tune"
)


class ShowOptions(Output):
    """What is shown."""

    run: Annotated[str, Option(_RUN, usual="a list of runs", is_argument=True)] = ""
    last: Annotated[
        Annotated[int, Field(ge=0, le=MOST)], Option("length of the list; 0: all runs", "N")
    ] = 20
    as_json: Annotated[
        bool,
        Option("print one JSON document; without RUN, the ids of all runs", name="json"),
    ] = False


@verb(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show a run, sweep, evaluation, load or tuning, or the list of runs.

    Example: armload show latest
    """
    from armload.bench.sweep import find_sweep, load_journal
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.present_sweep import show_sweep
    from armload.core.values import ValueList
    from armload.evaluation.record import EVALUATIONS
    from armload.report.table import list_table, run_table
    from armload.runs import store
    from armload.serving.loads import LOADS, find_load
    from armload.tuning.record import TUNINGS, find_tuning

    if options.run:
        if EVALUATIONS.are_meant(options.run):
            from armload.cli.present_evaluation import regrade_and_present

            regrade_and_present(options.run, (), as_json=options.as_json)
            return
        if LOADS.are_meant(options.run):
            from armload.cli.present_load import present

            present(find_load(options.run), as_json=options.as_json)
            return
        if TUNINGS.are_meant(options.run):
            from armload.cli.present_tuning import show_tuning

            show_tuning(find_tuning(options.run), as_json=options.as_json)
            return
        sweep = find_sweep(options.run)
        if sweep is not None:
            show_sweep(load_journal(sweep), as_json=options.as_json)
            return
        found = store.load(store.find(options.run))
        if options.as_json:
            show_document(found)
        else:
            terminal.show(run_table(found))
        return
    folders = store.run_folders()
    if options.as_json:
        show_document(ValueList[str](tuple(folder.name for folder in folders)))
    elif folders:
        shown = folders[-options.last :]  # 0 is all of them
        terminal.show(list_table(list(_readable(shown))))
        if len(shown) < len(folders):
            older = len(folders) - len(shown)
            terminal.progress().say(f"{older} older: armload show --last {len(folders)}")
    else:
        terminal.progress().say("No runs yet. Start one: armload demo, or armload bench.")


def _readable(folders: list[Path]) -> Iterator[Run]:
    from armload.cli import terminal
    from armload.core.errors import ArmloadError
    from armload.runs import store

    for folder in folders:
        try:
            yield store.load(folder)
        except ArmloadError as error:
            terminal.progress().say(f"skipped: {error}")
