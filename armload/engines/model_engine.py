"""What the programs that are built with llama.cpp, and run with one model, have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from armload.build.binary import Binary
from armload.engines.engine import MemoryNeed, Settings, Site
from armload.engines.llama_cpp import (
    NO_REPACK,
    EngineSettings,
    check_architecture,
    check_options,
    if_offered,
    micro_batch_words,
    repacks,
)
from armload.engines.model_program import ModelProgram, PlanDocument
from armload.engines.output import Memory
from armload.engines.prediction import Sequences
from armload.engines.trace import Step
from armload.engines.weights import WeightsSettings, are_streamed, environment
from armload.models.model import Model

PROGRAM_BYTES = 24 << 20
BYTES_PER_VOCABULARY_ENTRY = 160
"""Of the engine itself beside weights, cache and buffers, with some to spare; measured with
vocabularies of 32,000 and 152,000 tokens."""

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
        check_architecture(binary.path, model)
        check_options(binary.path, plan)
        super().__init__(plan, binary, model)

    @property
    def settings(self) -> Settings:
        """As planned."""
        return Settings(cpus=self.plan.cpus, threads=self.plan.threads, measure_rates=True)

    @property
    @abstractmethod
    def memory(self) -> MemoryNeed:
        """What it takes of the board's memory."""

    def environment(self, site: Site) -> Mapping[str, str]:
        """Say how the weights are held, where that is not as llama.cpp does it."""
        return environment(self.plan, streamed=self._are_streamed(site))

    def _memory_words(self, site: Site) -> list[str]:
        """Return the options that follow from a board's memory."""
        now, context = site.found.conditions, self.memory.context_tokens
        is_streamed = self._are_streamed(site)
        words = micro_batch_words(self.plan, self.model, context, now.memory_and_swap_bytes)
        if is_streamed or not repacks(self.model, now.memory_available_bytes, context):
            words += if_offered(self._binary.path, NO_REPACK)
        if is_streamed:
            # Threads that wait for the storage would keep their cores busy.
            words += ["--poll", "0"]
        return words

    def _are_streamed(self, site: Site) -> bool:
        now = site.found.conditions
        return are_streamed(self.plan, self._binary.path, self.model, self.memory, now)


def memory_of(
    model: Model,
    context_tokens: int,
    kv_share: float,
    *,
    batch_tokens: int,
    sequences: Sequences = _ONE,
    more_bytes: int = 0,
) -> MemoryNeed:
    """Return what a model takes of a board's memory, with a KV cache and the engine's buffers.

    Args:
        context_tokens: of each sequence.
        kv_share: of a cache entry's size in 16 bits.
        batch_tokens: that go through the model at a time, at most.
        sequences: that are computed at a time.
        more_bytes: of the program, beyond ``working_bytes``.
    """
    all_tokens = context_tokens * sequences.count
    return MemoryNeed(
        name=model.name,
        weights_bytes=model.size_bytes,
        kv_bytes=round(all_tokens * model.kv_bytes_per_token * kv_share),
        program_bytes=working_bytes(model, min(batch_tokens, all_tokens)) + more_bytes,
        context_tokens=all_tokens,
        sequences=sequences,
        bytes_per_token=model.bytes_per_token,
    )


def working_bytes(model: Model, batch_tokens: int) -> int:
    """Return what the engine takes beside weights and cache."""
    vocabulary_bytes = BYTES_PER_VOCABULARY_ENTRY * model.vocabulary
    return PROGRAM_BYTES + vocabulary_bytes + batch_tokens * model.activation_bytes_per_token


def peak_memory(steps: Sequence[Step]) -> Memory | None:
    """Return the most that the steps of a trace show; none where they show nothing."""
    peak_bytes = max((step.rss_bytes for step in steps), default=0)
    return Memory(max_rss_bytes=peak_bytes, max_vms_bytes=peak_bytes) if peak_bytes else None
