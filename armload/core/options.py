"""Options, each declared once: as a field of a model that says its type, default and help.

The command line, its help, plan files, their schema and the tables of the documentation are all
made from these fields.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast, get_args, get_origin

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from armload.core.errors import UsageError
from armload.core.files import is_there
from armload.core.validation_messages import first_mistake
from armload.core.values import Leaves, Value

LETTERS = {
    "board": "b",
    "model": "m",
    "prompt": "p",
    "n-predict": "n",
    "threads": "t",
    "context": "c",
    "output": "o",
    "json": "j",
}
"""As llama.cpp's own programs abbreviate them, where they have the option."""

LLAMA_CPP_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "batch": ("--batch-size",),
    "context": ("--ctx-size",),
    "cpus": ("-Cr", "--cpu-range"),
    "flash-attention": ("-fa", "--flash-attn"),
    "kv-type": ("-ctk", "-ctv", "--cache-type-k", "--cache-type-v"),
    "lora": ("--lora-scaled",),
    "micro-batch": ("-ub", "--ubatch-size"),
    "model": ("-hf", "-hfr", "--hf-repo"),
    "n-predict": ("--predict",),
    "slots": ("-np", "--parallel"),
    "speculate": ("-md", "--model-draft", "--spec-draft-model"),
    "temperature": ("--temp",),
}
"""What llama.cpp's programs call the same options (common/arg.cpp)."""


MOST = 2**31 - 1
"""Of any number: the engine, and shells on small boards, count in 32 bits."""

_SEVERAL = {
    "": "",
    "commas": "; several: a,b",
    "files": "; several: a,b",
    "repeat": "; can be repeated",
}
_NAMED = (
    *("board", "evaluation", "file", "folder", "model"),
    *("run", "shape", "source", "target", "task"),
)
_TAKEN: Mapping[str, str] = {
    **{kind.upper(): kind for kind in _NAMED},
    "FILES": "file",
    "PATH": "file",
    "RUNS": "run",
}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Option:
    """What a person is told about a field, which its annotation carries.

    Attributes:
        help: what it does, beginning with a small letter, without the default.
        value: what its value is called in help; the last word of its name where empty.
        usual: what is taken without the option, where the field's own default does not say it.
        several: values on a command line: separated by commas, by commas unless the whole is the
            path of a file, or by repeating the option.
        takes: what its values name, for completion, where ``value`` does not tell.
        name: as it is typed, where the field is called otherwise.
        heading: in help, where it is not that of the group.
        is_argument: it is given without its name.
        is_behind: an argument whose words all follow ``--``.
        needs: the field without which it does nothing; ``field=value`` for one value of it.
        has_own_default: a person's default for every verb does not apply.
        is_unlike_llama_cpp: what llama.cpp's programs call so means something else.
        harmless: where text or a switch that a file of the workspace gives decides nothing that
            needs the person's trust: in a plan file that they name, or as a default, too. Numbers
            and fixed words never do.
    """

    help: str
    value: str = ""
    usual: str = ""
    several: Literal["", "commas", "files", "repeat"] = ""
    takes: str = ""
    name: str = ""
    heading: str = ""
    is_argument: bool = False
    is_behind: bool = False
    needs: str = ""
    has_own_default: bool = False
    is_unlike_llama_cpp: bool = False
    harmless: Literal["", "in a plan", "anywhere"] = ""

    def of_one(self, usual: str = "") -> Option:
        """Return the same for verbs that take one value, with what is taken without it."""
        return replace(self, several="", usual=usual)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(core_schema) | {"description": f"{self.help[:1].upper()}{self.help[1:]}."}


FILTER = "Filter"
"""The heading of options that choose among runs."""


