"""Whole runs, computed as real ones are, from made-up steps."""

from __future__ import annotations

import random

from armload.analysis.conditions_log import RunConditions
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import Limit
from armload.analysis.run import Run
from armload.analysis.summary import summarise
from armload.analysis.verdict import Verdict, judge
from armload.boards.conditions import Conditions
from armload.deploy.exit_reason import Exit
from armload.engines.job import BinaryRecord, BoardRecord, ModelRecord
from armload.engines.output import Memory, Output
from armload.engines.plan import Plan
from armload.engines.trace import Step, Trace
from armload.models.context_memory import ContextMemory

START_NS = 41_000_000_000
TEXT = (
    " large side land thing door my study after door kind land side on bird happy once heart time "
    "number much winter how high kind"
)

BOARD = BoardRecord(
    name="virtual-dayu200",
    target="rk3568",
    description="a virtual DAYU200: cortex-a55, 2 GB, eMMC at 165 MB/s",
    cpu_features=("fp", "asimd", "aes", "crc32", "atomics", "fphp", "asimdhp", "asimddp"),
    cores=2,
    storage_read_bytes_per_s=165_000_000,
)
BINARY = BinaryRecord(
    program="llama-completion",
    sha256="5" * 64,
    build_id="3f2a9c81d07e",
    target="rk3568",
    compiler="zig 0.15.2",
    source="llama-cpp-python 0.3.36",
    engine_commit="b7000",
)
BEFORE = Conditions(
    boot_id="d1f0",
    uptime_s=61.0,
    kernel="6.12.48-cloud-arm64",
    load_1min=0.14,
    memory_total_bytes=2_062_000_000,
    memory_available_bytes=1_870_000_000,
    swap_used_bytes=0,
    swap_total_bytes=0,
    workdir_free_bytes=7_400_000_000,
)
SMALL_MODEL = ModelRecord(
    name="random-12x768-q4_0-seed1.gguf",
    sha256="a" * 64,
    size_bytes=46_196_768,
    architecture="llama",
    quantisation="Q4_0",
    parameters=81_808_128,
    bytes_per_token=44_314_032,
    context_memory=ContextMemory(key_values=3_072, value_values=3_072),
)
LARGE_MODEL = ModelRecord(
    name="Llama-3.1-8B-Instruct-Q2_K.gguf",
    sha256="b" * 64,
    size_bytes=3_179_131_104,
    architecture="llama",
    quantisation="Q2_K",
    parameters=8_030_261_312,
    bytes_per_token=3_006_000_000,
    context_memory=ContextMemory(key_values=32_768, value_values=32_768),
)


def quick_run(*, tokens: int = 32, text: str = TEXT, prompt: str | None = None) -> Run:
    """Return a run whose model stays in memory, with one token that was preempted."""
    chance = random.Random(1)
    steps = [_step(0, 0, 8, 0.33, busy=1.96)]
    for number in range(1, tokens):
        late = number == 20
        duration_s = chance.gauss(0.0664, 0.0012) + (0.031 if late else 0.0)
        start_ns = steps[-1].end_ns + 400_000
        busy = 1.4 if late else 1.96
        steps.append(_step(number, start_ns, 1, duration_s, busy=busy, switches=9 if late else 0))
    plan = Plan(n_predict=tokens) if prompt is None else Plan(n_predict=tokens, prompt=prompt)
    return _run(plan, SMALL_MODEL, tuple(steps), text=text, rss_bytes=131_000_000)


def storage_run() -> Run:
    """Return a run whose model is larger than the memory."""
    chance = random.Random(2)
    steps = [_step(0, 0, 8, 31.2, busy=1.1, read_bytes=3_010_000_000)]
    for number in range(1, 24):
        read_bytes = round(chance.gauss(2_990_000_000, 20_000_000))
        duration_s = read_bytes / 165e6 + chance.gauss(0.0, 0.35)
        start_ns = steps[-1].end_ns + 1_000_000
        steps.append(_step(number, start_ns, 1, duration_s, busy=0.4, read_bytes=read_bytes))
    plan = Plan(n_predict=24)
    return _run(plan, LARGE_MODEL, tuple(steps), text=TEXT, rss_bytes=1_801_000_000)


def failed_run() -> Run:
    """Return a run that ended before it decoded anything."""
    ended = Exit(
        kind="illegal instruction",
        status=132,
        meaning="The program used an instruction that the CPU lacks (SIGILL).",
        remedy="Build it for this board's target.",
    )
    return _run(Plan(), SMALL_MODEL, (), text="", rss_bytes=None, ended=ended)


def _step(
    number: int,
    start_ns: int,
    tokens: int,
    duration_s: float,
    *,
    busy: float,
    read_bytes: int = 0,
    switches: int = 0,
) -> Step:
    begins_ns = start_ns or START_NS + 410_000_000
    return Step(
        step=number,
        tokens=tokens,
        prompt_tokens=0 if number else tokens,
        generated_tokens=tokens if number else 0,
        start_ns=begins_ns,
        end_ns=begins_ns + round(duration_s * 1e9),
        major_faults=read_bytes // 131_072,
        read_bytes=read_bytes,
        rss_bytes=130_000_000,
        cpu_ns=round(busy * duration_s * 1e9),
        involuntary_switches=switches,
    )


def _run(
    plan: Plan,
    model: ModelRecord,
    steps: tuple[Step, ...],
    *,
    text: str,
    rss_bytes: int | None,
    ended: Exit | None = None,
) -> Run:
    trace = Trace(
        format=1,
        clock="CLOCK_MONOTONIC",
        engine_commit="b7000",
        page_bytes=4096,
        threads=2,
        start_ns=START_NS,
    )
    header = trace if steps else None
    after = BEFORE.model_copy(update={"uptime_s": 66.0, "load_1min": 0.9})
    ended = ended or Exit(kind="done", status=0, meaning="The program ended well.")
    run = Run(
        engine_name="llama-completion",
        fingerprint="f" * 12,
        id=f"20261121T021500Z-{BOARD.name}-{model.name.removesuffix('.gguf')}-1f2e",
        started_utc="2026-11-21T02:15:00+00:00",
        armload="0.1.0",
        plan=plan,
        command=(
            "/data/local/tmp/armload/bin/555555555555/llama-completion",
            "-m",
            f"/data/local/tmp/armload/models/aaaaaaaaaaaa/{model.name}",
            "-p",
            plan.prompt,
            "-n",
            str(plan.n_predict),
            "-no-cnv",
        ),
        board=BOARD,
        binary=BINARY,
        model=model,
        before=BEFORE,
        after=after,
        trace=header,
        steps=steps,
        summary=summarise(header, steps),
        engine=None,
        memory=Memory(max_rss_bytes=rss_bytes, max_vms_bytes=2 * rss_bytes) if rss_bytes else None,
        text=text,
        exit=ended,
        limit=Limit.of(find_limit(steps, header, model=model, board=BOARD, before=BEFORE)),
        verdict=Verdict(valid=True),
    )
    output = Output(header=header, steps=steps, text=text)
    found = judge(run, output, ended, RunConditions(after=after))
    return run.model_copy(update={"verdict": Verdict.of(found)})


def planned(run: Run, **changes: object) -> Run:
    """Return a run with another plan."""
    assert run.plan is not None
    return run.model_copy(update={"plan": run.plan.model_copy(update=changes)})


def weights_bytes(model: ModelRecord) -> int:
    """Return what a token reads of a model whose header was read."""
    assert model.bytes_per_token is not None
    return model.bytes_per_token
