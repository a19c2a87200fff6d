"""What is wrong with a value that a person wrote, in words that need no knowledge of Python."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidationError

from armload.core.errors import ForbiddenValueError
from armload.core.near_names import MOST_LISTED, did_you_mean
from armload.core.values import Value, format_bytes, parse_bytes

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_MUST_BE = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number with fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list, such as [one, two]",
    "list_type": "a list, such as [one, two]",
    "path_type": "a path",
    "dict_type": "a mapping (one 'key: value' per line)",
    "model_type": "a mapping (one 'key: value' per line)",
    "model_attributes_type": "a mapping (one 'key: value' per line)",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "text of the form {pattern}",
}


_LONGEST_SHOWN = 100
_PlaceKeys = tuple[int | str, ...]
_BOOLEAN_REMEDY = (
    "YAML reads an unquoted yes, no, on or off as true or false; quote it to make it text."
)


class ValidationMessage(Value):
    """What to tell a person about a mistake in what they wrote.

    Attributes:
        place: the keys that lead to it, with the kinds that pydantic chose among them.
        unknown_key: there is no such key.
        words: what is wrong, beginning with a small letter; empty for an unknown key.
        hint: for an unknown key, what was probably meant; ends with a space.
        remedy: the keys that there are, for an unknown key; else what to do, where it is not
            plain from the words.
    """

    place: tuple[int | str, ...]
    unknown_key: bool
    words: str
    hint: str = ""
    remedy: str


def mistakes(
    error: ValidationError, model: type[BaseModel], written: Mapping[str, object]
) -> list[ValidationMessage]:
    """Return the mistakes, without those that only follow from others.

    Args:
        error: all of them.
        model: what should have been there.
        written: what a person wrote.
    """
    found: dict[tuple[_PlaceKeys, _PlaceKeys], tuple[ErrorDetails, ValidationMessage]] = {}
    for each in error.errors():
        # Of a value that may have several types, pydantic tells what each of them is not.
        key = (_held(each["loc"], written), each["loc"] if each["type"] == "missing" else ())
        found.setdefault(key, (each, _message(each, model, written)))
    unknown = [message for _, message in found.values() if message.unknown_key]
    within = {held[:length] for held, _ in found for length in range(len(held))}
    causes = [
        message
        for (held, _), (each, message) in found.items()
        if not _follows(each, held, unknown) and (held not in within or each["type"] == "missing")
    ]
    return causes or [message for _, message in found.values()]


def _follows(mistake: ErrorDetails, held: _PlaceKeys, unknown: Sequence[ValidationMessage]) -> bool:
    """Say whether a mistake is probably none once others are corrected."""
    if mistake["type"] == "missing":
        return any(_is_meant(mistake["loc"], each) for each in unknown)
    return mistake["type"] == "value_error" and not held


def first_mistake(
    error: ValidationError, model: type[BaseModel], written: Mapping[str, object] | None = None
) -> ValidationMessage:
    """Return the mistake that explains the others.

    Args:
        error, model: as for ``mistakes``.
        written: as there; none where it is not at hand.
    """
    if written is None:
        found = [_message(each, model, {}) for each in error.errors()]
    else:
        found = mistakes(error, model, written)
    # A key that is spelt wrongly is mostly the reason why another one is missing.
    return next((each for each in found if each.unknown_key), found[0])


def _message(
    mistake: ErrorDetails, model: type[BaseModel], written: Mapping[str, object]
) -> ValidationMessage:
    place = mistake["loc"]
    if mistake["type"] != "extra_forbidden":
        # Pydantic tells the whole of which the kind is wrong, and quotes the key that says the
        # kind.
        kind_key = mistake.get("ctx", {}).get("discriminator", "").strip("'")
        is_there = mistake["type"] == "union_tag_invalid"
        return ValidationMessage(
            place=(*mistake["loc"], kind_key) if is_there else mistake["loc"],
            unknown_key=False,
            words=_words(mistake, model),
            remedy=_remedy(mistake),
        )
    name = str(place[-1])
    where = _where_it_belongs(name, model, written, _held(place, written)[:-1])
    hint = (
        where
        or _of_another_kind(name, model, place[:-1])
        or did_you_mean(name, allowed_keys(model, place[:-1]))
    )
    remedy = "" if where else keys_words(model, place[:-1])
    return ValidationMessage(place=place, unknown_key=True, words="", hint=hint, remedy=remedy)


def _remedy(mistake: ErrorDetails) -> str:
    cause = mistake.get("ctx", {}).get("error")
    if isinstance(cause, ForbiddenValueError):
        return cause.remedy
    return _BOOLEAN_REMEDY if isinstance(mistake["input"], bool) else ""


def _held(place: Sequence[int | str], written: Any) -> tuple[int | str, ...]:
    """Return those parts of a place that a person wrote; pydantic puts others between them."""
    held: list[int | str] = []
    for part in place:
        entries = range(len(written)) if isinstance(written, list) else written
        if isinstance(entries, Mapping | range) and part in entries:
            written = written[part]
            held.append(part)
    return tuple(held)


def _is_meant(missing: tuple[int | str, ...], unknown: ValidationMessage) -> bool:
    """Say whether an unknown key is a missing one, spelt wrongly or at the wrong level."""
    name = str(missing[-1])
    is_beside = missing[:-1] == unknown.place[:-1]
    return unknown.place[-1] == name or (is_beside and f"{name!r}" in unknown.hint)


def _where_it_belongs(
    name: str, model: type[BaseModel], written: Mapping[str, object], place: tuple[int | str, ...]
) -> str:
    """Return a sentence on a key that stands at the wrong level; empty where no level has it."""
    for path in _paths_of(name, model, written):
        if not path and place:
            return f"{name} belongs at the top level: move it there, without indentation. "
        if path and path != place:
            return f"{name} belongs under {'.'.join(path)}: move it there, and indent it. "
    return ""


def _of_another_kind(name: str, model: type[BaseModel], place: tuple[int | str, ...]) -> str:
    """Return a sentence on a key that other kinds of a value have; empty where none has it.

    Args:
        place: the value, with the kind that was chosen.
    """
    kinds = _models_at(model, place[:-1])
    if not place or place[-1] not in _tags(kinds):
        return ""
    others = _tags([each for each in kinds if name in each.model_fields])
    return f"{name} is a key of kind: {' or '.join(others)}. " if others else ""


def _paths_of(name: str, model: type[BaseModel], written: object) -> Iterator[tuple[str, ...]]:
    """Yield the keys below which a key may stand, given the kinds that a person wrote."""
    if name in model.model_fields:
        yield ()
    for key, field in model.model_fields.items():
        inside = written.get(key) if isinstance(written, Mapping) else None
        kind = inside.get("kind") if isinstance(inside, Mapping) else None
        for one in _models_in(field.annotation, in_lists=False):
            if kind is None or kind in _tags([one]) or not _tags([one]):
                yield from ((key, *path) for path in _paths_of(name, one, inside))


def explain_mistake(error: ValueError, model: type[BaseModel]) -> str:
    """Say what is wrong with a document that no person writes: ``KEY: words`` where it parses.

    Args:
        error: of the parser, or all mistakes.
        model: what should have been there.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    mistake = first_mistake(error, model)
    key = ".".join(str(part) for part in mistake.place) or "the document"
    return f"{key}: {mistake.words or 'there is no such key'}"


