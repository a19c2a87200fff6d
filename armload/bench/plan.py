"""What to run on a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError, field_validator

from armload.bench.defaults import DEFAULT_TIME_LIMIT_S, SEED_N_PREDICT, SEED_PROMPT
from armload.core.errors import UsageError
from armload.core.values import Value

LONGEST_RUN_S = 30 * 24 * 3600
"""Shells on small boards count in 32 bits."""

_OPTION_OF = {"context_tokens": "context", "time_limit_s": "time-limit", "extra": "engine-args"}


class Plan(Value):
    """One run of the engine: plain continuation of a prompt.

    Attributes:
        prompt: the text to continue.
        n_predict: tokens to generate.
        threads: worker threads; none lets the engine choose (its physical cores).
        context_tokens: length of the KV cache; none for prompt and ``n_predict`` with some room.
        temperature: 0 is greedy.
        seed: of the sampler.
        stop_at_end: stop at the model's end-of-text token; without it exactly ``n_predict``
            tokens are generated, as a measurement needs.
        extra: further arguments for the engine.
        time_limit_s: the board ends the run after that long.
    """

    prompt: str = SEED_PROMPT
    n_predict: Annotated[int, Field(ge=1)] = SEED_N_PREDICT
    threads: Annotated[int, Field(ge=1)] | None = None
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: int = 1
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
        option = _OPTION_OF.get(field, field.replace("_", "-"))
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"--{option} {first['input']!a}: {said}.") from error
