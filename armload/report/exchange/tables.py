"""Published runs as a table for an issue, and as one for a spreadsheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from armload.analysis.confidence_sequence import FEWEST_FIGURES
from armload.analysis.repeats import known
from armload.analysis.run import Run
from armload.analysis.statistics import Interval
from armload.core.values import as_csv
from armload.report import formatting as words
from armload.report.cells import Cell, Estimate, cells_of, estimate
from armload.report.settings import stem


def token_time(cell: Cell) -> Estimate | None:
    """Return the median time per token over a cell's runs, and where it lies.

    The interval is the one that ``show`` gives for the run, or for the repeats; of too few repeats
    it has no upper end.
    """
    if any(run.place is not None and run.place.precision is not None for run in cell.runs):
        found = known(cell.runs)
        if found is not None:
            place = found.interval_s or Interval(low=0.0, high=math.inf)
            return Estimate(value=found.p50_s, low=place.low, high=place.high)
    medians = [run.summary.token_s.p50 for run in cell.counted if run.summary.token_s]
    return estimate(medians, cell.rows_s)


def median_words(found: Estimate | None) -> str:
    """Write a time with its interval: ``66.4 ms (63.2 to 69.8 ms)``."""
    if found is None:
        return words.UNKNOWN
    if math.isinf(found.high):
        return f"{words.seconds(found.value)} (an interval needs {FEWEST_FIGURES} runs)"
    low, high = words.seconds(found.low), words.seconds(found.high)
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"{words.seconds(found.value)} ({low} to {high})"


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


_COLUMNS: Mapping[str, Callable[[Cell], str]] = {
    "board": lambda cell: cell.runs[0].board.name,
    "model": lambda cell: stem(cell.runs[0].model.name) or cell.runs[0].binary.program,
    "size": lambda cell: words.size(cell.runs[0].model.size_bytes),
    "threads": lambda cell: str(cell.threads or words.UNKNOWN),
    "tokens (prompt + output)": lambda cell: token_counts(cell.runs[0]),
    "prefill (tokens/s, mean)": lambda cell: _rate(cell.prefill_tps),
    "decode (tokens/s, mean)": lambda cell: _rate(cell.decode_tps),
    "median per token (95% CI)": lambda cell: median_words(token_time(cell)),
    "peak memory": lambda cell: words.size(cell.max_rss_bytes),
    "runs": lambda cell: str(len(cell.runs)),
    "verdict": _verdict,
}
_LEFT = ("board", "model", "verdict")


def markdown(runs: Sequence[Run]) -> str:
    """Write a table of the cells of some runs, and below it what they were measured with."""
    cells = cells_of(runs)
    rule = [":--" if name in _LEFT else "--:" for name in _COLUMNS]
    rows = [[column(cell) for column in _COLUMNS.values()] for cell in cells]
    lines = [f"| {' | '.join(row)} |" for row in ([*_COLUMNS], rule, *rows)]
    facts = dict.fromkeys(fact for cell in cells for fact in _facts(cell.runs[0]))
    return "\n".join([*lines, "", *(f"- {fact}" for fact in (*facts, *_doubts(cells)))]) + "\n"


def _doubts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield why runs are not valid: of reasons that differ in figures, the first, and how many."""
    runs = [run for cell in cells for run in cell.runs]
    reasons = (each for run in runs for each in run.verdict.reasons)
    for first, *others in words.alike(reasons, str):
        several = f"{1 + len(others)} of {len(runs)} runs not valid"
        yield f"{several if len(runs) > 1 else 'The run is not valid'}: {first}"


def _rate(found: Estimate | None) -> str:
    return words.rate(found.value if found else None)


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
    "ttft_s": lambda run: run.summary.ttft_s,
    "prefill_tps": lambda run: run.summary.prefill_tps,
    "decode_tps": lambda run: run.summary.decode_tps,
    "token_p50_s": lambda run: run.summary.token_s and run.summary.token_s.p50,
    "token_p90_s": lambda run: run.summary.token_s and run.summary.token_s.p90,
    "token_p99_s": lambda run: run.summary.token_s and run.summary.token_s.p99,
    "token_max_s": lambda run: run.summary.token_s and run.summary.token_s.max,
    "max_rss_bytes": lambda run: run.memory and run.memory.max_rss_bytes,
    "joules_per_token": lambda run: run.energy and run.energy.joules_per_token,
    "power_sees": lambda run: run.energy and run.energy.sees,
    "subtracts_idle": lambda run: run.energy and run.energy.subtracts_idle,
    "is_valid": lambda run: run.verdict.valid,
    "findings": lambda run: ", ".join(each.name for each in run.verdict.findings),
    "reasons": lambda run: " ".join(run.verdict.reasons),
}


def csv(runs: Sequence[Run]) -> str:
    """Write one line for each run."""
    rows = ({name: column(run) for name, column in _CSV.items()} for run in runs)
    return as_csv([*_CSV], rows)