@dataclass(frozen=True)
class Exclusive:
    """Options that exclude one another: those of each side exclude the sides beside it.

    Attributes:
        sides: fields; ``field`` stands for any value of it, ``field=value`` for one.
        remedy: what to do where two sides were given; where empty, the verb refuses them.
        why: they do; a part of a sentence.
    """

    sides: tuple[Collection[str], ...]
    remedy: str = ""
    why: str = ""

    def standing(self, words: Mapping[str, object]) -> list[str]:
        """Return what was given of each side, the first of it."""
        found = (next((each for each in side if _stands(each, words)), "") for side in self.sides)
        return [each for each in found if each]


Alternatives = tuple[Exclusive, ...]

Yields = Mapping[str, Collection[str]]
"""Fields, in the same form, each with those that its default gives way to."""


class OptionGroup(Value):
    """Options under one heading of help; a verb's options combine several groups."""

    model_config = ConfigDict(defer_build=True)

    heading: ClassVar[str] = "Options"

    alternatives: ClassVar[Alternatives] = ()
    """A default gives way to what was given, or is a default in a file or table before it."""

    yields: ClassVar[Yields] = {}
    """A default gives way to what was given; two defaults are left to the verb."""

    kept: ClassVar[frozenset[str]] = frozenset()
    """Fields that stay as they are on the board where they are left out."""

    absent: ClassVar[Mapping[str, str]] = {}
    """What to do instead of options that a person may expect here, as they would type them."""

    common: ClassVar[frozenset[str]] = frozenset()
    """Fields of a normal week, which help shows by themselves; empty for all."""

    _usual: frozenset[str] = PrivateAttr(default=frozenset())
    """Fields whose value is a person's default: they are set, but were not given this time."""

    @classmethod
    def typed(
        cls, words: Mapping[str, str | bool | list[str]], usual: Collection[str] = ()
    ) -> Self:
        """Read what was typed.

        Args:
            words: by the names of fields; what is empty was not given.
            usual: those of them that a person has as defaults.

        Raises:
            UsageError: a value is not allowed, or an option does nothing without another one;
                names the option and says what is allowed.
        """
        declared = {each.field: each for each in declared_options(cls)}
        given = {name: _separated(declared[name], word) for name, word in words.items() if word}
        try:
            options = cls.model_validate(given).with_usual(usual)
        except ValidationError as error:
            mistake = first_mistake(error, cls, given)
            field = str(mistake.place[0])
            shown, value = declared[field].shown, given.get(field)
            if isinstance(value, list) and len(value) > 1 and "" in value:
                raise UsageError(
                    f"{shown} {','.join(value)}: an entry of this list is empty.",
                    "Separate several values by single commas.",
                ) from error
            raise UsageError(f"{shown}: {mistake.words}.", mistake.remedy) from error
        options.refuse_alternatives()
        for each in declared.values():
            field, _, value = each.option.needs.partition("=")
            if field and not _stands(each.option.needs, {field: getattr(options, field)}):
                needed = f"{declared[field].shown} {value or declared[field].value}".rstrip()
                remedy = f"Add {needed}, or remove {each.shown}."
                shown = needed if value else declared[field].shown
                options = options.refuse_without((each.field,), shown, remedy)
        return options

    def refuse_alternatives(self) -> None:
        """Refuse options of two sides that exclude each other, unless that is left to the verb.

        Raises:
            UsageError: both were given; a person's defaults do not count.
        """
        shown = {each.field: each.shown for each in declared_options(type(self))}
        words = {
            field: list(word) if isinstance(word := getattr(self, field), tuple) else word
            for field in self.model_fields_set - self._usual
        }
        for group in type(self).__mro__:
            for exclusive in vars(group).get("alternatives", ()):
                given = exclusive.standing(words) if exclusive.remedy else []
                if len(given) > 1:
                    typed = (each.partition("=") for each in given[:2])
                    a, b = (f"{shown[field]} {value}".rstrip() for field, _, value in typed)
                    why = f": {exclusive.why}" if exclusive.why else ""
                    raise UsageError(f"{a} cannot be combined with {b}{why}.", exclusive.remedy)

    def with_usual(self, fields: Collection[str]) -> Self:
        """Note which fields have a person's default, and return the options."""
        self._usual = frozenset(fields)
        return self

    def part(self, group: type[Group]) -> Group:
        """Return those options that a group has, too; the same of them are set."""
        shared = {name: getattr(self, name) for name in group.model_fields if hasattr(self, name)}
        set_here = self.model_fields_set & shared.keys()
        return cast("Group", group.model_construct(_fields_set=set_here, **shared))

    def given(self, fields: Collection[str]) -> list[str]:
        """Return those of some fields that were given, as they are typed."""
        return [
            each.shown
            for each in declared_options(type(self))
            if each.field in self.model_fields_set - self._usual and each.field in fields
        ]

    @property
    def usual(self) -> frozenset[str]:
        return self._usual

    def without_usual(self, fields: Collection[str]) -> Self:
        """Return the options without a person's defaults for some fields."""
        dropped = self._usual.intersection(fields)
        if not dropped:
            return self
        kept = {name: getattr(self, name) for name in self.model_fields_set - dropped}
        return cast("Self", type(self).model_construct(**kept).with_usual(self._usual - dropped))

    def refuse(self, fields: Collection[str], place: str, remedy: str) -> Self:
        """Refuse options that would do nothing; return the others, without such defaults.

        Args:
            place: where they would not, such as ``--list``.
        """
        if named := self.given(fields):
            raise UsageError(f"{', '.join(named)} cannot be combined with {place}.", remedy)
        return self.without_usual(fields)

    def refuse_without(self, fields: Collection[str], needed: str, remedy: str) -> Self:
        """Refuse options that do nothing without another; return the rest without such defaults.

        Args:
            needed: what is missing, such as ``--replay``.
        """
        if named := self.given(fields):
            verb = "needs" if len(named) == 1 else "need"
            raise UsageError(f"{', '.join(named)} {verb} {needed}.", remedy)
        return self.without_usual(fields)

    @classmethod
    def excluded(
        cls,
        given: Mapping[str, object],
        defaults: Mapping[str, object],
        *,
        as_defaults: bool = False,
    ) -> set[str]:
        """Return the fields whose defaults give way to what was given.

        Args:
            given, defaults: values by the names of fields, as they are typed.
            as_defaults: what was given are defaults, too, of an earlier table.
        """
        found = set[str]()
        for group in cls.__mro__:
            for exclusive in vars(group).get("alternatives", ()):
                for side in exclusive.sides:
                    if any(_stands(each, given) for each in side):
                        others = (other for other in exclusive.sides if other != side)
                        found.update(itertools.chain(*others))
            for field, others in vars(group).get("yields", {}).items():
                if not as_defaults and any(_stands(each, given) for each in others):
                    found.add(field)
        return {each.partition("=")[0] for each in found if _stands(each, defaults)}


