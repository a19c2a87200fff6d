"""What to run on a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError

from armload.bench.defaults import SEED_N_PREDICT, SEED_PROMPT
from armload.core.errors import UsageError
from armload.core.values import Value


class Plan(Value):
    """One run of the engine: plain continuation of a prompt.

    Attributes:
        prompt: the text to continue.
        n_predict: tokens to generate.
        threads: worker threads; none lets the engine choose (its physical cores).
        context_tokens: length of the KV cache; none for prompt and ``n_predict`` with some room.
        temperature: 0 is greedy.
        seed: of the sampler.
        repack: let the engine rearrange the weights in memory; none decides by the board's memory.
        stop_at_end: stop at the model's end-of-text token; without it exactly ``n_predict``
            tokens are generated, as a measurement needs.
        extra: further arguments for the engine.
        time_limit_s: the board ends the run after that long.
    """

    prompt: str = SEED_PROMPT
    n_predict: Annotated[int, Field(ge=1)] = SEED_N_PREDICT
    threads: Annotated[int, Field(ge=1)] | None = None
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] = 0.0
    seed: int = 1
    repack: bool | None = None
    stop_at_end: bool = False
    extra: tuple[str, ...] = ()
    time_limit_s: Annotated[float, Field(gt=0)] = 6 * 3600.0


def new_plan(wishes: Mapping[str, object]) -> Plan:
    """Check a person's wishes and return them as a plan.

    Raises:
        UsageError: a value is out of its range; says which and what is allowed.
    """
    try:
        return Plan.model_validate(wishes)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"--{name} {first['input']}: {first['msg']}.") from error
