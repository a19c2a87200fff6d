"""What the programs that are built with llama.cpp, and work on one model, have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Protocol, Self, TypeVar

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.compatibility import check_fit
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.engines.engine import (
    Engine,
    MemoryNeed,
    RunContext,
    Settings,
    Simulation,
    Spreadable,
)
from armload.engines.footprint import FOOTPRINT_VARIABLE, Footprint
from armload.engines.job import AdapterRecord, BinaryRecord, ModelRecord, RunSpec
from armload.engines.llama_cpp import (
    WHOLE_LAYERS_ONLY,
    EngineSettings,
    check_architecture,
    check_options,
    memory_words,
    offers,
)
from armload.engines.output import Memory
from armload.engines.plan import DEFAULT_TIME_LIMIT_S, MICRO_BATCH_TOKENS, FlashAttention
from armload.engines.prediction import Sequences
from armload.engines.trace import Step
from armload.engines.weights import WeightsSettings, are_streamed, environment
from armload.models.adapter import Adapter
from armload.models.context_memory import KvCache
from armload.models.metadata import FLOAT_BYTES, KV_BYTES_PER_VALUE
from armload.models.model import Model


class PlanDocument(Protocol):
    """What a program is to do, as a value."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return all of it; in mode ``json`` with nothing but JSON's types."""

    def model_dump_json(self, *, exclude: set[str] | None = None) -> str:
        """Write all of it but these fields."""


AnyDocument = TypeVar("AnyDocument", bound=PlanDocument)


class ModelProgram(Engine, Generic[AnyDocument]):
    """A plan, carried out by one program on one model.

    Attributes:
        plan, model: as given.
        binary: the program, built for the board's target.
    """

    def __init__(self, plan: AnyDocument, binary: Binary, model: Model) -> None:
        self.plan = plan
        self.binary = binary
        self.model = model

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program and model."""
        return fingerprint_of(
            (self.plan.model_dump_json(), self.binary.sha256, self.model.identity)
        )

    @property
    def subject(self) -> RunSpec:
        """The plan, and what is known of program and model."""
        return RunSpec(
            arguments=self.plan.model_dump(mode="json"),
            binary=binary_record(self.binary),
            model=model_record(self.model),
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        return program_and_model(self.binary, self.model)

    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Refuse a board whose CPU lacks what the program uses."""
        del host, progress
        check_fit(board, self.binary, found)


def binary_record(binary: Binary) -> BinaryRecord:
    """Return what is kept of a program."""
    return BinaryRecord(
        **binary.model_dump(include=set(BinaryRecord.model_fields) - {"features"}),
        features=tuple(use.feature for use in binary.features if not use.guarded),
    )


def model_record(model: Model) -> ModelRecord:
    """Return what is kept of a model."""
    facts = model.model_dump(include=set(ModelRecord.model_fields) - {"name", "adapters"})
    known = set(AdapterRecord.model_fields) - {"name"}
    adapters = tuple(
        AdapterRecord(name=each.name, **each.model_dump(include=known)) for each in model.adapters
    )
    return ModelRecord(name=model.name, adapters=adapters, **facts)


def program_and_model(binary: Binary, model: Model) -> tuple[Payload, ...]:
    """Return what a program with a model needs on a board: both, and the model's adapters."""
    return (
        Payload.of_file(binary.path, sha256=binary.sha256, executable=True),
        Payload.of_model(model),
        *map(_adapter, model.adapters),
    )


def _adapter(adapter: Adapter) -> Payload:
    return Payload.of_file(adapter.path, sha256=adapter.sha256, executable=False)


PROGRAM_BYTES = 24 << 20
BYTES_PER_VOCABULARY_ENTRY = 160
"""Of the engine itself beside weights, cache and buffers, with some to spare; measured with
vocabularies of 32,000 and 152,000 tokens."""

_TENSOR_SPLIT = "{none,layer,row,tensor}"
"""What a program says of ``--split-mode`` if it has that one."""

_ONE = Sequences()


class ModelPlan(PlanDocument, EngineSettings, WeightsSettings, Protocol):
    """How a program computes and holds its weights, as a value."""


AnyPlan = TypeVar("AnyPlan", bound=ModelPlan)