Group = TypeVar("Group", bound=Value)


@dataclass(frozen=True)
class Declared:
    """An option of a model.

    Attributes:
        field: the model's.
        info: the field's type and default.
        heading: of the group that declares it.
        letter: that stands for it; empty where there is none.
        is_kept: without it, what is in force stays.
    """

    field: str
    option: Option
    info: FieldInfo
    heading: str
    letter: str
    is_kept: bool = False

    @property
    def name(self) -> str:
        return _name(self.field, self.option)

    @property
    def shown(self) -> str:
        return self.name.upper() if self.option.is_argument else f"--{self.name}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """What llama.cpp's programs call it, too."""
        is_same = not (self.option.is_argument or self.option.is_unlike_llama_cpp)
        return LLAMA_CPP_SPELLINGS.get(self.name, ()) if is_same else ()

    @property
    def is_switch(self) -> bool:
        return bool in (self.info.annotation, *get_args(self.info.annotation))

    @property
    def value(self) -> str:
        return "" if self.is_switch else self.option.value or self.name.rpartition("-")[2].upper()

    @property
    def takes(self) -> str:
        """What its values name, for completion: ``switch`` for none; empty where they are free."""
        return "switch" if self.is_switch else self.option.takes or _TAKEN.get(self.value, "")

    @property
    def is_list(self) -> bool:
        return get_origin(self.info.annotation) is tuple

    @property
    def is_repeated(self) -> bool:
        """Tell whether its values are given one by one."""
        return self.is_list and self.option.several == "repeat" and not self.is_switch

    @property
    def default(self) -> str:
        """What is taken without it, in words; empty where that is nothing."""
        usual = self.option.usual or (
            "" if self.info.is_required() else _in_words(self.info.default)
        )
        return "unchanged" if self.is_kept and usual else usual

    @property
    def about(self) -> str:
        has_several = self.is_list and self.value and not self.option.is_argument
        return self.option.help + (_SEVERAL[self.option.several] if has_several else "")

    @property
    def help(self) -> str:
        return self.help_with(self.default)

    def help_with(self, default: str) -> str:
        """Return the help where that is taken without it; empty for nothing."""
        if self.info.is_required() and not (default or self.option.is_argument):
            return f"{self.about} [required]"
        return f"{self.about} [default: {default}]" if default else self.about


