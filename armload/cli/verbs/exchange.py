"""``export`` and ``import``: results that others can check, and those of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option, Yields
from armload.core.workspace import imports_folder
from armload.report.exchange import Format, Included

if TYPE_CHECKING:
    from armload.report.result import Result


class ExportOptions(OutputOptions):
    """What is published, and in which format."""

    yields: ClassVar[Yields] = {"as_json": ("format",)}

    runs: Annotated[
        tuple[str, ...],
        Option(
            "runs: an id or folder, latest, BOARD:MODEL, or several of these, comma-separated",
            several="repeat",
            is_argument=True,
        ),
    ]
    format: Annotated[
        Format,
        Option(
            "markdown: a table for an issue; csv: one line per run; json: a document that import "
            "reads, with the time of every token; llama-bench: the fields of llama-bench -o json",
            "FORMAT",
        ),
    ] = "markdown"
    include: Annotated[
        tuple[Included, ...],
        Option(
            "also publish details that may identify you: the board's name, the model file's "
            "name, or the prompt and the generated text",
            "board|model|prompt",
            "none",
            "commas",
        ),
    ] = ()
    as_json: Annotated[
        bool, Option("the same as --format json", name="json", harmless="anywhere")
    ] = False


@verb(ExportOptions)
def export(options: ExportOptions) -> Result:
    """Print results for others to check, without details that identify you.

    Example: armload export latest --format json > result.json
    """
    from armload.analysis.repeats import judged_together
    from armload.bench.run_names import folders_of
    from armload.report.exchange.document import results_of
    from armload.report.exchange.excerpt import excerpt_of
    from armload.report.exchange.tables import csv, llama_bench, markdown
    from armload.report.result import Verbatim, as_result
    from armload.runs import store

    if options.as_json:
        options = options.refuse(("format",), "--json", "Remove one.")
    folders = dict.fromkeys(
        folder.resolve() for word in options.runs for folder in folders_of(word)
    )
    runs = [excerpt_of(store.load(folder), options.include) for folder in folders]
    if options.as_json or options.format == "json":
        document = results_of(runs)
        return as_result(document, document)
    write = {"markdown": markdown, "csv": csv, "llama-bench": llama_bench}[options.format]
    return as_result(None, Verbatim(text=write(judged_together(runs))))


class ImportOptions(OutputOptions):
    """What is imported."""

    files: Annotated[
        tuple[str, ...],
        Option(
            "documents that armload export --format json wrote",
            several="repeat",
            is_argument=True,
        ),
    ]


@verb(ImportOptions, "import", results=(imports_folder,))
def import_results(options: ImportOptions) -> Result:
    """Import results that others exported, to compare with your own.

    Example: armload import result.json
    """
    from armload.core.files import is_there, require_file
    from armload.core.values import ValueList
    from armload.core.workspace import RUN_FILE, imports_folder
    from armload.report.exchange.document import imported_view, read_results
    from armload.report.result import as_result
    from armload.runs import store
    from armload.runs.folders import run_folders

    remedy = "Give a document that armload export --format json wrote."
    for file in map(Path, options.files):
        require_file(file, "file", remedy)
    runs = {run.id: run for file in options.files for run in read_results(Path(file))}
    known = [run_id for run_id in runs if is_there(imports_folder() / run_id / RUN_FILE)]
    for run in runs.values():
        store.save(run, imports_folder() / run.id)
    view = imported_view([*runs.values()], known=len(known), has_own=bool(run_folders()))
    return as_result(ValueList[str](tuple(runs)), *view)
