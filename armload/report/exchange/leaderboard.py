"""A folder of published results as a page that a project can host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload import __version__
from armload.analysis.repeats import judged_together
from armload.analysis.run import Run
from armload.core.errors import ArmloadError, UsageError
from armload.core.files import file_name_of, write_whole
from armload.core.progress import Progress
from armload.core.values import as_json
from armload.core.workspace import reports_folder
from armload.report import formatting as words
from armload.report.cells import Cell, cells_of
from armload.report.exchange.document import Results, read_results
from armload.report.exchange.tables import token_counts, token_time
from armload.report.layout import Column, Entry, Table
from armload.report.pages import Page, Report, write_report
from armload.report.settings import stem

PAGE_NAME = "index.html"
"""What a web server shows of a folder."""

RESULTS = "results"

_COLUMNS = (
    Column(heading="board"),
    Column(heading="model"),
    Column(heading="median", unit="per token", is_number=True),
    Column(heading="decode", unit="tokens/s", is_number=True),
    Column(heading="prefill", unit="tokens/s", is_number=True),
    Column(heading="threads", is_number=True),
    Column(heading="size", unit="of the model", is_number=True),
    Column(heading="memory", unit="at its peak", is_number=True),
    Column(heading="engine"),
    Column(heading="measured"),
    Column(heading="verdict"),
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
    boards = {cell.runs[0].board.name for cell in cells}
    models = {digits for cell in cells if (digits := cell.runs[0].model.sha256)}
    counts = (len(cells), "result"), (len(models), "model"), (len(boards), "board")
    results, of_models, on_boards = (words.counted(count, noun) for count, noun in counts)
    page = Page(
        template="exchange/leaderboard.html.j2",
        headline=f"{results}: {of_models} on {on_boards}",
        version=__version__,
        table=leaderboard_table(cells),
        name=PAGE_NAME,
        shown={"folder": RESULTS, "documents": list(documents)},
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
    found = token_time(cell)
    run = cell.runs[0]
    return not cell.is_valid, found.value if found else math.inf, run.board.name, run.model.name


def leaderboard_table(cells: Sequence[Cell]) -> Table:
    """Lay out cells in their order."""
    table = Table(*_COLUMNS)
    for cell in cells:
        table.add(*_entries(cell), state=cell.state)
    return table


def _entries(cell: Cell) -> tuple[Entry, ...]:
    run, median = cell.runs[0], token_time(cell)
    tokens_per_s = cell.decode_tps.value if cell.decode_tps else None
    prompt_per_s = cell.prefill_tps.value if cell.prefill_tps else None
    digits = f"SHA-256 {run.model.sha256[:12]}" if run.model.sha256 else ""
    count = f"{len(cell.valid)} of {words.counted(len(cell.runs), 'run')}"
    interval = ""
    if median is not None and not math.isinf(median.high):
        interval = f"{words.seconds(median.low)} to {words.seconds(median.high)}"
    return (
        Entry(text=run.board.name, range=f"kernel {run.before.kernel or words.UNKNOWN}"),
        Entry(text=stem(run.model.name) or run.binary.program, range=digits),
        Entry(
            text=words.seconds(median.value if median else None),
            number=median.value if median else None,
            range=interval,
        ),
        Entry(text=words.rate(tokens_per_s), number=tokens_per_s),
        Entry(text=words.rate(prompt_per_s), number=prompt_per_s),
        Entry(
            text=str(cell.threads or words.UNKNOWN),
            number=cell.threads,
            range=f"{token_counts(run)} tokens" if cell.threads else "",
        ),
        Entry(text=words.size(run.model.size_bytes), number=run.model.size_bytes),
        Entry(text=words.size(cell.max_rss_bytes), number=cell.max_rss_bytes),
        Entry(text=run.binary.engine or words.UNKNOWN, range=run.binary.program),
        Entry(text=run.started_utc[:10]),
        Entry(text=cell.state, range=count),
    )
