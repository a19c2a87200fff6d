"""``report``: runs as a page and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb

if TYPE_CHECKING:
    from armload.report.several import Report


@task(
    klass=Verb,
    iterable=["runs"],
    help={
        "runs": "what the report is of: a run's id or folder, latest, BOARD:MODEL, or several "
        "with commas",
        "output": "the folder to write to; left out: a new one in reports/",
        "json": "print one JSON document",
    },
)
def report(c: Context, runs: list[str], output: str = "", json: bool = False) -> None:
    """Write a page and pictures of one run or several; repeats are taken together.

    Example: armload report latest kitchen:llama-3.2-1b-q4_0
    """
    del c
    import json as json_format

    from armload.bench import store
    from armload.bench.references import folders_of
    from armload.cli import terminal
    from armload.cli.output import output_folder
    from armload.report.several import new_folder, write_runs_report

    place = output_folder(output) if output else None
    folders = dict.fromkeys(folder.resolve() for word in runs for folder in folders_of(word))
    with terminal.progress().step("reading runs", total=len(folders), unit="runs") as step:
        found = []
        for number, folder in enumerate(folders, 1):
            found.append(store.load(folder))
            step.update(number)
    written = write_runs_report(found, place or new_folder(found), terminal.progress())
    if json:
        terminal.show_json(json_format.dumps(_document(written), indent=1, ensure_ascii=False))
    else:
        _say(written)


def _say(written: Report) -> None:
    from armload.cli import terminal

    lines = [f"{written.headline}", f"  {written.page}"]
    for picture in written.pictures:
        lines += [f"{picture.figure.title}: {picture.figure.sentence}", f"  {picture.png}"]
    for line in lines:
        terminal.results().print(line, highlight=False, markup=False, soft_wrap=True)


def _document(written: Report) -> dict[str, object]:
    headings = [column.heading for column in written.table.columns]
    return {
        "headline": written.headline,
        "page": str(written.page),
        "figures": [
            {
                "name": picture.figure.name,
                "sentence": picture.figure.sentence,
                "png": str(picture.png),
                "svg": str(picture.svg),
            }
            for picture in written.pictures
        ],
        "table": [
            {
                heading: entry.text if entry.number is None else entry.number
                for heading, entry in zip(headings, row.entries, strict=True)
            }
            for row in written.table.rows
        ],
    }
