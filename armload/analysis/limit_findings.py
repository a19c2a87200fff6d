"""What limited a run's speed: each case with its figures, and what to try next."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from armload.analysis.finding import Finding, any_of
from armload.boards.conditions import group_limit
from armload.core.values import Value, counted, format_bytes, format_seconds
from armload.engines.job import RateKind
from armload.engines.prediction import Bottleneck, PartTime
from armload.engines.spread import Split

BUSY_FROM = 0.80
"""Share of wall time that the engine's threads must run on a CPU to count as busy."""

FASTEST_QUANTISATION = "Q4_0"
"""Has interleaved integer dot-product kernels for every Arm CPU in llama.cpp."""

ROOM_TO_STAY = 0.8
"""Share of the free memory that a model may take and stay there."""

SYNCHRONISING_FROM = 0.3
"""Share of a token's time from which synchronisation is what limits."""

SLOWER_FROM = 1.25
"""How many times as long as the next one a board must compute to be the one that limits."""

SLOWEST_BOARD_BYTES_PER_S = 1.5e9
"""No supported board's memory is slower; below this the memory can't be what limits."""


class LimitFinding(Finding):
    """What limited a run; ``unknown`` where the records do not tell."""

    cause: ClassVar[Bottleneck] = "unknown"


class StorageReads(Value):
    """What decode read from storage.

    Attributes:
        time_share: of the steps, that reading took.
        bytes_per_token, faults_per_token: one of them, by what the kernel counts; none of both
            where nothing was read.
    """

    time_share: float = 0.0
    bytes_per_token: float | None = None
    faults_per_token: float | None = None

    @property
    def clause(self) -> str:
        """What was read, as a part of a sentence."""
        if self.bytes_per_token is None and self.faults_per_token is None:
            return "nothing was read from storage"
        share = self.time_share
        took = "less than 1%" if share < 0.01 else f"about {min(share, 1.0):.0%}"
        per_token = (
            f"{self.faults_per_token:,.1f} major faults"
            if self.bytes_per_token is None
            else format_bytes(self.bytes_per_token)
        )
        return f"reading storage took {took} of the time ({per_token} per token)"


class NothingDecoded(LimitFinding):
    """There are no steps to judge by."""

    kind: Literal["nothing decoded"] = "nothing decoded"
    lacking: Literal["trace", "token times", "tokens", "texts"]

    def fact(self) -> str:
        match self.lacking:
            case "trace":
                return "The engine exited before it decoded a token."
            case "token times":
                return "Without times per token, the limit cannot be determined."
            case "tokens":
                return "Too few tokens were generated to determine the limit."
            case "texts":
                return "What limited the embedding of texts is not determined."

    def advice(self) -> str:
        match self.lacking:
            case "trace":
                return "Check how the program ended."
            case "token times" | "texts":
                return ""
            case "tokens":
                return "Generate more tokens with -n."


class StorageLimit(LimitFinding):
    """Reading weights from storage limits.

    Attributes:
        has_single_tokens: a pass over the weights gives one token.
        pass_s, read_bytes_per_pass, faults_per_pass: medians; bytes are none where the kernel
            does not count them.
        storage_bytes_per_s, storage_rate: of the board, where known, and how.
        free_bytes, memory_limit_bytes: before the run; the limit is a control group's.
        held_bytes, weights_bytes: of streamed weights; none of others.
        model_bytes: of the model's file; none where unknown.
    """

    cause: ClassVar[Bottleneck] = "storage"
    kind: Literal["storage"] = "storage"
    has_single_tokens: bool
    pass_s: float
    read_bytes_per_pass: float | None
    faults_per_pass: float
    storage_bytes_per_s: int | None
    storage_rate: RateKind | None
    free_bytes: int
    memory_limit_bytes: int | None
    held_bytes: int | None
    weights_bytes: int | None
    model_bytes: int | None

    def fact(self) -> str:
        read, known = self.read_bytes_per_pass, self.storage_bytes_per_s
        each = _each_pass(has_single_tokens=self.has_single_tokens)
        if read is None:
            what = (
                f"{each} took {self.faults_per_pass:,.0f} major faults and {self.pass_s:.2g} s, "
                "including compute (this kernel does not count the bytes read)"
            )
        else:
            rate = read / self.pass_s
            of_known = (
                f", {rate / known:.0%} of {_the(self.storage_rate)} {format_bytes(known)}/s"
                if known
                else ""
            )
            what = f"{each} reads {format_bytes(read)} at {format_bytes(rate)}/s{of_known}"
        size, free = self.model_bytes, self.free_bytes
        of_free = f"{format_bytes(free)} of free memory{group_limit(self.memory_limit_bytes)}"
        if self.held_bytes is not None and self.weights_bytes is not None:
            why = (
                f"{format_bytes(self.held_bytes)} of the {format_bytes(self.weights_bytes)} of "
                f"weights stay in memory, with {of_free} before the run"
            )
        elif size is None:
            why = f"the board had {of_free}"
        elif size > free:
            why = f"the model is {format_bytes(size - free)} larger than the {of_free}"
        else:
            why = f"the model's {format_bytes(size)} did not stay in the {of_free}"
        return f"Limited by storage: {what}; {why}."

    def advice(self) -> str:
        target = ROOM_TO_STAY * self.free_bytes
        is_streamed = self.held_bytes is not None
        if not is_streamed and self.model_bytes is not None and self.model_bytes <= target:
            return (
                "The model fitted before the run. If free memory fell by more than the model's "
                "size, another program took it: compare the free memory before and after the run."
            )
        return (
            f"Use a model file smaller than {format_bytes(target)} ({ROOM_TO_STAY:.0%} of the free "
            "memory), so that its weights stay in memory."
        )


