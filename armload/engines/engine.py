"""What an engine is: everything in which one kind of run differs from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar, Self

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.cpu_sets import cpu_words
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.exit_reason import LESS_MEMORY
from armload.deploy.follow import ProgressUpdate
from armload.deploy.launch import ServiceOptions
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.engines.footprint import Footprint
from armload.engines.job import Job, RunSpec
from armload.engines.media import MediaNeed
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.prediction import Sequences
from armload.engines.spread import SplitChoice, Spread
from armload.models.context_memory import KvCache
from armload.models.distributed_llama import DistributedModel
from armload.models.model import Model


class Settings(Value):
    """In which state a run wants its board.

    Attributes:
        cpus: the cores that the program may run on, such as ``4-7``; none for all of them.
        threads: of the program; none where it chooses.
        cold: drop the page cache first.
        cool_to_celsius: the hottest sensor shows no more when the run begins; none to not wait.
        governor: of the frequency of the CPU, or of several devices, while it runs; none for what
            the board has.
        measure_rates: measure what memory and storage give, once per boot.
        prefers_fast: without ``cpus``, the little cores of a mixed board are left alone.
    """

    cpus: str | None = None
    threads: int | None = None
    cold: bool = False
    cool_to_celsius: float | None = None
    governor: str | None = None
    measure_rates: bool = False
    prefers_fast: bool = False

    def cores_on(self, found: Probe) -> str | None:
        """Return the cores that the program is kept to on a board; none for all."""
        if self.cpus is not None or not self.prefers_fast:
            return self.cpus
        fast = [number for each in found.fast_clusters for number in each.numbers]
        return cpu_words(fast) if len(fast) >= (self.threads or 1) else None


class MemoryNeed(Value):
    """What a program takes of a board's memory.

    Attributes:
        name: of the model.
        weights_bytes: of its file, which the engine maps.
        row_table_bytes: of the weights, what need not stay in memory: a token reads a row of it.
        kv_bytes: of the KV cache, and of the state of recurrent layers.
        kv_is_exact: the engine allocates that much; else at least as much.
        kv_cache: how it grows with the context.
        program_bytes: of the program itself, with its buffers.
        context_tokens: length of the KV cache, for all sequences together.
        sequences: that share it.
        bytes_per_token: weights that one decode step reads.
        expert_bytes: of the weights, of all experts of a mixture.
        expert_bytes_per_token: of the experts, what one decode step reads.
        expert_layer_bytes: of one layer's experts.
        reserved_bytes: address space of the engine's buffers; only what ``program_bytes`` counts of
            it is touched. None where it is unknown.
        is_exact: all of it is llama.cpp's own figure; else it is estimated from the model's header.
        projector_bytes: of a projector with the encoder's buffers, which are released before the
            model computes.
    """

    name: str
    weights_bytes: int
    row_table_bytes: int = 0
    kv_bytes: int
    kv_is_exact: bool = True
    kv_cache: KvCache = KvCache()
    program_bytes: int
    context_tokens: int
    sequences: Sequences = Sequences()
    bytes_per_token: int
    expert_bytes: int = 0
    expert_bytes_per_token: int = 0
    expert_layer_bytes: int = 0
    reserved_bytes: int | None = None
    is_exact: bool = False
    projector_bytes: int = 0

    @property
    def own_bytes(self) -> int:
        """KV cache and buffers."""
        return self.kv_bytes + self.program_bytes

    @property
    def wanted_bytes(self) -> int:
        """With which no weights are read again from storage."""
        return self.weights_bytes - self.row_table_bytes + self.own_bytes

    def exactly(self, footprint: Footprint, more_bytes: int) -> MemoryNeed:
        """Return the need with llama.cpp's own figures.

        Args:
            more_bytes: that the program takes besides.
        """
        return self.model_copy(
            update={
                "kv_bytes": footprint.context_bytes,
                "kv_is_exact": True,
                "program_bytes": footprint.program_bytes + more_bytes,
                "context_tokens": footprint.context_tokens,
                "reserved_bytes": footprint.reserved_bytes,
                "is_exact": True,
            }
        )


class MemberRoom(Value):
    """A member of a group, and the memory that a program may take there."""

    board: str
    available_bytes: int


class WorkerPlan(Value):
    """How what computes for the first member of a group is started on another one.

    Attributes:
        address, port: that it listens on.
        threads: none for all cores that it may use.
    """

    address: str
    port: int
    threads: int | None = None


class RunContext(Value):
    """A board as an engine meets it.

    Attributes:
        layout: of its work folder.
        found: what it is and how it is now.
        cores: that the program is kept to; none for all.
        launcher: words that go before a program that was built for the board: what pins it to
            cores, and the emulator where there is one.
        helpers: where armload's own programs for the board's shell lie.
        spread: over the members of a group; none on a board by itself.
        servers: ``HOST:PORT`` of what computes on the other members, as this board reaches them.
        peers: of each of these, the same of those after it, as that one reaches them; empty where
            they do not reach each other.
    """

    layout: Layout
    found: Probe
    cores: str | None = None
    launcher: tuple[str, ...] = ()
    helpers: Mapping[str, PurePosixPath] = {}
    spread: Spread | None = None
    servers: tuple[str, ...] = ()
    peers: tuple[tuple[str, ...], ...] = ()

    @property
    def most_threads(self) -> int | None:
        """How many threads may compute at a time; none for as many as its cores."""
        now = self.found.conditions
        if self.cores is not None:
            return now.cpus.quota_threads
        return now.usual_threads if self.found.is_limited else None


class Spreadable(Value):
    """What members of a group can compute a part of.

    Attributes:
        model: on this machine.
        split: as planned; none for whole layers.
        threads: of the program; none where it chooses.
        plan: of one continuation, by whose forecast the split may be chosen; none otherwise.
        tensor_lacks: why parts of layers cannot be had; empty where they can.
    """

    model: Model
    split: SplitChoice | None = None
    threads: int | None = None
    plan: Plan | None = None
    tensor_lacks: str = ""


class Forecastable(Value):
    """One continuation, whose time is predicted before a run.

    Attributes:
        model: on this machine.
        plan: of the continuation.
        is_kept: the run is like it, so that the prediction is kept with it.
        nodes: how the members of a group share the model, where each computes the same part of
            every layer with kernels of the engine's own: only times of these predict it.
        node_program: that has these kernels.
        media: images or a sound before the prompt; none of a text.
        projector: on this machine, by which the model sees or hears it.
    """

    model: Model
    plan: Plan
    is_kept: bool = False
    media: MediaNeed | None = None
    projector: Path | None = None
    nodes: DistributedModel | None = None
    node_program: Binary | None = None


class Simulation(Value):
    """A program that says what it would allocate, instead of running.

    Attributes:
        program: which must lie on the board; the model need not.
        command: that starts it there as the run would.
        model: whose header it is given, on this machine.
        batch_tokens: of the largest micro-batch that it will compute.
    """

    program: Payload
    command: tuple[str, ...]
    model: Path
    batch_tokens: int

    def without(self, *options: str) -> Self:
        """Return the same without options for files, which are not on the board yet."""
        words = list(self.command)
        for option in options:
            at = words.index(option)
            del words[at : at + 2]
        return self.model_copy(update={"command": tuple(words)})


class Engine(ABC):
    """A program with its arguments, ready to run on a board.

    A further engine is one file with a subclass, and one line in ``registry.py``. Leases, copies,
    lost connections, resumption and ``pull`` come with the pipeline.

    Attributes:
        name: in ``run.json`` and the list of engines; unique.
        unit: of its progress.
        helpers: programs of ours that the board's shell starts, as in ``toolchains/board/``.
        results: files that it makes in a run's folder, which are fetched however large they are.
        less_memory: what to do where the board has too little for it.
        is_meshed: what computes for it on other members of a group needs to reach each other.
        others_gone: what its program says when another member of a group has gone; empty where it
            says nothing of it.
        unfit_for: verbs that it has nothing to do with, each with the reason: what follows "runs
            llama.cpp".
        is_service: it waits for requests until a person stops it. Only while it runs does it answer
            the same command, and the idle board before it is no part of what is measured.
    """

    name: ClassVar[str]
    unit: ClassVar[str] = "steps"
    helpers: ClassVar[tuple[str, ...]] = ()
    results: ClassVar[tuple[str, ...]] = ()
    less_memory: ClassVar[str] = LESS_MEMORY
    is_meshed: ClassVar[bool] = False
    others_gone: ClassVar[str] = ""
    unfit_for: ClassVar[Mapping[str, str]] = {}
    is_service: ClassVar[bool] = False

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A checksum over what decides the run, wherever it runs."""

    @property
    @abstractmethod
    def subject(self) -> RunSpec:
        """What is kept of the program, the model and the arguments."""

    @property
    @abstractmethod
    def payload(self) -> tuple[Payload, ...]:
        """Files and folders that must lie on the board."""

    @property
    @abstractmethod
    def time_limit_s(self) -> float:
        """The board itself ends the program after that long."""

    @property
    def total(self) -> int | None:
        """How many units are to come; none where nobody knows."""
        return None

    @property
    def settings(self) -> Settings:
        """In which state the board is to be."""
        return Settings()

    def service_options(self, layout: Layout) -> ServiceOptions | None:
        """What its script does to a program that is stopped; none for one that ends by itself."""
        del layout
        return None

    @property
    def memory(self) -> MemoryNeed | None:
        """What it takes of the board's memory; none where nobody knows."""
        return None

    @property
    def spreadable(self) -> Spreadable | None:
        """What members of a group can compute a part of; none for programs of one board."""
        return None

    @property
    def forecastable(self) -> Forecastable | None:
        """What its time is predicted for; none where nothing is predicted."""
        return None

    @property
    def unsendable(self) -> tuple[str, str] | None:
        """Why no gateway can make it of what is sent there, and what to do; none where one can."""
        return None

    def divided(self, members: Sequence[MemberRoom]) -> Spread | None:
        """Divide the model itself between the first member and others.

        Returns:
            None where the parts follow from the members' memory and speed.

        Raises:
            UsageError, BoardError: it cannot be divided between these.
        """
        del members
        return None

    def worker(self, plan: WorkerPlan) -> Engine | None:
        """Return what computes for it on another member; none for ggml's RPC server."""
        del plan
        return None

    def simulation(self, context: RunContext) -> Simulation | None:
        """Return how its program is asked what it would allocate; none where it cannot say."""
        del context
        return None

    def with_footprint(self, footprint: Footprint) -> Self:
        """Return the same engine, whose need of memory is known exactly."""
        del footprint
        return self

    @abstractmethod
    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Refuse a board that cannot run it, before anything is copied there.

        Raises:
            BoardError, UsageError: says what is missing.
        """

    def place_secret(self, host: Host, layout: Layout) -> None:
        """Put what nobody else may read on the board, right before it starts there."""
        del host, layout

    @abstractmethod
    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start it on the board.

        Raises:
            UsageError: its arguments do not suit the board.
        """

    def environment(self, context: RunContext) -> Mapping[str, str]:
        """Return the variables that it is started with, beside those of the board's shell."""
        del context
        return {}

    def program(self, context: RunContext) -> str:
        """Return the word of the command line that names the program whose end is explained."""
        return self.command(context)[len(context.launcher)]

    def progress(self, now: ProgressUpdate) -> int:
        """Return how many units are done; for most engines, the steps of the trace."""
        return now.steps

    def note(self, now: ProgressUpdate) -> str:
        """Return what is shown beside the progress; empty for what the program has written."""
        del now
        return ""

    def phase(self, now: ProgressUpdate) -> str:
        """Return what it is doing, for what has no note of its own; empty where nobody knows."""
        del now
        return ""

    def is_done(self, now: ProgressUpdate) -> bool:
        """Say whether its work is done, so that it is to be stopped.

        It is asked whenever the run has grown. A program that ends by itself never is. One that
        is stopped so has not failed.
        """
        del now
        return False

    @staticmethod
    @abstractmethod
    def read(job: Job, folder: Path) -> Output:
        """Read what it left in a run's folder; any file may be missing.

        Raises:
            DataError: a file is malformed.
        """
