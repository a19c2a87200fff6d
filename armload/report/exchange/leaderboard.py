"""A folder of published results as a page that a project can host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from armload import __version__
from armload.analysis.repeats import judged_together
from armload.analysis.run import Run
from armload.bench.suite import standard_suite
from armload.core.columns import Column
from armload.core.errors import ArmloadError, UsageError
from armload.core.files import file_name_of, write_whole
from armload.core.progress import Progress
from armload.core.values import as_json
from armload.core.workspace import reports_folder
from armload.report import formatting as words
from armload.report.cells import Cell, cells_of
from armload.report.exchange.document import Results, read_results
from armload.report.exchange.tables import PUBLISHED
from armload.report.layout import Entry, Table
from armload.report.pages import Page, Report, write_report
from armload.report.suite import SCORE_SENTENCE, suite_rows, suite_table

PAGE_NAME = "index.html"
"""What a web server shows of a folder."""

RESULTS = "results"


def _with_small_print(column: Column[Cell], small: Callable[[Run], str]) -> Column[Cell]:
    return column.from_another(lambda cell: Entry(text=column.of(cell), range=small(cell.runs[0])))


def _engine(run: Run) -> str:
    name = run.binary.engine or words.UNKNOWN
    return f"{name} on {run.plan.device}" if run.plan and run.plan.on_gpu else name


_BOARD, _MODEL, *_FIGURES, _VERDICT = PUBLISHED
_ENGINE = Column[Cell](heading="engine", of=lambda cell: _engine(cell.runs[0]))
_COLUMNS: tuple[Column[Cell], ...] = (
    _with_small_print(_BOARD, lambda run: f"kernel {run.before.kernel or words.UNKNOWN}"),
    _with_small_print(
        _MODEL, lambda run: f"SHA-256 {run.model.sha256[:12]}" if run.model.sha256 else ""
    ),
    *_FIGURES,
    _with_small_print(_ENGINE, lambda run: run.binary.program),
    _with_small_print(_VERDICT, lambda run: f"measured {run.started_utc[:10]}"),
)


def read_folders(paths: Sequence[Path], progress: Progress) -> dict[str, tuple[Run, ...]]:
    """Read the documents in some folders, or single ones, by the names of their files.

    One that is malformed is skipped, with a message.

    Raises:
        UsageError: there is no such folder or file, or no document in them.
        DataError: none of them can be read.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(
                f"There is no folder or file {path}.",
                "Give a folder of documents that armload export --format json wrote.",
            )
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise UsageError(
            f"{', '.join(map(str, paths))}: no .json file found.",
            "Add documents that armload export --format json wrote.",
        )
    found: dict[str, tuple[Run, ...]] = {}
    refused: list[ArmloadError] = []
    for file in files:
        try:
            found[_unique(file_name_of(file.stem), found)] = read_results(file)
        except ArmloadError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    for each in refused:
        progress.say(f"skipped: {each}")
    return found


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.json")) if path.is_dir() else [path]


def _unique(name: str, taken: Mapping[str, object]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    return unique


def write_leaderboard(documents: Mapping[str, tuple[Run, ...]], folder: Path | None) -> Report:
    """Write the page, and beside it the documents as they were understood."""
    place = folder or _new_folder()
    runs = {run.id: run for each in documents.values() for run in each}
    cells = ranked(cells_of(judged_together(list(runs.values()))))
    for name, of_document in documents.items():
        content = as_json(Results(runs=of_document)).encode()
        write_whole(place / RESULTS / f"{name}.json", content)
    suite = standard_suite()
    boards = {cell.runs[0].board.name for cell in cells}
    models = {digits for cell in cells if (digits := cell.runs[0].model.sha256)}
    counts = (len(cells), "result"), (len(models), "model"), (len(boards), "board")
    results, of_models, on_boards = (words.counted(count, noun) for count, noun in counts)
    page = Page(
        template="exchange/leaderboard.html.j2",
        headline=f"{results}: {of_models} on {on_boards}",
        version=__version__,
        table=Table.of(_COLUMNS, cells, state=lambda cell: cell.state),
        name=PAGE_NAME,
        shown={
            "folder": RESULTS,
            "documents": list(documents),
            "suite": suite,
            "suite_sentence": SCORE_SENTENCE,
            "suite_table": suite_table(suite_rows(list(runs.values()), suite)),
        },
    )
    return write_report(page, place)


def _new_folder() -> Path:
    number = 1
    while (place := reports_folder() / f"leaderboard-{number}").exists():
        number += 1
    return place


def ranked(cells: Sequence[Cell]) -> list[Cell]:
    """Sort by the median time per token; what is not valid comes last."""
    return sorted(cells, key=_rank)


def _rank(cell: Cell) -> tuple[bool, float, str, str]:
    run = cell.runs[0]
    return not cell.is_valid, cell.median_s or math.inf, run.board.name, run.model.name