class BandwidthLimit(LimitFinding):
    """Reading weights from memory limits.

    Attributes:
        memory_mhz: the memory's average clock in the run, to which the rate was scaled; none where
            it had the clock at which the rate was measured, or that is not known.
    """

    cause: ClassVar[Bottleneck] = "memory bandwidth"
    kind: Literal["memory bandwidth"] = "memory bandwidth"
    has_single_tokens: bool
    weights_bytes: int
    weights_bytes_per_s: float
    memory_bytes_per_s: int
    memory_rate: RateKind | None
    memory_mhz: int | None = None

    def fact(self) -> str:
        return (
            f"Limited by memory bandwidth: {_each_pass(has_single_tokens=self.has_single_tokens)} "
            f"reads {format_bytes(self.weights_bytes)} of weights at "
            f"{format_bytes(self.weights_bytes_per_s)}/s, "
            f"{self.weights_bytes_per_s / self.memory_bytes_per_s:.0%} of "
            f"{_the(self.memory_rate)} {format_bytes(self.memory_bytes_per_s)}/s"
            f"{_scaled(self.memory_mhz)}."
        )

    def advice(self) -> str:
        return "Use a quantisation with fewer bits; more threads will not help."


def _scaled(memory_mhz: int | None) -> str:
    return "" if memory_mhz is None else f", scaled to the run's memory clock of {memory_mhz} MHz"


class BusyThreads(LimitFinding):
    """How busy the engine's threads were: their share of the time, and what they waited for."""

    busy_share: float
    reads: StorageReads

    @property
    def busy(self) -> str:
        """The share; the kernel's CPU time and the clock are not read at the same moment."""
        return f"{min(self.busy_share, 1.0):.0%}"


class ComputeLimit(BusyThreads):
    """The cores limit.

    Attributes:
        cpus, cpus_cores: that the engine was kept to, and how many they are; none and all
            otherwise.
        quantisation: of the model, empty where unknown.
        memory_bytes_per_s, memory_rate: of the board, where known, and how.
        memory_mhz: as in ``BandwidthLimit``.
    """

    cause: ClassVar[Bottleneck] = "compute"
    kind: Literal["compute"] = "compute"
    threads: int
    cores: int
    weights_bytes_per_s: float
    memory_bytes_per_s: int | None
    memory_rate: RateKind | None
    cpus: str | None
    cpus_cores: int
    quantisation: str
    memory_mhz: int | None = None

    def fact(self) -> str:
        known = self.memory_bytes_per_s
        memory = (
            f"the {format_bytes(SLOWEST_BOARD_BYTES_PER_S)}/s of the slowest supported board"
            if known is None
            else f"{_the(self.memory_rate)} {format_bytes(known)}/s{_scaled(self.memory_mhz)}"
        )
        return (
            f"Limited by compute: {self.threads} of {self.cores} cores "
            f"{'was' if self.threads == 1 else 'were'} busy {self.busy} of the time, "
            f"{self.reads.clause}, and weights were read from memory at "
            f"{format_bytes(self.weights_bytes_per_s)}/s, below {memory}."
        )

    def advice(self) -> str:
        if self.threads < self.cpus_cores:
            return f"Try more threads: --threads {self.cpus_cores}."
        if self.cpus_cores < self.cores:
            return f"Try more cores than --cpus {self.cpus}."
        if self.quantisation == FASTEST_QUANTISATION:
            return "Use a smaller model: this quantisation is already the cheapest to compute."
        return (
            f"Try the model in {FASTEST_QUANTISATION}, the cheapest quantisation to compute on "
            "this CPU, or a smaller model."
        )


