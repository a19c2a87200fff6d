"""Published runs as a table for an issue, one for a spreadsheet, and what ``llama-bench`` writes.

Fields of ``llama-bench -o json`` and their order are those of ``tools/llama-bench/llama-bench.cpp``
(``struct test``, October 2026). What a run of armload has no equivalent of holds llama-bench's own
default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, stdev

from armload.analysis.figures import FIGURES
from armload.analysis.measurement import measurement_of
from armload.analysis.run import Run
from armload.build.binary import release_and_commit
from armload.core.columns import Column, main_ones
from armload.core.cpu_sets import cpu_mask
from armload.core.values import as_csv, format_bytes
from armload.engines.llama_cpp import ALL_LAYERS, repacked
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.report import formatting as words
from armload.report.cell_table import VALID_RUNS
from armload.report.cells import CELL_FIGURES, Cell, cells_of
from armload.report.formatting import weights
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


_BATCH_TOKENS = 2048
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


def llama_bench(runs: Sequence[Run]) -> str:
    """Write a test of prefill and one of decode for each cell; repeats are its samples.

    Decode follows the prompt, so it is a test at the depth of the prompt; with ``--depth``, both
    are so much deeper.
    """
    tests = [test for cell in cells_of(runs) for test in _tests(cell)]
    return json.dumps(tests, indent=2, ensure_ascii=False) + "\n"


def _tests(cell: Cell) -> Iterator[dict[str, object]]:
    counted = [run.summary for run in cell.counted]
    prefill = [(each.prefill_s, each.prefill_tokens) for each in counted]
    decode = [(each.decode_s, each.decode_tokens) for each in counted]
    prompt_tokens = max((tokens or 0 for _, tokens in prefill), default=0)
    plan = cell.runs[0].plan
    filled = plan.depth_tokens if plan else 0
    yield from _test(cell, prefill, is_prompt=True, depth=filled)
    yield from _test(cell, decode, is_prompt=False, depth=filled + prompt_tokens)


def _test(
    cell: Cell,
    timed: Sequence[tuple[float | None, int | None]],
    *,
    is_prompt: bool,
    depth: int,
) -> Iterator[dict[str, object]]:
    known = [(seconds, tokens) for seconds, tokens in timed if seconds and tokens]
    if not known:
        return
    tokens = known[0][1]
    samples_ns = [round(seconds * 1e9) for seconds, count in known if count == tokens]
    rates = [1e9 * tokens / ns for ns in samples_ns]
    yield {
        **_setup(cell.counted[0]),
        "n_prompt": tokens if is_prompt else 0,
        "n_gen": 0 if is_prompt else tokens,
        "n_depth": depth,
        "test_time": cell.runs[0].started_utc.replace("+00:00", "Z"),
        "avg_ns": round(fmean(samples_ns)),
        "stddev_ns": round(stdev(samples_ns)) if len(samples_ns) > 1 else 0,
        "avg_ts": fmean(rates),
        "stddev_ts": stdev(rates) if len(rates) > 1 else 0.0,
        "samples_ns": samples_ns,
        "samples_ts": rates,
    }


def _setup(run: Run) -> dict[str, object]:
    plan, model = run.plan, run.model
    size = weights(model.parameters) if model.parameters else ""
    build_number, commit = release_and_commit(run.binary.engine_commit)
    kv_type = measurement_of(run).work.kv_type or "f16/f16"
    on_gpu = plan is not None and plan.on_gpu
    gpus = run.placement.devices if run.placement else ()
    mask = cpu_mask(plan.cpus) if plan and plan.cpus else "0"
    return {
        "build_commit": commit or "unknown",
        "build_number": build_number,
        "cpu_info": run.board.device or run.board.name,
        "gpu_info": ", ".join(filter(None, (each.description for each in gpus))),
        "backends": "Vulkan" if on_gpu else "CPU",
        "model_filename": model.name,
        "model_type": " ".join(filter(None, (model.architecture, size, model.quantisation))),
        "model_size": model.size_bytes or 0,
        "model_n_params": model.parameters or 0,
        "n_batch": (plan and plan.batch_tokens) or _BATCH_TOKENS,
        "n_ubatch": (plan and plan.micro_batch_tokens) or MICRO_BATCH_TOKENS,
        "n_threads": (run.trace and run.trace.threads) or (plan and plan.threads) or 0,
        "cpu_mask": f"0x{mask}",
        "cpu_strict": False,
        "poll": 50,
        "type_k": kv_type.partition("/")[0],
        "type_v": kv_type.partition("/")[2],
        "n_gpu_layers": int(ALL_LAYERS) if on_gpu else 0,
        "n_cpu_moe": 0,
        "split_mode": "layer",
        "main_gpu": 0,
        "no_kv_offload": False,
        "flash_attn": _FLASH_ATTENTION[(plan and plan.flash_attention) or "auto"],
        "devices": "/".join(each.name for each in gpus) or "none",
        "tensor_split": "0.00",
        "tensor_buft_overrides": "none",
        "load_mode": "auto",
        "lazy_mode": "auto",
        "embeddings": False,
        "no_op_offload": 0,
        "no_host": False,
        "repack": repacked(run.command),
        "fit_target": 0,
        "fit_min_ctx": 0,
    }
