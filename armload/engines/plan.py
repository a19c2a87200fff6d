"""What to run on a board."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from armload.core.values import ByteCount, Value
from armload.engines.cpu_set import cpu_numbers
from armload.engines.defaults import DEFAULT_TIME_LIMIT_S, SEED_N_PREDICT, SEED_PROMPT

LONGEST_RUN_S = 30 * 24 * 3600
"""Shells on small boards count in 32 bits."""

MOST_TOKENS = 2**31 - 1
"""llama.cpp counts them in 32 bits."""

MOST_THREADS = 512
"""``GGML_MAX_N_THREADS`` of llama.cpp."""

MOST_TEMPERATURE = 1000.0

KV_BITS = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "q8_0": 8.5,
    "q4_0": 4.5,
    "q4_1": 5,
    "iq4_nl": 4.5,
    "q5_0": 5.5,
    "q5_1": 6,
}
"""Types of a KV cache that llama.cpp's programs take (common/arg.cpp), with bits per value."""

KV_TYPES = tuple(KV_BITS)

NO_SPECULATION, NGRAM, DRAFT = "none", "ngram", "draft:"
"""How tokens are guessed before the model verifies them; after the last comes a model's name."""

_SHORT_PROMPT = 48  # the length of a shortened one: its beginning, and a note
_BEGIN_OF_A_PROMPT = 20


def _reaches_a_program(prompt: str) -> str:
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ValueError("this is not valid UTF-8") from error
    if "\0" in prompt:
        raise ValueError("a prompt cannot contain the character NUL")
    return prompt


def _as_text(cores: object) -> object:
    return str(cores) if isinstance(cores, int) and not isinstance(cores, bool) else cores


def _names_cores(cores: str) -> str:
    cpu_numbers(cores)
    return cores


def _is_known(kv_type: str) -> str:
    halves = kv_type.split("/")
    if len(halves) > 2 or any(half not in KV_TYPES for half in halves):
        raise ValueError(f"use one of {', '.join(KV_TYPES)}, or KEYS/VALUES for different types")
    return kv_type


def _as_nothing(speculate: object) -> object:
    return None if speculate == NO_SPECULATION else speculate


def _is_known_speculation(speculate: str) -> str:
    if speculate != NGRAM and not speculate.startswith(DRAFT):
        raise ValueError(f"use {NO_SPECULATION}, {NGRAM} or {DRAFT}MODEL")
    if speculate == DRAFT:
        raise ValueError(f"the draft model is missing: {DRAFT}MODEL")
    return speculate


TokenCount = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Threads = Annotated[int, Field(ge=1, le=MOST_THREADS)]
PromptText = Annotated[str, AfterValidator(_reaches_a_program)]
PromptTokens = Annotated[int, Field(ge=2, le=MOST_TOKENS)]
Cores = Annotated[str, BeforeValidator(_as_text), AfterValidator(_names_cores)]
KvType = Annotated[str, AfterValidator(_is_known)]
FlashAttention = Literal["on", "off", "auto"]
WeightsMode = Literal["auto", "mapped", "streamed"]
Resident = Annotated[ByteCount, Field(ge=0)]
Speculate = Annotated[
    Annotated[str, AfterValidator(_is_known_speculation)] | None, BeforeValidator(_as_nothing)
]
Temperature = Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)]
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_RUN_S)]


class Plan(Value):
    """One run of the engine: plain continuation of a prompt.

    Attributes:
        prompt: the text to continue.
        prompt_tokens: length of a prompt of common words that is made for the model instead;
            its beginning-of-text token counts, where it has one.
        n_predict: tokens to generate.
        threads: worker threads; none lets the engine choose (its physical cores).
        cpus: the cores that it may run on, such as ``4-7`` or ``0,2``; none for all.
        context_tokens: length of the KV cache; none for prompt and ``n_predict`` with some room.
        batch_tokens: prompt tokens that are given to the engine at a time.
        micro_batch_tokens: tokens that go through the model at a time.
        kv_type: of the cache, such as ``q8_0``, or keys and values apart, ``q8_0/q4_0``.
        flash_attention: the fused attention kernel.
        weights: ``mapped`` as llama.cpp does it, ``streamed`` ahead of the computation with a part
            that stays in memory, or ``auto``: streamed if they exceed the board's memory.
        resident_bytes: of streamed weights, that stay in memory; none for what fits.
        speculate: ``ngram``: tokens are guessed from the text so far; ``draft:MODEL``: by that
            model; none without.
        cold: the board's page cache is dropped first, where permitted.
        temperature: 0 is greedy.
        seed: of the sampler.
        stop_at_end: stop at the model's end-of-text token; without it exactly ``n_predict``
            tokens are generated, as a measurement needs.
        extra: further arguments for the engine.
        time_limit_s: the board ends the run after that long.
    """

    prompt: PromptText = SEED_PROMPT
    prompt_tokens: PromptTokens | None = None
    n_predict: TokenCount = SEED_N_PREDICT
    threads: Threads | None = None
    cpus: Cores | None = None
    context_tokens: TokenCount | None = None
    batch_tokens: TokenCount | None = None
    micro_batch_tokens: TokenCount | None = None
    kv_type: KvType | None = None
    flash_attention: FlashAttention | None = None
    weights: WeightsMode = "auto"
    resident_bytes: Resident | None = None
    speculate: Speculate = None
    cold: bool = False
    temperature: Temperature = 0.0
    seed: Seed = 1
    stop_at_end: bool = False
    extra: tuple[str, ...] = ()
    time_limit_s: Seconds = DEFAULT_TIME_LIMIT_S

    @property
    def draft_model(self) -> str | None:
        """What the model is called that guesses tokens; none where none does."""
        if self.speculate is None or not self.speculate.startswith(DRAFT):
            return None
        return self.speculate.removeprefix(DRAFT)

    @property
    def without_speculation(self) -> Plan:
        """The same without speculation; the time limit, which changes nothing, is the usual one."""
        changed = {"speculate": None, "time_limit_s": DEFAULT_TIME_LIMIT_S}
        return self.model_copy(update=changed)

    @property
    def kv_types(self) -> tuple[str, str] | None:
        """Types of keys and of values; none for the engine's usual one."""
        return None if self.kv_type is None else kv_halves(self.kv_type)

    @property
    def kv_share(self) -> float:
        """Size of the KV cache as a share of that of the usual type, ``f16``."""
        return kv_share(self.kv_type)


def kv_halves(kv_type: str) -> tuple[str, str]:
    """Return the types of keys and of values: ``q8_0`` is that of both."""
    keys, _, values = kv_type.partition("/")
    return keys, values or keys


def kv_share(kv_type: str | None) -> float:
    """Return the size of a KV cache as a share of that of the usual type, ``f16``."""
    keys, values = kv_halves(kv_type or "f16")
    return (KV_BITS[keys] + KV_BITS[values]) / 2 / KV_BITS["f16"]


def short_prompt(prompt: str) -> str:
    """Return a prompt in quotation marks: of a long one, what tells it from others."""
    if len(prompt) <= _SHORT_PROMPT:
        return repr(prompt)
    short_hash = hashlib.sha256(prompt.encode()).hexdigest()[:8]
    return f"{prompt[:_BEGIN_OF_A_PROMPT]!r}… ({len(prompt)} characters, {short_hash})"