class ModelEngine(ModelProgram[AnyPlan]):
    """A plan, carried out by one program that computes with one model.

    Attributes:
        plan, model: as given.

    Args:
        binary: built for the board's target.

    Raises:
        UsageError: the program does not know the model's architecture, or lacks an option that
            the plan asks for.
    """

    def __init__(self, plan: AnyPlan, binary: Binary, model: Model) -> None:
        check_architecture(binary, model)
        check_options(binary.path, plan)
        super().__init__(plan, binary, model)
        self.footprint: Footprint | None = None

    @property
    def settings(self) -> Settings:
        return Settings(
            cpus=self.plan.cpus,
            threads=self.plan.threads,
            measure_rates=True,
            prefers_fast=self.plan.numa is None,
        )

    @property
    def spreadable(self) -> Spreadable | None:
        return Spreadable(
            model=self.model, threads=self.plan.threads, tensor_lacks=self._tensor_lacks
        )

    @property
    def _tensor_lacks(self) -> str:
        if not offers(self.binary.path, _TENSOR_SPLIT):
            return f"{self.binary.program} of this llama.cpp cannot do that."
        if self.model.architecture in WHOLE_LAYERS_ONLY:
            return (
                f"llama.cpp does not divide layers of the architecture {self.model.architecture}."
            )
        if self.plan.flash_attention == "off":
            return "it requires flash attention."
        if self.model.adapters:
            return "llama.cpp does not divide layers with adapters."
        return ""

    @property
    @abstractmethod
    def estimated_memory(self) -> MemoryNeed:
        """What it takes of the board's memory, as far as the model's header tells."""

    @property
    def memory(self) -> MemoryNeed:
        """What it takes of the board's memory: as llama.cpp has said, else as estimated."""
        need = self.estimated_memory
        more_bytes = self.more_bytes + self.model.adapter_bytes
        return need.exactly(self.footprint, more_bytes) if self.footprint else need

    @property
    def projector_file(self) -> Path | None:
        """By which the model sees or hears, on this machine; none for text alone."""
        return None

    @property
    @abstractmethod
    def batch_tokens(self) -> int:
        """Of the largest micro-batch that it computes."""

    @property
    def more_bytes(self) -> int:
        """Of memory that the program takes beside what llama.cpp itself allocates."""
        return 0

    def simulation(self, context: RunContext) -> Simulation | None:
        """Return how the program is asked, unless it was built from a source that cannot say."""
        if not offers(self.binary.path, FOOTPRINT_VARIABLE):
            return None
        words, adapters = list(self.command(context)), self._adapter_words(context)
        if adapters:  # which are not on the board yet
            at = words.index(adapters[0])
            del words[at : at + len(adapters)]
        return Simulation(
            program=self.payload[0],
            command=tuple(words),
            model=self.model.path,
            batch_tokens=self.batch_tokens,
        )

    def with_footprint(self, footprint: Footprint) -> Self:
        """Return the same engine, whose need of memory is known exactly."""
        known = copy(self)
        known.footprint = footprint
        return known

    def environment(self, context: RunContext) -> Mapping[str, str]:
        """Say how the weights are held, where that is not as llama.cpp does it."""
        return environment(self.plan, streamed=self._are_streamed(context))

    def _memory_words(self, context: RunContext) -> list[str]:
        """Return the options that follow from a board's memory."""
        now = context.found.conditions
        return memory_words(
            *(self.plan, self.model, self.binary.path, self.memory.context_tokens),
            memory_bytes=now.memory_and_swap_bytes,
            memory_available_bytes=now.memory_available_bytes,
            streamed=self._are_streamed(context),
        )

    def _adapter_words(self, context: RunContext) -> list[str]:
        """Return the option for the model's adapters; nothing without any."""
        if not self.model.adapters:
            return []
        places = [_adapter(each).items(context.layout)[0].remote for each in self.model.adapters]
        scales = [f"{each.scale:g}" for each in self.model.adapters]
        if any("," in str(place) or ":" in str(place) for place in places):
            raise UsageError(
                f"--lora: llama.cpp cannot take an adapter from {places[0].parent}: the path "
                "contains a comma or a colon.",
                "Set another workdir in the board's file.",
            )
        if offers(self.binary.path, "FNAME:SCALE,..."):
            pairs = zip(places, scales, strict=True)
            return ["--lora-scaled", ",".join(f"{place}:{scale}" for place, scale in pairs)]
        words: list[str] = []  # until December 2025 it took two arguments
        for place, scale in zip(places, scales, strict=True):
            words += ["--lora-scaled", str(place), scale]
        return words

    def _spread_words(self, context: RunContext) -> tuple[str, ...]:
        """Return the options for the members of a group; none on a board by itself."""
        if context.spread is None:
            return ()
        words = context.spread.words(context.servers)
        if context.spread.split == "layer":
            return words
        if not offers(self.binary.path, _TENSOR_SPLIT):
            raise UsageError(
                f"--split tensor: {self.binary.program} of this llama.cpp cannot do that.",
                "Omit --source, or use --split layer.",
            )
        # It requires flash attention.
        return words if self.plan.flash_attention else (*words, "-fa", "on")

    def _are_streamed(self, context: RunContext) -> bool:
        if context.spread is not None:
            return False  # the first member's part fits into its memory
        now = context.found.conditions
        return are_streamed(self.plan, self.binary.path, self.memory, now)