def boolean_for_a_number(written: object, read: object) -> ValidationMessage | None:
    """Find a boolean that was taken for a number, which pydantic allows: ``port: yes`` is 1.

    Args:
        written: the content of a file.
        read: what was made of it.
    """
    if isinstance(written, bool) and isinstance(read, (int, float)) and not isinstance(read, bool):
        must_be = _MUST_BE["int_type" if isinstance(read, int) else "float_type"]
        words = f"must be {must_be}, but is {_shown(written)}"
        return ValidationMessage(place=(), unknown_key=False, words=words, remedy=_BOOLEAN_REMEDY)
    pairs: Iterable[tuple[int | str, object, object]] = ()
    if isinstance(written, Mapping) and isinstance(read, BaseModel):
        pairs = ((key, value, getattr(read, key, None)) for key, value in written.items())
    elif isinstance(read, tuple):
        several = written if isinstance(written, list) else [written]
        pairs = ((number, *pair) for number, pair in enumerate(zip(several, read, strict=False)))
    for key, value, made in pairs:
        found = boolean_for_a_number(value, made)
        if found is not None:
            return found.model_copy(update={"place": (key, *found.place)})
    return None


def _words(mistake: ErrorDetails, model: type[BaseModel]) -> str:
    kind, context = mistake["type"], mistake.get("ctx", {})
    if kind == "missing":
        return "this key is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind == "union_tag_not_found":
        tags = ", ".join(_tags(_models_at(model, mistake["loc"])))
        return f"the key {context['discriminator']} is missing; allowed values: {tags}"
    if kind == "union_tag_invalid":
        return f"must be one of {context['expected_tags']}, but is {context['tag']!r}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "too_short":
        return "the list is empty; give a value or omit the key"
    must_be = _MUST_BE.get(kind)
    if must_be is None:
        return mistake["msg"].replace("Input should", "should")
    place = mistake["loc"]
    name = str(place[-1]) if place else ""
    fields = [kind.model_fields.get(name) for kind in _models_at(model, place[:-1])]
    is_size = any(
        isinstance(part, BeforeValidator) and part.func is parse_bytes
        for field in fields
        if field
        for part in (
            *field.metadata,
            *(meta for kind in get_args(field.annotation) for meta in get_args(kind)),
        )
    )
    limits = {key: _size(limit) if is_size else _whole(limit) for key, limit in context.items()}
    given = mistake["input"]
    shown = _size(given) if is_size and isinstance(given, int) else _shown(given)
    return f"must be {must_be.format_map(limits)}, but is {shown}"


