"""What came back from a board: the published format of ``run.json``."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from armload.analysis.background import BackgroundProcess
from armload.analysis.clocks import MeasuredClock
from armload.analysis.conditions_log import Cache, Swapped
from armload.analysis.emulation import Emulation
from armload.analysis.energy import Energy
from armload.analysis.findings import Figures, FindingName
from armload.analysis.limit_figures import LimitFigures
from armload.analysis.members import MemberSample
from armload.analysis.sanity import Departure
from armload.analysis.speculation import SpeculationResult, WithoutSpeculation
from armload.boards.conditions import Conditions
from armload.core.values import Value
from armload.deploy.exit_reason import Exit
from armload.engines.job import BoardRecord, Job
from armload.engines.output import EngineTimes, Memory
from armload.engines.prediction import Bottleneck
from armload.engines.trace import Step, Trace

FORMAT = 2


class TokenTimes(Value):
    """Quantiles of the time per output token, in seconds.

    Attributes:
        p50_low, p50_high: the median's 95% confidence interval, from this run's tokens and what
            usually differs between runs; none for few tokens.
    """

    p50: float
    p90: float
    p99: float
    max: float
    p50_low: float | None = None
    p50_high: float | None = None


class ExpertReads(Value):
    """How streamed experts were used by the steps that generated.

    Attributes:
        hit_rate: share of the bytes used that were in memory already.
        bytes_per_token: of experts, that a token uses.
        missed_bytes_per_token: of these, read from storage.
        wait_s_per_token: that computing waited for storage.
    """

    hit_rate: float
    bytes_per_token: float
    missed_bytes_per_token: float
    wait_s_per_token: float


class Summary(Value):
    """Figures that are computed from the steps.

    Attributes:
        ttft_s: from the process's start to the end of the prompt's last step, with model loading.
        prefill_tps: prompt tokens per second of prompt steps.
        decode_tps: generated tokens per second of generating steps; none without such steps.
            For a watched program these two, and the sums below, are as the program reports them.
        token_s: time per output token; none without generating steps.
        wall_s: from the process's start to its last step's end.
        prefill_s, decode_s: sums of the prompt's and of the generating steps, without loading; a
            draft model's steps between them count as generating; none without such steps.
        prefill_tokens, decode_tokens: tokens that went through the model in them; the first
            output token comes out of prefill, so decode is one fewer than was written.
        speculation: what guessed tokens gave; none where none were to be guessed.
        experts: how streamed experts were used; none of other weights.
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
    speculation: SpeculationResult | None = None
    experts: ExpertReads | None = None


class Limit(Value):
    """What limited the speed.

    Attributes:
        cause: ``unknown`` where the records do not tell.
        figures: what was found, in numbers.
        sentence: for people, as it was written with the run.
        advice: what to try next.
    """

    cause: Bottleneck
    figures: LimitFigures
    sentence: str
    advice: str


class Finding(Value):
    """One reason to doubt a run.

    Attributes:
        name: of the kind of reason, for programs.
        figures: what was found, in numbers.
        sentence: for people, as it was written with the run.
    """

    name: FindingName
    figures: Figures
    sentence: str


class Verdict(Value):
    """Whether the figures may be believed, and why not.

    Attributes:
        valid: there is no finding.
        reasons: the findings' sentences.
        findings: the reasons themselves.
    """

    valid: bool
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Verdict:
        """Return the verdict that these findings make."""
        return cls(
            valid=not findings,
            reasons=tuple(finding.sentence for finding in findings),
            findings=tuple(findings),
        )


class Member(Value):
    """A board of a group on which an RPC server computed a part of the model.

    Attributes:
        before, after: the run, how it was; nothing after it where it was lost.
        memory: the peak of its RPC server.
        exit: how that ended.
        sent_bytes, received_bytes: by the first member, to and from it; none where they did not
            pass this machine.
        threads: that its server computed with.
        clock_error_s: its samples are on the clock of the steps within this; none where that was
            not measured.
        samples: one a second; none without that.
    """

    board: BoardRecord
    before: Conditions
    after: Conditions | None
    memory: Memory | None
    exit: Exit
    sent_bytes: int | None = None
    received_bytes: int | None = None
    threads: int = 1
    clock_error_s: float | None = None
    samples: tuple[MemberSample, ...] = ()


class Run(Job):
    """One run, as kept in ``run.json``.

    Attributes:
        cache: what became of the files that the board held in memory; none for a run that is
            not cold.
        governor: that was set for the time of the run; none if none was.
        background_processes: what else used the CPU meanwhile, the busiest first; none where that
            is not known.
        swapped: what the board swapped meanwhile; none where that is not known.
        clocks: real frequencies before and after it, where those that the kernel shows cannot be
            trusted.
        emulation: what a virtual board's emulator had of the CPU meanwhile; none of a real board,
            and where that is not known.
        energy: what it took, by the board's power meter; none where there is none.
        reference: how its text compares with a reference run's; none without one.
        without_speculation: how a run with speculation compares with those without; none where
            there was no such run on this machine.
        members: of a group, on which RPC servers ran; all other figures are of the first member,
            on which one ran only if the model was split by tensors.
        result: what an engine measured that has no tokens; else none.
        notes: what a reader should know of the figures, though none of them is wrong.
        is_excerpt: it is what was published of a run: names, and perhaps prompt and text, are left
            out.
    """

    after: Conditions | None
    trace: Trace | None
    steps: tuple[Step, ...]
    summary: Summary
    engine: EngineTimes | None
    memory: Memory | None
    text: str
    exit: Exit
    limit: Limit
    verdict: Verdict
    cache: Cache | None = None
    governor: str | None = None
    background_processes: tuple[BackgroundProcess, ...] | None = None
    swapped: Swapped | None = None
    clocks: tuple[MeasuredClock, ...] = ()
    emulation: Emulation | None = None
    energy: Energy | None = None
    reference: Departure | None = None
    without_speculation: WithoutSpeculation | None = None
    members: tuple[Member, ...] = ()
    result: dict[str, JsonValue] | None = None
    notes: tuple[str, ...] = ()
    is_excerpt: bool = False