def memory_of(
    model: Model,
    context_tokens: int,
    kv_shares: tuple[float, float],
    *,
    batch_tokens: int,
    micro_batch_tokens: int | None = None,
    sequences: Sequences = _ONE,
    is_shared: bool = False,
    flash_attention: FlashAttention | None = None,
    more_bytes: int = 0,
) -> MemoryNeed:
    """Return what a model takes of a board's memory, with a KV cache and the engine's buffers.

    Args:
        context_tokens: of each sequence.
        kv_shares: of the sizes of keys and values in 16 bits.
        batch_tokens: that go through the model at a time, at most.
        micro_batch_tokens: that the engine is told to compute at a time; none for its own choice.
        sequences: that are computed at a time.
        is_shared: they share one KV cache.
        flash_attention: as the engine is told; none for its own choice.
        more_bytes: of the program, beyond ``working_bytes``.
    """
    all_tokens = context_tokens * sequences.count
    kv_cache = KvCache(
        memory=model.context_memory,
        kv_shares=kv_shares,
        micro_batch_tokens=micro_batch_tokens or MICRO_BATCH_TOKENS,
        is_shared=is_shared,
    )
    return MemoryNeed(
        name=model.name,
        weights_bytes=model.size_bytes,
        row_table_bytes=model.row_table_bytes,
        kv_bytes=kv_cache.size_bytes(context_tokens, sequences.count),
        kv_is_exact=model.context_memory.is_exact,
        kv_cache=kv_cache,
        program_bytes=working_bytes(
            model,
            min(batch_tokens, all_tokens),
            all_tokens if is_shared else context_tokens,
            is_fused=flash_attention != "off",
        )
        + model.adapter_bytes
        + more_bytes,
        context_tokens=all_tokens,
        sequences=sequences,
        bytes_per_token=model.bytes_per_token,
        expert_bytes=model.expert_bytes,
        expert_bytes_per_token=model.expert_bytes_per_token,
        expert_layer_bytes=model.expert_bytes // max(1, model.layers - model.prediction_layers),
    )


def working_bytes(
    model: Model, batch_tokens: int, context_tokens: int = 0, *, is_fused: bool = True
) -> int:
    """Return what the engine takes beside weights and cache.

    Args:
        context_tokens: that a token of the batch may attend to.
        is_fused: attention is computed by the fused kernel.
    """
    vocabulary_bytes = BYTES_PER_VOCABULARY_ENTRY * model.vocabulary
    per_token = model.activation_bytes_per_token + context_tokens * _attention_bytes(
        model, is_fused=is_fused
    )
    return PROGRAM_BYTES + vocabulary_bytes + batch_tokens * per_token


def _attention_bytes(model: Model, *, is_fused: bool) -> int:
    """Return what the engine keeps for a pair of a token and one that it may attend to.

    That is the mask. Without the fused kernel it has 32 bits, not 16, and each head has a score,
    which the threads hold in 16 bits, too.
    """
    if is_fused:
        return KV_BYTES_PER_VALUE
    return FLOAT_BYTES + model.attention_heads * (FLOAT_BYTES + KV_BYTES_PER_VALUE)


def peak_memory(steps: Sequence[Step]) -> Memory | None:
    """Return the most that the steps of a trace show; none where they show nothing."""
    peak_bytes = max((step.rss_bytes for step in steps), default=0)
    return Memory(max_rss_bytes=peak_bytes, max_vms_bytes=peak_bytes) if peak_bytes else None


ToolPlan = TypeVar("ToolPlan", bound=PlanDocument)


class InPlace(Value):
    """Where the large files are on a board that is this machine: nothing is copied.

    Attributes:
        base: the model.
        result: what is made of it.
    """

    base: PurePosixPath
    result: PurePosixPath


class ModelTool(ModelProgram[ToolPlan]):
    """A plan, carried out by one program on one model's file.

    The program writes what it does to standard error, which is joined to standard output, so that
    it is seen while it runs.

    Attributes:
        plan, model, in_place: as given.

    Args:
        binary: built for the board's target.
        in_place: on this machine; none copies the model to the board, and the result from there.
    """

    def __init__(
        self, plan: ToolPlan, binary: Binary, model: Model, in_place: InPlace | None
    ) -> None:
        super().__init__(plan, binary, model)
        self.in_place = in_place

    @property
    def payload(self) -> tuple[Payload, ...]:
        program, *model = program_and_model(self.binary, self.model)
        return (program,) if self.in_place is not None else (program, *model)

    @property
    @abstractmethod
    def result(self) -> str | None:
        """The file in a run's folder that it makes; none where it makes it in its place."""

    @property
    def time_limit_s(self) -> float:
        """As long as any run may take."""
        return DEFAULT_TIME_LIMIT_S

    def program(self, context: RunContext) -> str:
        """Return the program, which a shell starts."""
        return str(self.payload[0].items(context.layout)[0].remote)

    def _base(self, context: RunContext) -> PurePosixPath:
        """Return where the model lies."""
        if self.in_place is not None:
            return self.in_place.base
        return self.payload[1].items(context.layout)[0].remote

    def _started(self, context: RunContext, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that start the program with these arguments."""
        program = self.program(context)
        return ("sh", "-c", 'exec "$@" 2>&1', "sh", *context.launcher, program, *words)


def payload_from_program_folder(layout: Layout, payload: Payload) -> str:
    """Return where a file of a payload lies on a board, as seen from a program's folder.

    A program that notes the name in its result would else note where a work folder is.
    """
    remote = payload.items(layout)[0].remote
    return str(PurePosixPath("..", "..", "..", remote.relative_to(layout.workdir)))
