"""``report``: runs as a page and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb

if TYPE_CHECKING:
    from armload.report.written import Report


@task(
    klass=Verb,
    iterable=["runs"],
    help={
        "runs": "runs: an id or folder, latest, BOARD:MODEL, or several of these, comma-separated; "
        "or one evaluation, load or tuning",
        "output": "folder to write to (a new one in reports/)",
        **JSON_HELP,
    },
)
def report(c: Context, runs: list[str], output: str = "", json: bool = False) -> None:
    """Write a page with charts of runs, an evaluation, a load, or a tuning.

    Repeats of a run are pooled. Example: armload report latest kitchen:llama-3.2-1b-q4_0
    """
    del c
    from armload.analysis.repeats import judged_together
    from armload.bench.references import folders_of
    from armload.cli import terminal
    from armload.cli.output import output_folder
    from armload.core.errors import ArmloadError
    from armload.evaluation.record import EVALUATIONS, find_evaluation
    from armload.report.evaluation.report import write_evaluation_report
    from armload.report.load.loaded import loaded_of
    from armload.report.load.page import write_load_report
    from armload.report.multi_run import new_folder, write_runs_report
    from armload.report.tuning.page import write_tuning_report
    from armload.report.tuning.told import told_of
    from armload.runs import store
    from armload.serving.loads import LOADS, find_load
    from armload.tuning.record import TUNINGS, find_tuning

    place = output_folder(output) if output else None
    if len(runs) == 1 and EVALUATIONS.are_meant(runs[0]):
        evaluated = find_evaluation(runs[0])
        _show(write_evaluation_report(evaluated, place, terminal.progress()), as_json=json)
        return
    if len(runs) == 1 and LOADS.are_meant(runs[0]):
        written = write_load_report(loaded_of(find_load(runs[0])), place, terminal.progress())
        _show(written, as_json=json)
        return
    if len(runs) == 1 and TUNINGS.are_meant(runs[0]):
        told = told_of(find_tuning(runs[0]))
        _show(write_tuning_report(told, place, terminal.progress()), as_json=json)
        return
    folders = dict.fromkeys(folder.resolve() for word in runs for folder in folders_of(word))
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
    _show(written, as_json=json)


def _show(written: Report, *, as_json: bool) -> None:
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.report.written import WrittenReport

    if as_json:
        show_document(WrittenReport.of(written))
        return
    terminal.show(f"{written.headline}\n  {written.page}")
    for picture in written.pictures:
        terminal.show(f"{picture.figure.title}: {picture.figure.sentence}\n  {picture.png}")
