"""Which keys of a person's files decide what runs, and which only describe.

What a stranger's file says must not start a program, choose what is compiled, open a connection or
read a file before the person has agreed. So each field of a model that can hold text says beside
its type what it does: ``DESCRIBES``, or ``Decides``. Text without either decides.
"""

from __future__ import annotations

import datetime
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from armload.core.options import Option


@dataclass(frozen=True)
class Describes:
    """Marks a field whose text never becomes a program, a path, an address or code."""


DESCRIBES = Describes()

Words = Annotated[str, DESCRIBES]
"""Text that only describes."""


@dataclass(frozen=True)
class Decides:
    """Marks a field that decides what runs, is compiled, is connected to or is read.

    Attributes:
        unless: tells the values that do no harm, as a file writes them.
    """

    unless: Callable[[object], bool] = lambda _value: False


DECIDES = Decides()

_HARMLESS = (bool, int, float, datetime.date, type(None), IPv4Network)
"""Types that hold no text; what they decide is marked."""


def deciding(model: type[BaseModel], content: Mapping[str, object]) -> dict[str, object]:
    """Return the keys of a file that decide, by their path, with their values as written.

    Args:
        model: what the file is read into, or a file that extends it.
        content: what it says; keys that the model lacks are left to its validation.
    """
    return dict(_of_mapping([model], content, ""))


def default_decides(info: FieldInfo) -> bool:
    """Say whether an option decides where a file of the workspace gives it, unasked."""
    return _option_decides(info, in_a_plan=False)


def classified(info: FieldInfo) -> bool:
    """Say whether a field says what it does, or can hold no text."""
    marks = (Describes, Decides, Option)
    return any(isinstance(each, marks) for each in info.metadata) or not _is_text(info.annotation)


def _of_mapping(
    models: Sequence[type[BaseModel]], content: Mapping[str, object], before: str
) -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        for model in models:
            if key in model.model_fields:
                info = model.model_fields[key]
                yield from _of_field(info, value, f"{before}{key}")


def _of_field(info: FieldInfo, value: object, key: str) -> Iterator[tuple[str, object]]:
    for mark in info.metadata:
        if isinstance(mark, Describes):
            return
        if isinstance(mark, Decides):
            yield from () if mark.unless(value) else _leaves(value, key)
            return
        if isinstance(mark, Option):
            yield from [(key, value)] if _option_decides(info, in_a_plan=True) else ()
            return
    yield from _in_models(models_in(info.annotation), value, key)
    if _is_text(info.annotation):
        yield from _leaves(value, key)


def _in_models(
    models: Sequence[type[BaseModel]], value: object, key: str
) -> Iterator[tuple[str, object]]:
    """Yield what decides in models, of which a field has one, a list, or one for each name.

    Those of a union are not told apart: a file may leave its kind to what it extends.
    """
    places = {key: value}
    if isinstance(value, list):
        places = {f"{key}[{index}]": each for index, each in enumerate(value)}
    for place, each in places.items() if models else ():
        if isinstance(each, Mapping):
            yield from _of_mapping(models, each, f"{place}.")
            for name, inner in each.items():
                if isinstance(inner, Mapping):
                    yield from _of_mapping(models, inner, f"{place}.{name}.")


def _leaves(value: object, key: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}")
    else:
        yield key, value


def _option_decides(info: FieldInfo, *, in_a_plan: bool) -> bool:
    option = next(each for each in info.metadata if isinstance(each, Option))
    harmless = {"anywhere", "in a plan"} if in_a_plan else {"anywhere"}
    is_switch = bool in (info.annotation, *get_args(info.annotation))
    return option.harmless not in harmless and (is_switch or _is_text(info.annotation))


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in models_in(each)]


def _is_text(annotation: Any) -> bool:
    """Say whether a type can hold text that nothing says to describe, models left out."""
    origin = get_origin(annotation)
    if origin is Literal:
        return False
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        return DESCRIBES not in marks and _is_text(inner)
    if origin is Union or origin is types.UnionType:
        return any(map(_is_text, get_args(annotation)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _is_text(get_args(annotation)[1])
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return any(_is_text(each) for each in get_args(annotation) if each is not ...)
    if isinstance(annotation, type):
        return not issubclass(annotation, (*_HARMLESS, BaseModel))
    return True