def declared_options(model: type[Value]) -> Iterator[Declared]:
    """Yield a model's options in the order in which they are declared."""
    for field, info in model.model_fields.items():
        for option in info.metadata:
            if isinstance(option, Option):
                letter = LETTERS.get(_name(field, option), "")
                groups = [
                    each
                    for each in model.__mro__
                    if issubclass(each, OptionGroup) and field in each.model_fields
                ]
                # The group that has declared the field first is the last of them.
                heading = option.heading or groups[-1].heading
                is_kept = issubclass(model, OptionGroup) and field in model.kept
                yield Declared(field, option, info, heading, letter, is_kept)


def _stands(condition: str, words: Mapping[str, object]) -> bool:
    field, _, value = condition.partition("=")
    word = words.get(field)
    return word in (value, [value]) if value else bool(word)


def _name(field: str, option: Option) -> str:
    return option.name or field.strip("_").replace("_", "-")


def without_none(info: FieldInfo) -> Any:
    """Return a field's type; that of a value that is given where it may be none."""
    checks = [each for each in info.metadata if not isinstance(each, Option | Leaves)]
    kinds = [each for each in get_args(info.annotation) if each is not type(None)]
    is_optional = not checks and len(kinds) == 1 < len(get_args(info.annotation))
    kind: Any = kinds[0] if is_optional else info.annotation
    for check in checks:
        kind = Annotated[kind, check]
    return kind


def _separated(declared: Declared, word: str | bool | list[str]) -> object:  # noqa: FBT001
    several = declared.option.several
    if not (isinstance(word, str) and declared.is_list):
        return word
    is_one = several == "repeat" or (several == "files" and is_there(Path(word)))
    return [word] if is_one else word.split(",")


def _in_words(default: object) -> str:
    if default is None or isinstance(default, bool):
        return ""
    if isinstance(default, float):
        return f"{default:g}"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _duration_s(value: object) -> object:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smh]?)", str(value))
    time_s = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < time_s <= MOST:
        raise ValueError(f"must be a time above 0, such as 90s, 30m or 2h, but is {value!a:.60}")
    return time_s


def _share(value: object) -> object:
    try:
        share = float(str(value).removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError(
            f"must be a percentage above 0 and below 100, such as 5%, but is {value!a:.60}"
        )
    return share


Duration = Annotated[float, BeforeValidator(_duration_s)]
"""Seconds, typed as ``90s``, ``30m`` or ``2h``; without a unit it is seconds."""

NEVER = "never"

DurationOrNever = Annotated[
    float, BeforeValidator(lambda value: math.inf if value == NEVER else _duration_s(value))
]
"""As ``Duration``, and infinite where ``never`` is typed."""

Share = Annotated[float, BeforeValidator(_share)]
"""A share of one, typed as a percentage such as ``5%`` or ``5``."""

Seconds = Annotated[float, Field(ge=0, le=MOST)]

Names = tuple[str, ...]
"""Several names, separated by commas on a command line."""
