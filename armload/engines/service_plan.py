"""How a service and the scorer compute: what they share with a plan, and what they add."""

from __future__ import annotations

import shlex
from typing import Annotated

from pydantic import AfterValidator, Field

from armload.core.options import Option
from armload.core.values import ByteCount
from armload.engines.plan import (
    BATCH,
    FLASH_ATTENTION,
    KV_TYPE,
    MICRO_BATCH,
    MICRO_BATCH_TOKENS,
    SPECULATE,
    THREADS,
    Computation,
    FlashAttention,
    KvType,
    MediaPath,
    Pooling,
    Speculate,
    Temperature,
    Threads,
    TokenCount,
    draft_called,
    kv_halves,
)

DEFAULT_SLOTS = 4
DEFAULT_SLOT_TOKENS = 2048
"""Context of a slot, where the model was trained for as much."""

MOST_PARALLEL = 32
"""As the scorer's own limit of sequences."""

Slots = Annotated[int, Field(ge=1, le=64)]


class ServiceSettings(Computation):
    """How a service computes.

    Attributes:
        slots: requests that are answered at a time; others wait.
        context_tokens: length of each slot's KV cache, for a request's prompt and its answer; a
            multiple of 256.
        threads: as many as there are cores, where neither they nor ``cpus`` are given.
        batch_tokens: prompt tokens that are taken at a time.
        micro_batch_tokens: tokens that go through the model at a time.
        prompt_cache_bytes: for prompts of former requests, of which a later one may begin with
            the same words; 0 processes every prompt in full.
        embeddings: answer ``/v1/embeddings``, and how tokens are pooled into one; ``rank`` answers
            ``/v1/rerank`` instead; none for neither.
    """

    slots: Annotated[
        Slots, Option("requests to answer at once; others wait", "N", heading="Requests")
    ] = DEFAULT_SLOTS
    threads: Annotated[Threads | None, THREADS.of_one("as many as cores")] = None
    context_tokens: Annotated[
        TokenCount,
        Option(
            "tokens of KV cache for each slot: prompt and answer",
            "TOKENS",
            f"{DEFAULT_SLOT_TOKENS}, or the model's",
            name="context",
            is_unlike_llama_cpp=True,  # llama-server's is that of all its slots
        ),
    ] = DEFAULT_SLOT_TOKENS
    batch_tokens: Annotated[TokenCount, BATCH.of_one()] = 2048
    micro_batch_tokens: Annotated[TokenCount, MICRO_BATCH.of_one()] = MICRO_BATCH_TOKENS
    kv_type: Annotated[KvType, KV_TYPE.of_one()] = "f16"
    flash_attention: Annotated[FlashAttention, FLASH_ATTENTION.of_one()] = "auto"
    prompt_cache_bytes: Annotated[
        ByteCount,
        Field(ge=0),
        Option(
            "memory for caching the prompts of earlier requests, such as 256MiB",
            "SIZE",
            name="prompt-cache",
            heading="Requests",
        ),
    ] = 0
    embeddings: Annotated[
        Pooling | None,
        Option(
            "answer /v1/embeddings, pooled as the model's file specifies (model), or by mean, cls "
            "or last; of a reranker, /v1/rerank (rank)",
            "POOLING",
            heading="Requests",
        ),
    ] = None

    @property
    def kv_types(self) -> tuple[str, str]:
        """Types of keys and of values."""
        return kv_halves(self.kv_type)


def quoted_right(text: str) -> str:
    """Return arguments in one text.

    Raises:
        ValueError: they are not quoted as in a shell.
    """
    try:
        shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!a}: {error}; quote it as in a shell") from error
    return text


class ServingPlan(ServiceSettings):
    """How a model is served.

    Attributes:
        temperature: for requests that say none; 0 is greedy.
        cache_reuse_tokens: from so many equal tokens on, a part of a cached prompt is used again
            at another place of a later one; none for equal beginnings only.
        speculate: as in a plan of a run.
        mmproj: the projector by which it takes images and sounds; ``auto`` for the one that lies
            beside the model or in its repository, ``none`` or none for text alone.
        image_max_tokens: of one image, where its size decides; none for the projector's own limit.
        engine_args: further arguments for the engine, quoted as one text.
    """

    temperature: Annotated[
        Temperature,
        Option("default for requests that set none; 0 is greedy", "T", heading="Requests"),
    ] = 0.0
    cache_reuse_tokens: Annotated[
        TokenCount | None,
        Option(
            "with --prompt-cache, also reuse parts of earlier prompts that are at least this long "
            "and now stand elsewhere",
            "TOKENS",
            "equal beginnings only",
            heading="Requests",
            name="cache-reuse",
            needs="prompt_cache_bytes",
        ),
    ] = None
    speculate: Annotated[Speculate, SPECULATE.of_one("none")] = None
    mmproj: Annotated[
        MediaPath | None,
        Option(
            "projector by which it takes images and sounds, a file or hf:ORG/REPO/FILE.gguf; auto: "
            "the mmproj file beside the model, or in its repository; none: text alone",
            "FILE|auto|none",
            "none",
            heading="Requests",
            takes="file",
            harmless="in a plan",
        ),
    ] = None
    image_max_tokens: Annotated[
        TokenCount | None,
        Option(
            "most tokens of an image, for models in which its size decides",
            "TOKENS",
            "as in the projector",
            heading="Requests",
            needs="mmproj",
        ),
    ] = None
    engine_args: Annotated[
        str,
        AfterValidator(quoted_right),
        Option("more arguments for llama-server, as one quoted string", "ARGUMENTS"),
    ] = ""

    @property
    def extra(self) -> tuple[str, ...]:
        """The further arguments, each a word."""
        return tuple(shlex.split(self.engine_args))

    @property
    def draft_model(self) -> str | None:
        """What the model is called that guesses tokens; none where none does."""
        return draft_called(self.speculate)


class ScorerOptions(Computation):
    """How the scorer answers items.

    Attributes:
        parallel: items that are answered at a time, in one pass over the weights.
        context_tokens: for each item; none for what the longest needs.
        micro_batch_tokens: tokens that go through the model at a time.
    """

    parallel: Annotated[
        int,
        Field(ge=1, le=MOST_PARALLEL),
        Option("questions per pass over the weights", "N", heading="Task"),
    ] = 1
    context_tokens: Annotated[
        TokenCount | None,
        Option(
            "tokens of KV cache for each question",
            "TOKENS",
            "enough for the longest",
            name="context",
        ),
    ] = None
    micro_batch_tokens: TokenCount | None = None
