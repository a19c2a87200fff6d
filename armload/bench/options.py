"""The options of a benchmark, each with one value or several.

The same on the command line and in a plan file. Every combination of what is listed is a cell.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from armload.core.disk import require_file
from armload.core.errors import UsageError
from armload.core.mistakes import first_mistake
from armload.core.values import Value
from armload.core.yamlfile import load_file
from armload.engines.cpu_set import cpu_numbers
from armload.engines.plan import (
    Cores,
    FlashAttention,
    KvType,
    Plan,
    PromptText,
    PromptTokens,
    Resident,
    Seconds,
    Seed,
    Speculate,
    Temperature,
    Threads,
    TokenCount,
    WeightsMode,
    kv_halves,
)
from armload.engines.server import Slots
from armload.models.file_types import file_type


class _OneOrSeveral:
    """Tells the schema that a list of one may be written without brackets."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        listed = handler(core_schema)
        return {"anyOf": [listed["items"], listed]}


def _as_tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


FileType = Annotated[str, AfterValidator(file_type)]

T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Field(min_length=1), BeforeValidator(_as_tuple), _OneOrSeveral()]


class Options(Value):
    """What a plan file says; the keys are the long options of ``armload bench``.

    Attributes:
        board: a file in ``boards/``.
        model: GGUF files, ``hf:ORG/REPO/FILE.gguf``, ``like:SHAPE:TYPE``, ``word-problems:TYPE``
            or ``demo``.
        type: file types that the models are quantised to first, such as ``Q4_K_M``.
        prompt: texts to continue.
        prompt_tokens: lengths of prompts that are made of common words; beside texts, where both
            are listed.
        n_predict: tokens to generate.
        threads: worker threads.
        cpus: sets of cores, such as ``4-7``.
        context, batch, micro_batch: in tokens.
        kv_type: of the cache; keys and values apart are ``q8_0/q4_0``.
        flash_attention: on, off or auto.
        weights: mapped, streamed or auto.
        resident: bytes of streamed weights that stay in memory, such as ``400 MB``.
        speculate: guess tokens: none, ngram, or draft:MODEL.
        slots: requests that ``serve`` answers at a time; a single run takes no notice of it.
        engine_args: further arguments for the engine, quoted as one text.
        cold: drop the board's page cache first.
        temperature, seed, stop_at_end, time_limit: the same for all.
        cool_to: degrees Celsius that the board's hottest sensor shows before each run.
        governor: of the CPU frequency during a run.
        repeats: runs of every combination that count.
        warmups: runs of every combination before them that do not.
    """

    board: str | None = None
    model: Listed[str] = ()
    type: Listed[FileType] = ()
    prompt: Listed[PromptText] = ()
    prompt_tokens: Listed[PromptTokens] = ()
    n_predict: Listed[TokenCount] = ()
    threads: Listed[Threads] = ()
    cpus: Listed[Cores] = ()
    context: Listed[TokenCount] = ()
    batch: Listed[TokenCount] = ()
    micro_batch: Listed[TokenCount] = ()
    kv_type: Listed[KvType] = ()
    flash_attention: Listed[FlashAttention] = ()
    weights: Listed[WeightsMode] = ()
    resident: Listed[Resident] = ()
    speculate: Listed[Speculate] = ()
    slots: Listed[Slots] = ()
    engine_args: Listed[str] = ()
    cold: Listed[bool] = ()
    temperature: Temperature | None = None
    seed: Seed | None = None
    stop_at_end: bool | None = None
    time_limit: Seconds | None = None
    cool_to: Annotated[float, Field(ge=0, le=200)] | None = None
    governor: Annotated[str, Field(min_length=1)] | None = None
    repeats: Annotated[int, Field(ge=1, le=10_000)] | None = None
    warmups: Annotated[int, Field(ge=0, le=10_000)] | None = None

    @field_validator("flash_attention", mode="before")
    @classmethod
    def _says_it_in_yaml(cls, value: object) -> object:
        # YAML reads the words on and off as true and false.
        words = {True: "on", False: "off"}
        return tuple(words[each] if isinstance(each, bool) else each for each in _as_tuple(value))

    @field_validator("engine_args")
    @classmethod
    def _is_quoted_right(cls, several: tuple[str, ...]) -> tuple[str, ...]:
        for text in several:
            try:
                shlex.split(text)
            except ValueError as error:
                raise ValueError(f"{text!a}: {error}; quote it as in a shell") from error
        return several

    @field_validator("resident")
    @classmethod
    def _is_of_streamed_weights(
        cls, resident: tuple[int, ...], info: ValidationInfo
    ) -> tuple[int, ...]:
        if resident and info.data.get("weights") == ("mapped",):
            raise ValueError("this is a part of streamed weights; do not use weights: mapped")
        return resident

    @field_validator("*")
    @classmethod
    def _lists_each_once(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, tuple):
            return value
        meaning = _MEANINGS.get(info.field_name or "")
        listed: dict[object, object] = {}
        for each in value:
            other = listed.setdefault(meaning(each) if meaning else each, each)
            if other != each:
                raise ValueError(f"{other} and {each} are the same; {_EACH_ONCE}")
        if len(listed) < len(value):
            twice = next(each for each in value if value.count(each) > 1)
            raise ValueError(f"{twice} is listed twice; {_EACH_ONCE}")
        return value

    def over(self, other: Options) -> Options:
        """Return these options, and the other's for those that are not set here.

        ``prompt`` and ``prompt_tokens`` count as one option.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if {"prompt", "prompt_tokens"} & given.keys():
            given = {"prompt": (), "prompt_tokens": (), **given}
        return other.model_copy(update=given)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return self.model or ("demo",)

    def plans(self) -> Iterator[Plan]:
        """Yield every combination of what is listed, but for the models; threads vary first."""
        axes: dict[str, tuple[Mapping[str, Any], ...]] = {
            "prompt": (
                *({"prompt": text} for text in self.prompt),
                *({"prompt_tokens": count} for count in self.prompt_tokens),
            ),
            "engine_args": tuple({"extra": tuple(shlex.split(text))} for text in self.engine_args),
            **{
                name: tuple({field: value} for value in getattr(self, name))
                for name, field in _FIELDS.items()
            },
        }
        common: dict[str, Any] = {
            field: getattr(self, name)
            for name, field in _COMMON.items()
            if getattr(self, name) is not None
        }
        seen = set()
        for chosen in itertools.product(*(axis for axis in axes.values() if axis)):
            fields = dict(common)
            for each in chosen:
                fields.update(each)
            if fields.get("weights") == "mapped":
                fields.pop("resident_bytes", None)
            plan = Plan.model_validate(fields)
            if plan not in seen:
                seen.add(plan)
                yield plan


_MEANINGS: Mapping[str, Callable[[Any], object]] = {
    "cpus": cpu_numbers,
    "kv_type": kv_halves,
    "engine_args": lambda text: tuple(shlex.split(text)),
}
"""What two spellings of a value have in common."""

_EACH_ONCE = "use repeats to run a combination more than once"

_TOKENS = re.compile(r"\d+(,\d+)*", re.ASCII)
"""Lengths as llama-bench's ``-p`` takes them."""

