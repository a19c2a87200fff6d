"""Runs with streamed weights, with the figures of real ones of a 1.1 GB model."""

from __future__ import annotations

from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import Limit
from armload.analysis.run import Run
from armload.analysis.summary import summarise
from armload.analysis.verdict import Verdict
from armload.engines.job import ModelRecord
from armload.engines.output import Memory
from armload.engines.trace import Step, Weights
from armload.models.context_memory import ContextMemory
from tests.unit.runs import BEFORE, BOARD, quick_run

MODEL = ModelRecord(
    name="random-1.9B-q4_0.gguf",
    sha256="9" * 64,
    size_bytes=1_106_000_000,
    architecture="llama",
    quantisation="Q4_0",
    parameters=1_900_000_000,
    bytes_per_token=1_100_000_000,
    context_memory=ContextMemory(key_values=8_192, value_values=8_192),
)
HELD = Weights(
    weights="streamed",
    before_step=0,
    available_bytes=684_699_648,
    weights_bytes=1_100_259_328,
    resident_bytes=501_248_000,
    locked_bytes=501_248_000,
    window_bytes=42_793_728,
)
RELEASED = HELD.model_copy(
    update={"before_step": 4, "locked_bytes": 323_772_416, "released_bytes": 177_475_584}
)
STORAGE_BYTES_PER_S = 165_000_000
COMPUTE_S = 2.2
FREE_BYTES = 730_000_000
_REQUESTED_BYTES_OFF = 180_224
"""Of which the kernel's count of locked memory differs from the program's."""


def streamed_run(*weights: Weights, tokens: int = 8, free_bytes: int = FREE_BYTES) -> Run:
    """Return a run whose tokens wait for what reading takes longer than computing."""
    held = weights or (HELD,)
    steps: list[Step] = []
    for number in range(tokens):
        now = [each for each in held if each.before_step <= number][-1]
        read_bytes = now.streamed_bytes if number else now.weights_bytes
        reading_s = read_bytes / STORAGE_BYTES_PER_S
        duration_s = max(COMPUTE_S, reading_s)
        steps.append(
            _step(
                number,
                start_ns=steps[-1].end_ns + 400_000 if steps else BEGIN_NS,
                duration_s=duration_s,
                read_bytes=read_bytes,
                rss_bytes=now.held_bytes + 54_000_000,
            ).model_copy(
                update={
                    "storage_wait_ns": round((duration_s - COMPUTE_S) * 1e9),
                    "locked_bytes": now.locked_bytes - _REQUESTED_BYTES_OFF,
                }
            )
        )
    return _run(tuple(steps), held, free_bytes)


def mapped_run(*, tokens: int = 8, free_bytes: int = FREE_BYTES) -> Run:
    """Return a run of the same model, which reads it as a whole for each token."""
    steps: list[Step] = []
    for number in range(tokens):
        start_ns = steps[-1].end_ns + 400_000 if steps else BEGIN_NS
        read_bytes = HELD.weights_bytes
        duration_s = read_bytes / STORAGE_BYTES_PER_S + 1.0
        steps.append(
            _step(
                number,
                start_ns=start_ns,
                duration_s=duration_s,
                read_bytes=read_bytes,
                rss_bytes=600_000_000,
            )
        )
    return _run(tuple(steps), (), free_bytes)


BEGIN_NS = quick_run(tokens=2).steps[0].start_ns


def _step(
    number: int, *, start_ns: int, duration_s: float, read_bytes: int, rss_bytes: int
) -> Step:
    return Step(
        step=number,
        tokens=1 if number else 4,
        prompt_tokens=0 if number else 4,
        generated_tokens=1 if number else 0,
        start_ns=start_ns,
        end_ns=start_ns + round(duration_s * 1e9),
        major_faults=2 if number else 1,
        read_bytes=read_bytes,
        rss_bytes=rss_bytes,
        cpu_ns=round(1.9 * COMPUTE_S * 1e9),
    )


def _run(steps: tuple[Step, ...], weights: tuple[Weights, ...], free_bytes: int) -> Run:
    base = quick_run(tokens=len(steps))
    assert base.trace is not None
    assert base.plan is not None
    trace = base.trace.model_copy(update={"weights": weights})
    wanted = weights[0].requested_bytes if weights else None
    mode = "streamed" if weights else "mapped"
    plan = base.plan.model_copy(update={"weights": mode, "resident_bytes": wanted})
    before = BEFORE.model_copy(
        update={"memory_available_bytes": free_bytes, "memory_total_bytes": 800_000_000}
    )
    peak = max(step.rss_bytes for step in steps)
    return base.model_copy(
        update={
            "id": f"20261122T120000Z-{BOARD.name}-{mode}-{wanted}-{free_bytes}",
            "plan": plan,
            "command": (*base.command, "-c", "256"),
            "model": MODEL,
            "before": before,
            "trace": trace,
            "verdict": Verdict(valid=True),
            "steps": steps,
            "summary": summarise(trace, steps),
            "memory": Memory(max_rss_bytes=peak, max_vms_bytes=2 * peak),
            "limit": Limit.of(find_limit(steps, trace, model=MODEL, board=BOARD, before=before)),
        }
    )
