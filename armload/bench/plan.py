"""What to run on a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationError, field_validator

from armload.bench.cpu_set import cpu_numbers
from armload.bench.defaults import DEFAULT_TIME_LIMIT_S, SEED_N_PREDICT, SEED_PROMPT
from armload.core.errors import UsageError
from armload.core.values import Value

LONGEST_RUN_S = 30 * 24 * 3600
"""Shells on small boards count in 32 bits."""

OPTION_OF = {
    "context_tokens": "context",
    "batch_tokens": "batch",
    "micro_batch_tokens": "micro-batch",
    "time_limit_s": "time-limit",
    "extra": "engine-args",
}
"""What the command line calls a field, where that is not the field's own name."""

KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
FlashAttention = Literal["on", "off", "auto"]


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
        cold: the board forgets the files that it has in memory first, where it may.
        temperature: 0 is greedy.
        seed: of the sampler.
        stop_at_end: stop at the model's end-of-text token; without it exactly ``n_predict``
            tokens are generated, as a measurement needs.
        extra: further arguments for the engine.
        time_limit_s: the board ends the run after that long.
    """

    prompt: str = SEED_PROMPT
    prompt_tokens: Annotated[int, Field(ge=2)] | None = None
    n_predict: Annotated[int, Field(ge=1)] = SEED_N_PREDICT
    threads: Annotated[int, Field(ge=1)] | None = None
    cpus: str | None = None
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    batch_tokens: Annotated[int, Field(ge=1)] | None = None
    micro_batch_tokens: Annotated[int, Field(ge=1)] | None = None
    kv_type: str | None = None
    flash_attention: FlashAttention | None = None
    cold: bool = False
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 1
    stop_at_end: bool = False
    extra: tuple[str, ...] = ()
    time_limit_s: Annotated[float, Field(gt=0, le=LONGEST_RUN_S)] = DEFAULT_TIME_LIMIT_S

    @field_validator("prompt")
    @classmethod
    def _reaches_a_program(cls, prompt: str) -> str:
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise ValueError("this is not valid UTF-8") from error
        if "\0" in prompt:
            raise ValueError("a prompt cannot hold the character NUL")
        return prompt

    @field_validator("cpus")
    @classmethod
    def _names_cores(cls, cpus: str | None) -> str | None:
        if cpus is not None:
            cpu_numbers(cpus)
        return cpus

    @field_validator("kv_type")
    @classmethod
    def _is_known(cls, kv_type: str | None) -> str | None:
        if kv_type is not None:
            halves = kv_type.split("/")
            known = get_args(KvType)
            if len(halves) > 2 or any(half not in known for half in halves):
                raise ValueError(
                    f"there are {', '.join(known)}; keys and values apart are KEYS/VALUES"
                )
        return kv_type

    @property
    def kv_types(self) -> tuple[str, str] | None:
        """Types of keys and of values; none for the engine's usual one."""
        if self.kv_type is None:
            return None
        keys, _, values = self.kv_type.partition("/")
        return keys, values or keys


def new_plan(wishes: Mapping[str, object]) -> Plan:
    """Check a person's wishes and return them as a plan.

    Raises:
        UsageError: a value is out of its range; says which and what is allowed.
    """
    try:
        return Plan.model_validate(wishes)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        option = OPTION_OF.get(field, field.replace("_", "-"))
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"--{option} {first['input']!a}: {said}.") from error