_FIELDS = {
    "n_predict": "n_predict",
    "context": "context_tokens",
    "kv_type": "kv_type",
    "flash_attention": "flash_attention",
    "batch": "batch_tokens",
    "micro_batch": "micro_batch_tokens",
    "weights": "weights",
    "resident": "resident_bytes",
    "speculate": "speculate",
    "cpus": "cpus",
    "threads": "threads",
    "cold": "cold",
}
_COMMON = {
    "temperature": "temperature",
    "seed": "seed",
    "stop_at_end": "stop_at_end",
    "time_limit": "time_limit_s",
}


def read_options(path: Path) -> Options:
    """Read a plan file.

    Raises:
        UsageError: there is no such file.
        DataError: it is malformed; says file, line and what is allowed.
        DiskError: it cannot be read.
    """
    require_file(
        path,
        "plan file",
        "Correct the path. A plan file holds options of armload bench, such as the line "
        "'threads: [1, 2, 4]'.",
    )
    return load_file(path, Options)


def typed_options(typed: Mapping[str, object]) -> Options:
    """Check the options of a command line.

    Raises:
        UsageError: a value is out of its range, or two options exclude each other; names the
            option and says what is allowed.
    """
    if typed.get("prompt") and typed.get("prompt_tokens"):
        raise UsageError(
            "--prompt and --prompt-tokens: a prompt is a text or a length, not both.",
            "Leave one out. To run texts and lengths in one sweep, list both in a --plan file.",
        )
    prompts = typed.get("prompt")
    for text in prompts if isinstance(prompts, list) else ():
        if _TOKENS.fullmatch(text.strip()):
            raise UsageError(
                f"--prompt {text}: is this a text, or a length in tokens?",
                f"For a prompt of that many tokens, use --prompt-tokens {text.strip()}; for the "
                f'text itself, write prompt: "{text}" in a --plan file.',
            )
    try:
        return Options.model_validate(typed)
    except ValidationError as error:
        mistake = first_mistake(error, Options)
        option = str(mistake.place[0]).replace("_", "-")
        raise UsageError(f"--{option}: {mistake.words}.") from error