def _size(count: object) -> object:
    """Write a number of bytes as a person would: ``64 MiB``, ``165.0 MB``."""
    if not isinstance(count, int):
        return _whole(count)
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count and count % (1 << power) == 0:
            return f"{count >> power} {unit}"
    return format_bytes(count)


def _whole(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _shown(value: object) -> str:
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."


def keys_words(model: type[BaseModel], place: tuple[int | str, ...] = ()) -> str:
    """Say which keys may stand at a place of a file; of many, where they are listed."""
    allowed = allowed_keys(model, place)
    listing = next(
        (
            found
            for kind in _models_at(model, place)
            if (found := getattr(kind, "keys_listed_by", ""))
        ),
        "",
    )
    if len(allowed) > MOST_LISTED and listing:
        return f"To list the {len(allowed)} keys: {listing}"
    return f"Allowed here: {', '.join(allowed)}." if allowed else ""


def allowed_keys(model: type[BaseModel], place: tuple[int | str, ...] = ()) -> list[str]:
    """Return the keys that may stand at a place of a file."""
    names = [name for kind in _models_at(model, place) for name in kind.model_fields]
    return [name for name in names if place or name != "name"]  # a file has its name already


def _models_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[type[BaseModel]]:
    kinds = [model]
    for part in place:
        if isinstance(part, int):
            continue
        inside = [
            found
            for kind in kinds
            if part in kind.model_fields
            for found in _models_in(kind.model_fields[part].annotation)
        ]
        kinds = inside or [kind for kind in kinds if part in _tags([kind])]
    return kinds


def _models_in(annotation: Any, *, in_lists: bool = True) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    origin = get_origin(annotation)
    if not in_lists and isinstance(origin, type) and issubclass(origin, Collection):
        return
    for inner in get_args(annotation):
        yield from _models_in(inner, in_lists=in_lists)


def _tags(kinds: Sequence[type[BaseModel]]) -> list[str]:
    return [
        str(tag)
        for kind in kinds
        if "kind" in kind.model_fields
        for tag in get_args(kind.model_fields["kind"].annotation)
    ]
