"""A sweep of made runs: two models, four thread counts, five repeats, and what can go wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence

from armload.analysis.conditions_log import RunConditions
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import Limit
from armload.analysis.run import Run
from armload.analysis.summary import summarise
from armload.analysis.verdict import Verdict, judge
from armload.deploy.exit_reason import Exit
from armload.engines.job import ModelRecord
from armload.engines.output import Memory, Output
from armload.engines.trace import Step
from armload.models.context_memory import ContextMemory
from tests.unit.runs import planned, quick_run

THREADS = (1, 2, 4, 8)
REPEATS = 5
CORES = 8

Q4 = ModelRecord(
    name="Llama-3.2-1B-Instruct-Q4_0.gguf",
    sha256="4" * 64,
    size_bytes=770_928_288,
    architecture="llama",
    quantisation="Q4_0",
    parameters=1_235_814_432,
    bytes_per_token=760_000_000,
    context_memory=ContextMemory(key_values=8_192, value_values=8_192),
)
Q8 = Q4.model_copy(
    update={
        "name": "Llama-3.2-1B-Instruct-Q8_0.gguf",
        "sha256": "8" * 64,
        "size_bytes": 1_321_079_456,
        "quantisation": "Q8_0",
        "bytes_per_token": 1_310_000_000,
    }
)
SPEEDUP = {1: 1.0, 2: 1.9, 4: 2.95, 8: 2.3}
TOKEN_S = {Q4.sha256: 0.41, Q8.sha256: 0.69}


def made_run(
    model: ModelRecord = Q4,
    threads: int = 4,
    *,
    repeat: int = 0,
    tokens: int = 32,
    throttled: bool = False,
    board: str = "kitchen",
) -> Run:
    """Return a run whose speed follows from the model's size and the number of threads."""
    base = quick_run(tokens=tokens)
    chance = random.Random(f"{model.sha256} {threads} {repeat} {board}")
    level = TOKEN_S.get(model.sha256, 0.5) / SPEEDUP[threads] * chance.gauss(1, 0.006)
    steps: list[Step] = []
    start_ns = base.steps[0].start_ns
    for number, step in enumerate(base.steps):
        slowed = throttled and number > tokens // 2
        duration_s = level * (1.6 if slowed else 1.0) * chance.gauss(1, 0.008)
        duration_s *= 2.1 if number == 0 else 1 + 0.0007 * number
        duration_s *= 1.5 if number == 20 else 1.0
        steps.append(
            step.model_copy(
                update={
                    "start_ns": start_ns,
                    "end_ns": start_ns + round(duration_s * 1e9),
                    "cpu_ns": round(duration_s * 1e9 * threads * (0.6 if number == 20 else 0.97)),
                    "rss_bytes": (model.size_bytes or 0) + 60_000_000 + number * 200_000,
                    "cpu_khz": (1_200_000 if slowed else 1_992_000,) * CORES,
                    "celsius": 84.0 if slowed else 61.0,
                }
            )
        )
        start_ns = steps[-1].end_ns + 400_000
    return _finished(base, model, threads, tuple(steps), repeat=repeat, board=board)


def failed_run_of(model: ModelRecord, threads: int, *, repeat: int = 0) -> Run:
    """Return a run that the board's kernel ended for want of memory."""
    ended = Exit(
        kind="out of memory",
        status=137,
        meaning="The kernel killed the program: the board ran out of memory.",
        remedy="Take a smaller model, or a shorter context.",
    )
    return _finished(quick_run(), model, threads, (), repeat=repeat, board="kitchen", ended=ended)


def sweep() -> list[Run]:
    """Return 40 runs of 8 settings, one of them throttled, and two of a ninth that failed."""
    runs = [
        made_run(
            model,
            threads,
            repeat=repeat,
            throttled=(model, threads, repeat) == (Q8, 8, 3),
        )
        for model in (Q4, Q8)
        for threads in THREADS
        for repeat in range(REPEATS)
    ]
    large = Q8.model_copy(
        update={
            "name": "Llama-3.2-1B-Instruct-F16.gguf",
            "sha256": "f" * 64,
            "size_bytes": 2_479_595_616,
            "quantisation": "F16",
            "bytes_per_token": 2_470_000_000,
        }
    )
    return [*runs, failed_run_of(large, 4), failed_run_of(large, 4, repeat=1)]


def _finished(
    base: Run,
    model: ModelRecord,
    threads: int,
    steps: Sequence[Step],
    *,
    repeat: int,
    board: str,
    ended: Exit | None = None,
) -> Run:
    steps = tuple(steps)
    trace = base.trace.model_copy(update={"threads": threads}) if base.trace and steps else None
    record = base.board.model_copy(
        update={"name": board, "description": "the RK3588 board in the kitchen", "cores": CORES}
    )
    before = base.before.model_copy(update={"memory_available_bytes": 1_870_000_000})
    plan = planned(base, threads=threads).plan
    ended = ended or base.exit
    peak = max((step.rss_bytes for step in steps), default=None)
    number = threads * 10 + repeat
    return base.model_copy(
        update={
            "id": f"20261121T02{number:02}00Z-{board}-{model.name.removesuffix('.gguf')}-"
            f"{threads}{repeat}{model.sha256[:2]}",
            "started_utc": f"2026-11-21T02:{number % 60:02}:00+00:00",
            "plan": plan,
            "board": record,
            "model": model,
            "trace": trace,
            "steps": steps,
            "summary": summarise(trace, steps),
            "memory": Memory(max_rss_bytes=peak, max_vms_bytes=2 * peak) if peak else None,
            "text": base.text if steps else "",
            "before": before,
            "after": base.after,
            "exit": ended,
            "limit": Limit.of(find_limit(steps, trace, model=model, board=record, before=before)),
            "verdict": Verdict.of(
                judge(
                    base.model_copy(update={"plan": plan, "board": record, "before": before}),
                    Output(header=trace, steps=steps, text=base.text if steps else ""),
                    ended,
                    RunConditions(after=base.after),
                )
            ),
        }
    )
