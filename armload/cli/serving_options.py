"""The options that say how a model is served, for the verbs that start a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armload.engines.server import ServingPlan

SERVING_HELP = {
    "slots": "requests to answer at a time; others wait (4)",
    "context": "tokens of KV cache for each slot: prompt and answer (2048, or the model's)",
    "threads": "worker threads (as many as cores)",
    "cpus": "run on these cores only, such as 4-7 or 0,2 (all cores)",
    "batch": "logical batch size: prompt tokens per call of the engine (2048)",
    "micro-batch": "physical batch size: tokens per pass through the model (512)",
    "kv-type": "type of the KV cache: f16, q8_0, q4_0, ...; keys and values apart: q8_0/q4_0 (f16)",
    "flash-attention": "on, off or auto (auto)",
    "weights": "mapped, streamed or auto, as for bench (auto)",
    "resident": "part of streamed weights to lock in memory, such as 400MB (what fits)",
    "prompt-cache": "memory for prompts that later requests may begin with, such as 256MiB (0)",
    "temperature": "default for requests that set none; 0 is greedy (0)",
}
"""Help of each option; the names are those of the verbs' arguments."""

_FIELDS = {
    "context": "context_tokens",
    "batch": "batch_tokens",
    "micro_batch": "micro_batch_tokens",
    "resident": "resident_bytes",
    "prompt_cache": "prompt_cache_bytes",
}


@dataclass(frozen=True, kw_only=True)
class ServingFile:
    """What a plan file says of a service.

    Attributes:
        board, model, type: their names; empty where it says none.
        fields: of a ``ServingPlan``, that it sets.
    """

    board: str = ""
    model: str = ""
    type: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


def read_serving_file(name: str) -> ServingFile:
    """Read a plan file, and say which of its options a service does not have.

    Args:
        name: empty for no file.

    Raises:
        UsageError: there is none, or it lists several values of an option.
        DataError: it is malformed.
    """
    from armload.bench.options import read_options
    from armload.cli import terminal
    from armload.core.errors import UsageError
    from armload.serving.planning import serving_fields, without_effect

    if not name:
        return ServingFile()
    options = read_options(Path(name))
    if len(options.model) > 1:
        raise UsageError(f"{name}: model lists {', '.join(options.model)}.", "Name one model.")
    if len(options.type) > 1:
        raise UsageError(f"{name}: type lists {', '.join(options.type)}.", "Name one type.")
    if unused := without_effect(options):
        terminal.progress().say(f"{name}: a service has no {' and no '.join(unused)}.")
    return ServingFile(
        board=options.board or "",
        model="".join(options.model),
        type="".join(options.type),
        fields=serving_fields(options, name),
    )


def serving_plan(
    typed: Mapping[str, str], file: Mapping[str, Any] | None = None
) -> ServingPlan | None:
    """Return the plan that the options of a command line make; none where all are empty.

    Args:
        typed: by the names of the verb's arguments; an empty text was not given.
        file: fields of the plan that a file sets, and that what is typed overrides.

    Raises:
        UsageError: a value is out of its range; names the option and says what is allowed.
    """
    from pydantic import ValidationError

    from armload.core.errors import UsageError
    from armload.core.mistakes import first_mistake
    from armload.engines.server import ServingPlan

    given: dict[str, Any] = dict(file or {})
    given.update({_FIELDS.get(name, name): text for name, text in typed.items() if text})
    if given.get("weights") == "mapped" and "resident_bytes" in given:
        raise UsageError("--resident is a part of streamed weights; do not use --weights mapped.")
    try:
        return ServingPlan.model_validate(given) if given else None
    except ValidationError as error:
        mistake = first_mistake(error, ServingPlan)
        options = {field: name for name, field in _FIELDS.items()}
        field = str(mistake.place[0])
        option = options.get(field, field).replace("_", "-")
        raise UsageError(f"--{option}: {mistake.words}.") from error
