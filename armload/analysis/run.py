"""What came back from a board: the published format of ``run.json``."""

from __future__ import annotations

from typing import Annotated

from pydantic import JsonValue

from armload.analysis.background import BackgroundProcess
from armload.analysis.clocks import MeasuredClock
from armload.analysis.conditions_log import Cache, Swapped
from armload.analysis.device_clocks import ClockUse
from armload.analysis.emulation import Emulation
from armload.analysis.energy import Energy
from armload.analysis.limit_findings import Limit
from armload.analysis.members import MemberSample, NodeActivity
from armload.analysis.sanity import Departure
from armload.analysis.speculation import WithoutSpeculation
from armload.analysis.summary import Summary
from armload.analysis.verdict import Verdict
from armload.boards.conditions import Conditions
from armload.core.values import LEAVES, Leaves, Value
from armload.deploy.exit_reason import Exit
from armload.engines.job import BoardRecord, Job
from armload.engines.output import EngineTimes, Memory, ReportedFigure
from armload.engines.placement import Placement
from armload.engines.trace import Step, Trace

FORMAT = 2


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
        node: what it did in a token's time by its own trace; none for an RPC server.
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
    node: NodeActivity | None = None


class Run(Job):
    """One run, as kept in ``run.json``.

    Attributes:
        cache: what became of the files that the board held in memory; none for a run that is
            not cold.
        governor: that was set for the time of the run, as ``--governor`` takes it; none if none
            was.
        background_processes: what else used the CPU meanwhile, the busiest first; none where that
            is not known.
        swapped: what the board swapped meanwhile; none where that is not known.
        clocks: real frequencies before and after it, where those that the kernel shows cannot be
            trusted.
        device_clocks: at which frequencies memory, GPU, NPU and interconnect ran; empty where that
            is not known.
        emulation: what a virtual board's emulator had of the CPU meanwhile; none of a real board,
            and where that is not known.
        energy: what it took, by the board's power meter; none where there is none.
        reference: how its text compares with a reference run's; none without one.
        without_speculation: how a run with speculation compares with those without; none where
            there was no such run on this machine.
        members: of a group, on which RPC servers ran; all other figures are of the first member,
            on which one ran only if the model was split by tensors.
        restored_tokens: of the context, that were restored before the prompt instead of computed;
            none without a depth.
        placement: which device computed what; none where only the CPU could.
        result: what an engine measured that has no tokens; else none.
        reported: further figures that a watched program printed of itself.
        notes: what a reader should know of the figures, though none of them is wrong.
        is_excerpt: it is what was published of a run: names, and perhaps prompt and text, are left
            out.
    """

    after: Annotated[Conditions | None, LEAVES]
    trace: Annotated[Trace | None, LEAVES]
    steps: Annotated[tuple[Step, ...], Leaves("numbers")]
    summary: Summary
    engine: Annotated[EngineTimes | None, Leaves("numbers")]
    restored_tokens: Annotated[int | None, LEAVES] = None
    memory: Annotated[Memory | None, Leaves("numbers")]
    text: str
    exit: Exit
    limit: Limit
    verdict: Verdict
    cache: Annotated[Cache | None, LEAVES] = None
    governor: Annotated[str | None, Leaves("governor")] = None
    background_processes: tuple[BackgroundProcess, ...] | None = None
    swapped: Annotated[Swapped | None, Leaves("numbers")] = None
    clocks: Annotated[tuple[MeasuredClock, ...], Leaves("numbers")] = ()
    device_clocks: Annotated[tuple[ClockUse, ...], LEAVES] = ()
    emulation: Annotated[Emulation | None, Leaves("numbers")] = None
    energy: Energy | None = None
    reference: Departure | None = None
    without_speculation: WithoutSpeculation | None = None
    members: tuple[Member, ...] = ()
    placement: Annotated[Placement | None, LEAVES] = None
    result: dict[str, JsonValue] | None = None
    reported: tuple[ReportedFigure, ...] = ()
    notes: tuple[str, ...] = ()
    is_excerpt: bool = False
