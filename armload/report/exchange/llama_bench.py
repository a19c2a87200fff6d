"""Published runs with the fields of ``llama-bench -o json``.

Fields and their order are those of ``tools/llama-bench/llama-bench.cpp`` (``struct test``, October
2026). What a run of armload has no equivalent of holds llama-bench's own default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from armload.analysis.measurement import measurement_of
from armload.analysis.run import Run
from armload.build.binary import release_and_commit
from armload.core.cpu_sets import cpu_mask
from armload.engines.llama_cpp import ALL_LAYERS, repacked
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.report.cells import Cell, cells_of
from armload.report.formatting import weights

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
