"""The options of a benchmark, each with one value or several.

The same on the command line and in a plan file. Every combination of what is listed is a cell.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from armload.analysis.statistics import FEWEST_RUNS, FEWEST_TOKENS
from armload.core.cpu_sets import cpu_numbers
from armload.core.deciding import DESCRIBES
from armload.core.defaults import DEMO
from armload.core.files import require_file
from armload.core.options import Option, OptionGroup, declared_options, without_none
from armload.core.values import counted
from armload.core.yamlfile import load_file
from armload.engines.plan import Plan, kv_halves
from armload.engines.service_plan import Slots, quoted_right
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


MODEL = (
    "a GGUF file, hf:ORG/REPO[:TYPE] or hf:ORG/REPO/FILE.gguf (ms: for ModelScope), "
    "NAME:TYPE as fit lists it, like:NAME:TYPE (random weights), word-problems:TYPE, smollm2, "
    "random (weights), or demo (smollm2)"
)

FileType = Annotated[str, AfterValidator(file_type)]

QUANTISED = Option(
    "quantise the model to this file type first, such as Q4_K_M",
    "TYPE",
    "unchanged",
    heading="Plan",
    harmless="anywhere",
)
QUANTISED_ALL = Option(
    "quantise the models to these file types first, such as Q4_K_M",
    "TYPE",
    "unchanged",
    "commas",
    heading="Plan",
    harmless="anywhere",
)

T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Field(min_length=1), BeforeValidator(_as_tuple), _OneOrSeveral()]


def _listed_options(plan: type[Plan]) -> type[OptionGroup]:
    """Return the options of a plan, each of which may list several values if its help says so."""
    fields: dict[str, Any] = {}
    for each in declared_options(plan):
        kind = without_none(each.info)
        usual = dataclasses.replace(
            each.option, name=each.name, heading=each.heading, usual=each.default
        )
        is_list = bool(each.option.several)
        listed: Any = Listed[kind] if is_list else kind | None  # type: ignore[valid-type]
        fields[each.name.replace("-", "_")] = (
            Annotated[listed, usual],
            () if is_list else None,
        )
    found: type[OptionGroup] = create_model("PlanOptions", __base__=OptionGroup, **fields)
    return found


if TYPE_CHECKING:
    _PlanOptions = OptionGroup
else:
    _PlanOptions = _listed_options(Plan)


class Options(_PlanOptions):
    """What a plan file says; the keys are the long options of ``armload bench``.

    Beside what is declared here, it has the options of ``Plan``.

    Attributes:
        board: as ``boards_called`` takes them.
        model: GGUF files, ``hf:ORG/REPO[:TYPE]``, ``like:NAME:TYPE``, ``word-problems:TYPE``,
            ``smollm2``, ``random`` or ``demo``.
        type: file types that the models are quantised to first, such as ``Q4_K_M``.
        engine_args: further arguments for the engine, quoted as one text.
        slots: requests that ``serve`` answers at a time; ``bench`` says that it has no effect.
        repeats: runs of every combination that count.
        warmups: runs of every combination before them that do not.
    """

    keys_listed_by: ClassVar[str] = "armload bench --help-all"

    board: Annotated[Listed[str], DESCRIBES] = ()
    model: Annotated[
        Listed[str],
        Option(MODEL, "MODEL", DEMO, "files", heading="Plan", harmless="in a plan"),
    ] = ()
    type: Annotated[Listed[FileType], QUANTISED_ALL] = ()
    engine_args: Annotated[
        Listed[str],
        Option(
            "more arguments for the engine, as one quoted string",
            "ARGUMENTS",
            several="repeat",
            heading="Engine",
        ),
    ] = ()
    slots: Listed[Slots] = ()
    repeats: Annotated[
        Annotated[int, Field(ge=1, le=10_000)] | None,
        Option(
            "number of runs of each combination",
            "N",
            "1; without lists, as many as --precision needs",
            heading="Repeats",
        ),
    ] = None
    warmups: Annotated[
        Annotated[int, Field(ge=0, le=10_000)] | None,
        Option("warm-up runs before these, excluded from the results", "N", "0", heading="Repeats"),
    ] = None

    @field_validator("flash_attention", mode="before")
    @classmethod
    def _says_it_in_yaml(cls, value: object) -> object:
        # YAML reads the words on and off as true and false.
        words = {True: "on", False: "off"}
        return tuple(words[each] if isinstance(each, bool) else each for each in _as_tuple(value))

    @field_validator("engine_args")
    @classmethod
    def _is_quoted_right(cls, several: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(quoted_right(text) for text in several)

    @field_validator("resident")
    @classmethod
    def _is_of_streamed_weights(
        cls, resident: tuple[int, ...], info: ValidationInfo
    ) -> tuple[int, ...]:
        if resident and info.data.get("weights") == ("mapped",):
            raise ValueError(
                "it locks streamed weights, and cannot be combined with --weights mapped"
            )
        return resident

    @field_validator("*")
    @classmethod
    def _lists_each_once(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, tuple) or info.field_name == "board":
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
        return self.model or (DEMO,)

    def plans(self) -> Iterator[Plan]:
        """Yield every combination of what is listed, but for the models; threads vary first."""
        axes: dict[str, tuple[Mapping[str, Any], ...]] = {
            "prompt": (
                *({"prompt": text} for text in getattr(self, "prompt", ())),
                *({"prompt_tokens": count} for count in getattr(self, "prompt_tokens", ())),
            ),
            "extra": tuple({"extra": tuple(shlex.split(text))} for text in self.engine_args),
        }
        common: dict[str, Any] = {}
        for name, field in reversed(_PLAN_FIELDS.items()):
            value = getattr(self, name)
            if isinstance(value, tuple):
                axes.setdefault(field, tuple({field: each} for each in value))
            elif value is not None:
                common[field] = value
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

_EACH_ONCE = "to run a combination more than once, use --repeats"

_PLAN_FIELDS = {
    each.name.replace("-", "_"): each.field
    for each in declared_options(Plan)
    if each.field != "prompt_tokens"
}
"""Options, and what they are called in a plan."""


def read_options(path: Path) -> Options:
    """Read a plan file."""
    require_file(
        path,
        "plan file",
        "Correct the path. A plan file holds options of armload bench, such as the line "
        "'threads: [1, 2, 4]'.",
    )
    return load_file(path, Options)


def precision_note(n_predict: Iterable[int], repeats: int | None) -> str:
    """Say what will make each result imprecise, and how to avoid it; nothing where nothing will.

    Args:
        n_predict: tokens to generate, of every run; one token alone is a run for its prompt.
        repeats: of every run; none where there will be as many as it takes.
    """
    few = sorted({n for n in n_predict if 1 < n <= FEWEST_TOKENS})
    is_repeated = repeats is not None and repeats > 1
    if repeats is None or repeats >= FEWEST_RUNS or not (few or is_repeated):
        return ""
    if not few:
        return (
            f"{counted(repeats, 'run')} of each cannot show how much runs differ; for an interval, "
            f"and to compare them, use --repeats {FEWEST_RUNS} or more."
        )
    counts = ", ".join(str(n) for n in few)
    return (
        f"With -n {counts}, the result will be imprecise: a run times the tokens after the first, "
        f"and estimating their spread takes {FEWEST_TOKENS}. Use -n {FEWEST_TOKENS + 1} or more, "
        f"or --repeats {FEWEST_RUNS} or more."
    )
