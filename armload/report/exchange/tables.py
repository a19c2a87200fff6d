"""Published runs as a table for an issue, and as one for a spreadsheet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from armload.analysis.figures import FIGURES
from armload.analysis.run import Run
from armload.core.columns import Column, main_ones
from armload.core.values import as_csv, format_bytes
from armload.report import formatting as words
from armload.report.cell_table import VALID_RUNS
from armload.report.cells import CELL_FIGURES, Cell, cells_of
from armload.report.layout import Entry, Table
from armload.report.settings import stem, subject, suite_test_of


def token_counts(run: Run) -> str:
    """Write how many tokens the prompt and the output had: ``8 + 128``."""
    prompt, decoded = run.summary.prefill_tokens, run.summary.decode_tokens
    output = None if decoded is None else decoded + 1  # the first comes out of prefill
    return f"{prompt or words.UNKNOWN} + {output or words.UNKNOWN}"


def _verdict(cell: Cell) -> str:
    """Say how far a cell may be believed, and name what speaks against its runs."""
    names = dict.fromkeys(each.name for run in cell.runs for each in run.verdict.findings)
    names.pop("failed", None)
    return " ".join([cell.state, *([f"({', '.join(names)})"] if names else [])])


PUBLISHED: tuple[Column[Cell], ...] = (
    Column(heading="board", of=lambda cell: cell.runs[0].board.name),
    Column(heading="model", of=lambda cell: subject(cell.runs[0])),
    Column(heading="size", of=lambda cell: cell.runs[0].model.size_bytes, write=format_bytes),
    Column(heading="threads", of=lambda cell: cell.threads, is_number=True),
    Column(
        heading="tokens",
        unit="prompt + output",
        of=lambda cell: token_counts(cell.runs[0]),
        is_number=True,
    ),
    Column(heading="test", of=lambda cell: suite_test_of(cell.runs[0]) or None, is_optional=True),
    *main_ones(CELL_FIGURES),
    VALID_RUNS,
    Column(heading="verdict", of=_verdict),
)


def _in_a_line(entry: Entry) -> str:
    return f"{entry.text} ({entry.range})" if entry.range else str(entry.text)


def markdown(runs: Sequence[Run]) -> str:
    """Write a table of the cells of some runs, and below it what they were measured with."""
    cells = cells_of(runs)
    table = Table.of(PUBLISHED, cells)
    rows = [
        [column.title for column in table.columns],
        ["--:" if column.is_number else ":--" for column in table.columns],
        *([*map(_in_a_line, row.entries)] for row in table.rows),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    facts = dict.fromkeys(fact for cell in cells for fact in _facts(cell.runs[0]))
    return "\n".join([*lines, "", *(f"- {fact}" for fact in (*facts, *_doubts(cells)))]) + "\n"


def _doubts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield why runs are not valid: of reasons that differ in figures, the first, and how many."""
    runs = [run for cell in cells for run in cell.runs]
    reasons = (each for run in runs for each in run.verdict.reasons)
    for first, *others in words.alike(reasons, str):
        several = f"{1 + len(others)} of {len(runs)} runs not valid"
        yield f"{several if len(runs) > 1 else 'The run is not valid'}: {first}"


def _facts(run: Run) -> Iterator[str]:
    binary, before, after = run.binary, run.before, run.after
    built = [binary.engine_and_source, binary.compiler]
    yield ", ".join(filter(None, (binary.program, *built, f"measured with armload {run.armload}")))
    governors = f"governor {', '.join(before.governors)}" if before.governors else ""
    warmth = ""
    if before.celsius is not None:
        warmth = f"{before.celsius:.0f} °C"
        if after is not None and after.celsius is not None:
            warmth += f" before, {after.celsius:.0f} °C after"
    memory = f"{words.size(before.memory_total_bytes)} of memory"
    known = (f"kernel {before.kernel}", words.counted(run.board.cores, "core"), memory)
    yield f"{run.board.name}: {', '.join(filter(None, (*known, governors, warmth)))}"
    if run.model.sha256:
        yield f"{stem(run.model.name)}: SHA-256 `{run.model.sha256}`"


_CSV: Mapping[str, Callable[[Run], object]] = {
    "id": lambda run: run.id,
    "started_utc": lambda run: run.started_utc,
    "board": lambda run: run.board.name,
    "target": lambda run: run.board.target,
    "cores": lambda run: run.board.cores,
    "memory_bytes": lambda run: run.before.memory_total_bytes,
    "kernel": lambda run: run.before.kernel,
    "governors": lambda run: " ".join(run.before.governors),
    "celsius_before": lambda run: run.before.celsius,
    "celsius_after": lambda run: run.after and run.after.celsius,
    "model": lambda run: stem(run.model.name),
    "model_sha256": lambda run: run.model.sha256,
    "model_bytes": lambda run: run.model.size_bytes,
    "quantisation": lambda run: run.model.quantisation,
    "parameters": lambda run: run.model.parameters,
    "program": lambda run: run.binary.program,
    "source": lambda run: run.binary.source,
    "engine_commit": lambda run: run.binary.engine_commit,
    "compiler": lambda run: run.binary.compiler,
    "command": lambda run: " ".join(run.command),
    "threads": lambda run: run.trace and run.trace.threads,
    "prompt_tokens": lambda run: run.summary.prefill_tokens,
    "decode_tokens": lambda run: run.summary.decode_tokens,
    **{figure.key: figure.of for figure in FIGURES},
    "joules_per_token": lambda run: run.energy and run.energy.joules_per_token,
    "power_sees": lambda run: run.energy and run.energy.sees,
    "subtracts_idle": lambda run: run.energy and run.energy.subtracts_idle,
    "is_valid": lambda run: run.verdict.valid,
    "findings": lambda run: run.verdict.names,
    "reasons": lambda run: " ".join(run.verdict.reasons),
}


def csv(runs: Sequence[Run]) -> str:
    """Write one line for each run."""
    rows = ({name: column(run) for name, column in _CSV.items()} for run in runs)
    return as_csv([*_CSV], rows)