class UnknownBandwidth(BusyThreads):
    """Memory or compute limits: the board's memory bandwidth is not known."""

    kind: Literal["unknown bandwidth"] = "unknown bandwidth"
    weights_bytes_per_s: float

    def fact(self) -> str:
        return (
            f"Limited by memory bandwidth or compute: the threads were busy {self.busy} of the "
            f"time, {self.reads.clause}, and weights were read from memory at "
            f"{format_bytes(self.weights_bytes_per_s)}/s; this board's memory bandwidth is unknown."
        )

    def advice(self) -> str:
        return "Set facts.memory_bytes_per_s in the board's file to tell the two apart."


class IdleThreads(BusyThreads):
    """The engine's threads waited for each other or were preempted."""

    kind: Literal["idle threads"] = "idle threads"
    threads: int
    switches_per_token: float

    def fact(self) -> str:
        why = (
            "it was preempted"
            if self.threads == 1
            else "they waited for each other or were preempted"
        )
        return (
            f"The engine's {counted(self.threads, 'thread')} ran only {self.busy_share:.0%} of "
            f"the time, and {self.reads.clause}: {why} ({self.switches_per_token:.0f} involuntary "
            "context switches per token)."
        )

    def advice(self) -> str:
        fewer = "" if self.threads == 1 else ", and try fewer threads with --threads"
        return f"Check for other programs on the board{fewer}."


class OtherProgram(LimitFinding):
    """The threads and weights of a program other than armload's engine are not known."""

    kind: Literal["other program"] = "other program"
    busy_cores: float
    cores: int
    reads: StorageReads

    def fact(self) -> str:
        return (
            f"During decode, the program kept {self.busy_cores:.1f} of {self.cores} cores busy, "
            f"and {self.reads.clause}; memory and compute limits can be told apart only for "
            "armload's own engine."
        )

    def advice(self) -> str:
        if self.busy_cores >= BUSY_FROM * self.cores:
            return ""
        return "Try more threads if the program has an option for it."


class ComputedOnGpu(LimitFinding):
    """A GPU computed, whose work none of the trace's counters shows."""

    kind: Literal["GPU"] = "GPU"
    busy_cores: float
    cores: int

    def fact(self) -> str:
        return (
            f"During decode, the GPU computed and {self.busy_cores:.1f} of {self.cores} CPU cores "
            "were busy; what limited the GPU is not known."
        )

    def advice(self) -> str:
        return "Compare with the CPU: --device cpu,gpu."


class GroupLimit(LimitFinding):
    """A model is spread over several boards.

    Attributes:
        first, others: names of the members.
        split: how.
        token_s: median.
        own_s: of it, what the first member computed.
        parts: what each member computed, and what is left of a token for the connections; of
            several of these, in proportion to their forecast. Empty where the members' CPU time is
            not known. With ``tensor``, members compute at the same time.
        alone_s: what computing all of the model would take it, from that; none where the model
            does not fit into its memory.
    """

    kind: Literal["group"] = "group"
    first: str
    others: tuple[str, ...]
    split: Split = "layer"
    token_s: float
    own_s: float
    parts: tuple[PartTime, ...] = ()
    alone_s: float | None

    def fact(self) -> str:
        token = format_seconds(self.token_s)
        if not self.parts:
            return (
                f"Spread over a group: of {token} per token, {self.first} computed for "
                f"{format_seconds(self.own_s)} and waited "
                f"{format_seconds(self.token_s - self.own_s)} for {' and '.join(self.others)} and "
                "the connections between them."
            )
        members = [part for part in self.parts if part.kind == "member"]
        link_s = sum(part.token_s for part in self.parts if part.kind == "link")
        computed = ", ".join(f"{part.board} {format_seconds(part.token_s)}" for part in members)
        at_once = ", all at once" if self.split == "tensor" else ""
        return (
            f"Limited by {self._longest.name}: of {token} per token, computing took "
            f"{computed}{at_once}; {format_seconds(link_s)} went into the connections between "
            "them, or into waiting for the CPU."
        )

    def advice(self) -> str:
        if self.alone_s is not None and self.alone_s < self.token_s:
            return (
                f"The model fits on {self.first} alone, where a token should take about "
                f"{format_seconds(self.alone_s)}."
            )
        waiting_s = (self.token_s - self.own_s) / len(self.others)
        if not (self._longest.kind == "link" if self.parts else self.own_s < waiting_s):
            return ""
        return (
            "If the network is slow, set 'listen' in the group's file: the members then reach each "
            "other directly."
        )

    @property
    def _longest(self) -> PartTime:
        return max(self.parts, key=lambda part: part.token_s)


