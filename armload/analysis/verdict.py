"""Whether a run's figures may be believed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

from armload.analysis.background import busiest
from armload.analysis.columns import cores_of
from armload.analysis.conditions_log import RunConditions
from armload.analysis.contention import doubts_about_the_cpu
from armload.analysis.device_clocks import doubts_about_memory_clock
from armload.analysis.emulation import doubts_about_the_emulator
from armload.analysis.finding import Disturbance, RunFinding, any_of, kinds_of
from armload.analysis.output_doubts import TextDiffers, doubts_about_end, doubts_about_output
from armload.analysis.precision import doubts_about_few, doubts_about_spread
from armload.analysis.sanity import Departure
from armload.analysis.streaming import doubts_about_streaming
from armload.analysis.throttling import UnderVoltage, doubts_about_clocks
from armload.boards.conditions import Conditions
from armload.core.values import Value, counted, format_bytes
from armload.deploy.exit_reason import Exit
from armload.engines.job import Job
from armload.engines.output import Output

SWAPPED_FROM_BYTES = 1 << 20

NAMED_FROM_SHARE = 0.10
"""Share of a core from which a process is named as the one that preempted the engine."""


class StorageFull(RunFinding):
    """A board's storage was full; of ``steps``, ``missing_steps`` are not in the trace.

    Of a group's other members, whose traces tell of themselves alone, they are not counted.
    """

    name: ClassVar[str] = "storage full"
    kind: Literal["storage full"] = "storage full"
    board: str
    steps: int
    missing_steps: int
    is_other_member: bool = False

    def fact(self) -> str:
        if self.is_other_member:
            return (
                f"The storage of {self.board} was full during the run: what is known of that "
                "member may be incomplete."
            )
        lacking = (
            f"{self.missing_steps} of {counted(self.steps, 'step')} are missing from the trace"
            if self.missing_steps
            else "the trace may be incomplete"
        )
        return (
            f"The board's storage was full during the run: {lacking}, and the text may be "
            "incomplete."
        )

    def advice(self) -> str:
        return f"Free space on it with: armload board.clean --board {self.board}"


class NotCold(RunFinding):
    """The page cache could not be dropped."""

    name: ClassVar[str] = "not cold"
    kind: Literal["not cold"] = "not cold"

    def fact(self) -> str:
        return (
            "--cold was set, but the board's page cache could not be dropped: that needs write "
            "access to /proc/sys/vm/drop_caches, or armload's own program."
        )


class LeaseLost(RunFinding):
    """Another user may have used the board."""

    name: ClassVar[str] = "lease lost"
    kind: Literal["lease lost"] = "lease lost"

    def fact(self) -> str:
        return "The lease was lost: another user may have used the board."

    def advice(self) -> str:
        return "Repeat the run."


class Swapping(Disturbance):
    """The board swapped during the run.

    Attributes:
        out_bytes, in_bytes: moved meanwhile; ``in_bytes`` is none where only the use is known.
        used_before_bytes, used_after_bytes: of swap; after is none where it is not known.
        total_bytes: of swap; 0 where it is not known.
        zram: what was moved stayed in compressed memory.
    """

    name: ClassVar[str] = "swapped"
    kind: Literal["swapped"] = "swapped"
    out_bytes: int
    in_bytes: int | None
    used_before_bytes: int
    used_after_bytes: int | None
    total_bytes: int
    zram: bool = False

    def fact(self) -> str:
        moved = f"{format_bytes(self.out_bytes)} out"
        if self.in_bytes is not None:
            moved += f" and {format_bytes(self.in_bytes)} in"
        used = ""
        if self.used_after_bytes is not None:
            of_all = f" of {format_bytes(self.total_bytes)}" if self.total_bytes else ""
            used = (
                f" ({format_bytes(self.used_before_bytes)} were in use before, "
                f"{format_bytes(self.used_after_bytes)}{of_all} after)"
            )
        if self.zram:
            return (
                f"The board moved {moved} of compressed memory (zram) during the run{used}: that "
                "takes CPU time."
            )
        return f"The board swapped {moved} during the run{used}."

    def advice(self) -> str:
        if not self.zram:
            return ""
        return "Use a smaller model or context, or stop other programs on the board."


if TYPE_CHECKING:
    AnyRunFinding = RunFinding
    FindingName = str
else:
    AnyRunFinding = any_of(RunFinding)
    FindingName = Literal[tuple(sorted({each.name for each in kinds_of(RunFinding)}))]


class KeptFinding(Value):
    """One reason to doubt a run.

    Attributes:
        name: of the kind of reason, for programs.
        figures: what was found, in numbers.
        sentence: for people, as it was written with the run.
    """

    name: FindingName
    figures: AnyRunFinding
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
    findings: tuple[KeptFinding, ...] = ()

    @property
    def names(self) -> str:
        """The kinds of reasons, each once: a run may be contended in two ways."""
        return ", ".join(dict.fromkeys(each.name for each in self.findings))

    @classmethod
    def of(cls, found: Iterable[RunFinding], *, advises: bool = True) -> Verdict:
        """Return the verdict that findings make.

        Args:
            advises: the sentences also say what to do, for whoever can repeat the run.
        """
        doubts = tuple(
            KeptFinding(
                name=each.name,
                figures=each,
                sentence=each.sentence if advises else each.fact(),
            )
            for each in found
        )
        reasons = tuple(each.sentence for each in doubts)
        return cls(valid=not doubts, reasons=reasons, findings=doubts)


def judge(
    job: Job, output: Output, ended: Exit, around: RunConditions, departure: Departure | None = None
) -> list[RunFinding]:
    """Collect every reason to doubt the run; it is valid when there is none.

    Without a plan, as for a watched program, nobody knows how many tokens were requested; without
    a text the program was to write none. A run that failed is doubted for what may have made it
    fail, not for what slowed it.
    """
    found = [*doubts_about_end(ended, output), *_doubts_about_storage(job, output, ended, around)]
    slowed = _doubts_about_speed(job, output, around)
    if ended.status == 0:
        found += doubts_about_output(job, output)
        found += slowed
        if output.result is None:  # after what made its tokens differ
            found += doubts_about_few(job, output)
        to_be_cold = job.plan is not None and job.plan.cold and output.header is not None
        if to_be_cold and around.cache in (None, "as found"):
            found.append(NotCold())
        if around.lease_lost:
            found.append(LeaseLost())
    else:
        found += [each for each in slowed if isinstance(each, UnderVoltage)]
    found += _doubts_about_swap(job.before, around)
    if departure is not None and departure.kind == "differs":
        found.append(TextDiffers(departure=departure))
    return found


def _doubts_about_storage(
    job: Job, output: Output, ended: Exit, around: RunConditions
) -> list[StorageFull]:
    found = [
        StorageFull(board=each, steps=0, missing_steps=0, is_other_member=True)
        for each in around.full_members
    ]
    if not around.storage_was_full or ended.kind == "no space":
        return found
    steps = output.steps
    done = steps[-1].step + 1 if steps else 0
    return [StorageFull(board=job.board.name, steps=done, missing_steps=done - len(steps)), *found]


def _doubts_about_speed(job: Job, output: Output, around: RunConditions) -> list[RunFinding]:
    """Return what slowed a run down: heat, other programs, or weights that came late."""
    process = busiest(around.background or (), share=NAMED_FROM_SHARE)
    cores = cores_of(output.header, job.before, job.plan.cpus if job.plan else None)
    found: list[RunFinding] = [
        *doubts_about_clocks(output.steps, job.board, job.before, around, cores),
        *doubts_about_memory_clock(around.device_clocks),
    ]
    # In a group, the first member's threads pause for the others.
    if output.header is not None and job.spread is None:
        workstation = job.board.workstation
        found += doubts_about_the_cpu(output.steps, output.header, process, workstation)
    delayed = doubts_about_the_emulator(around.emulation, job.board.cores)
    found += delayed
    # A result of another kind than times per token has no spread; a delay explains any.
    if output.result is None and not delayed:
        found += doubts_about_spread(job, output, process)
    return [*found, *doubts_about_streaming(output.header, output.steps)]


def _doubts_about_swap(before: Conditions, around: RunConditions) -> list[Swapping]:
    moved, after = around.swapped, around.after
    zram = False
    if moved is not None:
        on_disk = max(moved.in_bytes - moved.zram_in_bytes, moved.out_bytes - moved.zram_out_bytes)
        # What others have not needed since may stay compressed; what is fetched back was missed.
        zram = on_disk < SWAPPED_FROM_BYTES
        most = moved.zram_in_bytes if zram else on_disk
        out_bytes, in_bytes = moved.out_bytes, moved.in_bytes
    elif after is not None:
        most = out_bytes = _used_on_disk(after) - _used_on_disk(before)
        in_bytes = None
    else:
        return []
    if most < SWAPPED_FROM_BYTES:
        return []
    return [
        Swapping(
            out_bytes=out_bytes,
            in_bytes=in_bytes,
            used_before_bytes=before.swap_used_bytes,
            used_after_bytes=after.swap_used_bytes if after else None,
            total_bytes=after.swap_total_bytes if after else 0,
            zram=zram,
        )
    ]


def _used_on_disk(now: Conditions) -> int:
    return now.swap_used_bytes - sum(each.used_bytes for each in now.swaps if each.kind == "zram")
