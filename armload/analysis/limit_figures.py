"""What limited a run's speed, each case with its numbers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from armload.core.values import Value
from armload.engines.job import RateKind
from armload.engines.prediction import Bottleneck, PartTime
from armload.engines.spread import Split


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


class NothingDecoded(Value):
    """There are no steps to judge by."""

    cause: ClassVar[Bottleneck] = "unknown"
    kind: Literal["nothing decoded"] = "nothing decoded"
    lacking: Literal["trace", "token times", "tokens"]


class StorageLimit(Value):
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


class BandwidthLimit(Value):
    """Reading weights from memory limits."""

    cause: ClassVar[Bottleneck] = "memory bandwidth"
    kind: Literal["memory bandwidth"] = "memory bandwidth"
    has_single_tokens: bool
    weights_bytes: int
    weights_bytes_per_s: float
    memory_bytes_per_s: int
    memory_rate: RateKind | None


class BusyThreads(Value):
    """How busy the engine's threads were: their share of the time, and what they waited for."""

    busy_share: float
    reads: StorageReads


class ComputeLimit(BusyThreads):
    """The cores limit.

    Attributes:
        cpus, cpus_cores: that the engine was kept to, and how many they are; none and all
            otherwise.
        quantisation: of the model, empty where unknown.
        memory_bytes_per_s, memory_rate: of the board, where known, and how.
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


class UnknownBandwidth(BusyThreads):
    """Memory or compute limits: the board's memory bandwidth is not known."""

    cause: ClassVar[Bottleneck] = "unknown"
    kind: Literal["unknown bandwidth"] = "unknown bandwidth"
    weights_bytes_per_s: float


class IdleThreads(BusyThreads):
    """The engine's threads waited for each other or were preempted."""

    cause: ClassVar[Bottleneck] = "unknown"
    kind: Literal["idle threads"] = "idle threads"
    threads: int
    switches_per_token: float


class OtherProgram(Value):
    """The threads and weights of a program other than armload's engine are not known."""

    cause: ClassVar[Bottleneck] = "unknown"
    kind: Literal["other program"] = "other program"
    busy_cores: float
    cores: int
    reads: StorageReads


class GroupLimit(Value):
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

    cause: ClassVar[Bottleneck] = "unknown"
    kind: Literal["group"] = "group"
    first: str
    others: tuple[str, ...]
    split: Split = "layer"
    token_s: float
    own_s: float
    parts: tuple[PartTime, ...] = ()
    alone_s: float | None


LimitFigures = Annotated[
    NothingDecoded
    | StorageLimit
    | BandwidthLimit
    | ComputeLimit
    | UnknownBandwidth
    | IdleThreads
    | OtherProgram
    | GroupLimit,
    Field(discriminator="kind"),
]