class SharedLimit(LimitFinding):
    """Every board of a group computes its part of each layer, and waits for the others.

    Attributes:
        token_s: median.
        parts: of it, what each board computed, the first one first; those whose trace is lost are
            missing.
        crowded: boards whose threads had a CPU for less of that than ``BUSY_FROM``.
        is_direct: the boards reach each other without this machine.
    """

    kind: Literal["shared layers"] = "shared layers"
    token_s: float
    parts: tuple[PartTime, ...]
    crowded: tuple[str, ...] = ()
    is_direct: bool = False

    @property
    def synchronising_share(self) -> float:
        """Of a token's time, what is left when the slowest board has computed."""
        return max(0.0, 1 - self._slowest.token_s / self.token_s)

    @property
    def _slowest(self) -> PartTime:
        return max(self.parts, key=lambda part: part.token_s)

    @property
    def _slow_board(self) -> str:
        """The one board that the others wait for; empty where there is none."""
        others = [part.token_s for part in self.parts if part is not self._slowest]
        is_slow = bool(others) and self._slowest.token_s > SLOWER_FROM * max(others)
        return self._slowest.board if is_slow else ""

    @property
    def _is_network(self) -> bool:
        return self.synchronising_share >= SYNCHRONISING_FROM

    def fact(self) -> str:
        token, share = format_seconds(self.token_s), f"{self.synchronising_share:.0%}"
        computed = ", ".join(f"{each.board} {format_seconds(each.token_s)}" for each in self.parts)
        if self._is_network:
            return (
                f"Limited by the network: {share} of a token's {token} is synchronisation; "
                f"computing took {computed}, all at once."
            )
        if self._slow_board:
            return (
                f"Limited by {self._slow_board}, for which the others wait: of {token} per token, "
                f"computing took {computed}, all at once."
            )
        return (
            f"Limited by compute: of {token} per token, computing took {computed}, all at once; "
            f"{share} is synchronisation."
        )

    def advice(self) -> str:
        if self.crowded:
            return (
                f"On {' and '.join(self.crowded)}, fewer cores are free than there are threads, "
                "which all boards wait for: stop other programs there, or use fewer --threads."
            )
        if self._is_network:
            return (
                "Use a faster network, or fewer boards."
                if self.is_direct
                else "Set 'listen' in the group's file: the members then reach each other directly."
            )
        if self._slow_board:
            return f"Check what slows {self._slow_board} down, or leave it out of the group."
        return "More boards, if the model can be divided by their number, shorten this."


def _each_pass(*, has_single_tokens: bool) -> str:
    return "each token" if has_single_tokens else "each pass over the weights"


def _the(kind: RateKind | None) -> str:
    return "this board's" if kind is None else f"the {kind}"


if TYPE_CHECKING:
    AnyLimitFinding = LimitFinding
else:
    AnyLimitFinding = any_of(LimitFinding)


class Limit(Value):
    """What limited the speed.

    Attributes:
        cause: ``unknown`` where the records do not tell.
        figures: what was found, in numbers.
        sentence: for people, as it was written with the run.
        advice: what to try next.
    """

    cause: Bottleneck
    figures: AnyLimitFinding
    sentence: str
    advice: str

    @classmethod
    def of(cls, found: LimitFinding) -> Limit:
        """Return what was found, with its sentences."""
        return cls(cause=found.cause, figures=found, sentence=found.fact(), advice=found.advice())
