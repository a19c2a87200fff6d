"""What came back from a board: the published format of ``run.json``.

Format history: 1, the first.
"""

from __future__ import annotations

from typing import Literal

from armload.bench.measures import Cache, Swapped
from armload.bench.record import Job
from armload.bench.sanity import Departure
from armload.bench.strangers import Stranger
from armload.boards.conditions import Conditions
from armload.core.values import Value
from armload.deploy.ending import Kind

FORMAT = 1


class Step(Value):
    """One decode step of the engine, timed on the board.

    Attributes:
        step: number from 0.
        phase: ``prompt`` or ``generate``.
        tokens: tokens that went through the model in this step.
        start_ns, end_ns: on the board's ``CLOCK_MONOTONIC``.
        major_faults: page faults that had to wait for storage, in this step, all threads.
        read_bytes: bytes that the process had fetched from storage in this step; none
            where the kernel does not count them.
        rss_bytes: resident memory at the end of the step.
        cpu_ns: CPU time of all threads in this step.
        involuntary_switches: times that a thread was made to give way in this step; none where
            counting them would have cost too much.
        cpu_khz: frequency of each core at the end of the step; empty where unknown.
        celsius: hottest sensor at the end of the step; none where there is none.
    """

    step: int
    phase: Literal["prompt", "generate"]
    tokens: int
    start_ns: int
    end_ns: int
    major_faults: int
    read_bytes: int | None = None
    rss_bytes: int
    cpu_ns: int
    involuntary_switches: int | None = None
    cpu_khz: tuple[int, ...] = ()
    celsius: float | None = None

    @property
    def duration_s(self) -> float:
        """Wall time of the step."""
        return (self.end_ns - self.start_ns) / 1e9


class Trace(Value):
    """The trace's first line.

    Attributes:
        format: version of the trace's format.
        clock: name of the clock.
        source: ``engine`` where our library wrote it inside the engine, ``watch`` where our
            program wrote it beside a foreign one.
        engine_commit: upstream's commit or version, compiled in; empty under ``watch``.
        page_bytes: the kernel's page size.
        threads: that the engine decodes with; none under ``watch``.
        whole_writes: each write of a watched program was seen apart from its neighbours; none
            in an engine's own trace.
        start_ns: when the process began, on the same clock.
    """

    format: int
    clock: str
    source: Literal["engine", "watch"] = "engine"
    engine_commit: str = ""
    page_bytes: int
    threads: int | None = None
    whole_writes: bool | None = None
    start_ns: int


class TokenTimes(Value):
    """Quantiles of the time per output token, in seconds.

    Attributes:
        p50_low, p50_high: the median's 95 % confidence interval, over this run's tokens; none
            for few tokens, and in a run that was kept before they were computed.
    """

    p50: float
    p90: float
    p99: float
    max: float
    p50_low: float | None = None
    p50_high: float | None = None


class Summary(Value):
    """Figures that are computed from the steps.

    Attributes:
        ttft_s: from the process's start to the end of the prompt's last step, with model loading.
        prefill_tps: prompt tokens per second of prompt steps.
        decode_tps: generated tokens per second of generating steps; none without such steps.
            Of a foreign program these two, and the sums below, are what it says itself.
        token_s: time per output token; none without generating steps.
        wall_s: from the process's start to its last step's end.
        prefill_s, decode_s: sums of the prompt's and of the generating steps, without loading.
        prefill_tokens, decode_tokens: tokens that went through the model in them; the first
            output token comes out of prefill, so decode is one fewer than was written.

    The last four are none in a run that was kept before they were computed.
    """

    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    token_s: TokenTimes | None
    wall_s: float | None
    prefill_s: float | None = None
    prefill_tokens: int | None = None
    decode_s: float | None = None
    decode_tokens: int | None = None


class Memory(Value):
    """Peak memory of the process, from ``/proc/<pid>/status``."""

    max_rss_bytes: int
    max_vms_bytes: int


class EngineTimes(Value):
    """The engine's own sums, as it prints them.

    Attributes:
        prompt_ms, eval_ms: time in prompt and generating steps.
        prompt_tokens, eval_tokens: tokens in them (never below 1, as llama.cpp counts).
        load_ms: time to load the model; none where the engine does not say it.
    """

    prompt_ms: float
    prompt_tokens: int
    eval_ms: float
    eval_tokens: int
    load_ms: float | None = None


class Exit(Value):
    """How the program ended.

    Attributes:
        kind: one of the ways to end; none in a run that was kept before they were told apart.
        status: as a shell reports it; none when it was never known.
        meaning: in words.
        remedy: what to do; empty when nothing is wrong or nothing is known.
    """

    kind: Kind | None = None
    status: int | None
    meaning: str
    remedy: str = ""


class Limit(Value):
    """What limited the speed.

    Attributes:
        cause: ``storage``, ``memory bandwidth``, ``compute`` or ``unknown``.
        sentence: for people, with figures.
        advice: what to try next.
    """

    cause: Literal["storage", "memory bandwidth", "compute", "unknown"]
    sentence: str
    advice: str


class Verdict(Value):
    """Whether the figures may be believed, and why not."""

    valid: bool
    reasons: tuple[str, ...] = ()


class Run(Job):
    """One run, as kept in ``run.json``.

    Attributes:
        cache: what became of the files that the board held in memory; none for a run that is
            not cold.
        governor: that was set for the time of the run; none if none was.
        strangers: what else used the CPU meanwhile, the busiest first; none where that is not
            known.
        swapped: what the board swapped meanwhile; none where that is not known.
        reference: how its text compares with a reference run's; none without one.
        notes: what a reader should know of the figures, though none of them is wrong.
    """

    after: Conditions | None
    trace: Trace | None
    tokens: tuple[Step, ...]
    summary: Summary
    engine: EngineTimes | None
    memory: Memory | None
    text: str
    exit: Exit
    limit: Limit
    verdict: Verdict
    cache: Cache | None = None
    governor: str | None = None
    strangers: tuple[Stranger, ...] | None = None
    swapped: Swapped | None = None
    reference: Departure | None = None
    notes: tuple[str, ...] = ()
