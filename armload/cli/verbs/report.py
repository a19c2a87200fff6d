"""``report``: runs as a page and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from armload.cli.options import Output
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.report.written import Report


class ReportOptions(Output):
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

    place = output_folder(options.output) if options.output else None
    if len(options.runs) == 1 and EVALUATIONS.are_meant(options.runs[0]):
        evaluated = find_evaluation(options.runs[0])
        _show(
            write_evaluation_report(evaluated, place, terminal.progress()), as_json=options.as_json
        )
        return
    if len(options.runs) == 1 and LOADS.are_meant(options.runs[0]):
        written = write_load_report(
            loaded_of(find_load(options.runs[0])), place, terminal.progress()
        )
        _show(written, as_json=options.as_json)
        return
    if len(options.runs) == 1 and TUNINGS.are_meant(options.runs[0]):
        told = told_of(find_tuning(options.runs[0]))
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
    from armload.cli.document import show_document
    from armload.report.written import WrittenReport

    if as_json:
        show_document(WrittenReport.of(written))
        return
    terminal.show(f"{written.headline}\n  {written.page}")
    for picture in written.pictures:
        terminal.show(f"{picture.figure.title}: {picture.figure.sentence}\n  {picture.png}")
