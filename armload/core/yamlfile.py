"""YAML files that a person edits, checked so that a mistake is answered with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from armload.core.errors import DataError
from armload.core.mistakes import first_mistake
from armload.core.workspace import data_file, data_files

Model = TypeVar("Model", bound=BaseModel)


class _File(NamedTuple):
    """A file as it was written."""

    path: Path
    root: yaml.Node | None


def load_named(kind: str, name: str, model: type[Model]) -> Model:
    """Read ``<kind>/<name>.yaml`` into ``model``; the key ``name`` is the file's name.

    A file may say ``extends: OTHER`` and then holds only what differs from it. A file that
    extends its own name extends the next one of that name: a person's own ``rk3568`` can so
    extend the shipped one.

    Raises:
        UsageError: no such file.
        DataError: malformed YAML, a wrong key or a wrong value; says which of the files holds it,
            the line, and what is allowed.
    """
    path = data_file(kind, name)
    content, files = _read_extended(kind, path, ())
    content.setdefault("name", name)
    return _validated(model, content, files)


def load_file(path: Path, model: type[Model]) -> Model:
    """Read a YAML file, wherever it lies, into ``model``.

    Raises:
        DataError: it cannot be read, or as for ``load_named``.
    """
    content, root = _read(path)
    return _validated(model, content, (_File(path, root),))


def _read(path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}.") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(
            f"{path}, line {line}: this is not valid YAML: {error.problem}.",
            "Look at the indentation and the quotes there.",
        ) from error
    except yaml.YAMLError as error:
        raise DataError(f"{path}: this is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}, line 1: expected keys and values, such as 'target: rk3568'.")
    return content, root


def _read_extended(
    kind: str, path: Path, on_the_way: tuple[Path, ...]
) -> tuple[dict[str, Any], tuple[_File, ...]]:
    """Read a file and what it extends; return what they say together, and the files in order."""
    content, root = _read(path)
    file = _File(path, root)
    base_name = content.pop("extends", None)
    if base_name is None:
        return content, (file,)
    passed = (*on_the_way, path.resolve())
    for base in data_files(kind, str(base_name)):
        if base.resolve() not in passed:
            inherited, files = _read_extended(kind, base, passed)
            return _merged(inherited, content), (file, *files)
    raise DataError(
        f"{path}, line {_place_of((file,), ('extends',)).line}: it extends {base_name!r}, "
        f"and there is no other {kind}/{base_name}.yaml."
    )


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        former = result.get(key)
        if isinstance(former, dict) and isinstance(value, dict):
            result[key] = _merged(former, value)
        else:
            result[key] = value
    return result


class _Place(NamedTuple):
    """Where a file says something, as the person who wrote it would name it."""

    path: Path
    line: int
    key: str


def _place_of(files: Sequence[_File], loc: tuple[int | str, ...]) -> _Place:
    """Find the file whose word counts: the first that holds the key, as ``_merged`` has it."""
    path, line = files[0].path, 1
    nodes: list[tuple[Path, yaml.Node | None]] = [(file.path, file.root) for file in files]
    names = []
    for position, part in enumerate(loc):
        held = [(where, *entry) for where, node in nodes for entry in _entries(node, part)]
        # Pydantic puts the kind that it chose of several between the keys of the file.
        if held or isinstance(part, int) or position == len(loc) - 1:
            names.append(str(part))
        if held:
            path, line, _ = held[0]
            nodes = [(where, value) for where, _, value in held]
            mappings = takewhile(lambda each: isinstance(each[1], yaml.MappingNode), nodes)
            nodes = list(mappings) or nodes[:1]
    return _Place(path, line, ".".join(names))


def _entries(node: yaml.Node | None, part: int | str) -> Iterator[tuple[int, yaml.Node]]:
    """Yield the line and the value of a key or a list's entry; nothing when it is not there."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(part):
                yield name.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        for value in node.value[part : part + 1]:
            yield value.start_mark.line + 1, value


def _validated(model: type[Model], content: dict[str, Any], files: Sequence[_File]) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        mistake = first_mistake(error, model)
        place = _place_of(files, mistake.place)
        where = f"{place.path}, line {place.line}"
        extended = "" if place.path == files[0].path else f"{files[0].path} extends that file."
        if mistake.unknown_key:
            raise DataError(
                f"{where}: there is no key {place.key!r}.", f"{mistake.remedy} {extended}".strip()
            ) from error
        raise DataError(f"{where}: {place.key}: {mistake.words}.", extended) from error
