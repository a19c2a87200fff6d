"""YAML files that a person edits, checked so that a mistake is answered with file and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from armload.core.errors import DataError, UsageError
from armload.core.mistakes import first_mistake
from armload.core.workspace import data_file, data_files

Model = TypeVar("Model", bound=BaseModel)


def load_named(kind: str, name: str, model: type[Model]) -> Model:
    """Read ``<kind>/<name>.yaml`` into ``model``; the key ``name`` is the file's name.

    A file may say ``extends: OTHER`` and then holds only what differs from it. A file that
    extends its own name extends the next one of that name: a person's own ``rk3568`` can so
    extend the shipped one.

    Raises:
        UsageError: no such file.
        DataError: malformed YAML, a wrong key or a wrong value; says file, line, what is allowed.
    """
    path = data_file(kind, name)
    content, root = _read_extended(kind, path, ())
    content.setdefault("name", name)
    return _validated(model, content, path, root)


def load_file(path: Path, model: type[Model]) -> Model:
    """Read a YAML file, wherever it lies, into ``model``.

    Raises:
        UsageError: no such file.
        DataError: as for ``load_named``.
    """
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    content, root = _read(path)
    return _validated(model, content, path, root)


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
) -> tuple[dict[str, Any], yaml.Node | None]:
    content, root = _read(path)
    base_name = content.pop("extends", None)
    if base_name is None:
        return content, root
    passed = (*on_the_way, path.resolve())
    for base in data_files(kind, str(base_name)):
        if base.resolve() not in passed:
            inherited, _ = _read_extended(kind, base, passed)
            return _merged(inherited, content), root
    raise DataError(
        f"{path}, line {_line_of(root, ('extends',))}: it extends {base_name!r}, "
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


def _line_of(root: yaml.Node | None, keys: tuple[int | str, ...]) -> int:
    node = root
    line = 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = {pair[0].value: pair for pair in node.value}
            if str(key) not in pairs:
                continue
            name, node = pairs[str(key)]
            line = name.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line + 1
    return line


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, value


def _key_of(root: yaml.Node | None, loc: tuple[int | str, ...]) -> str:
    # Pydantic puts the kind that it chose of several between the keys of the file.
    names = []
    node = root
    for place, part in enumerate(loc):
        pairs = dict(_pairs(node))
        if part in pairs or place == len(loc) - 1 or isinstance(part, int):
            names.append(str(part))
            node = pairs.get(str(part), node)
    return ".".join(names)


def _validated(
    model: type[Model], content: dict[str, Any], path: Path, root: yaml.Node | None
) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        mistake = first_mistake(error, model)
        where = f"{path}, line {_line_of(root, mistake.place)}"
        key = _key_of(root, mistake.place)
        if mistake.unknown_key:
            raise DataError(f"{where}: there is no key {key!r}.", mistake.remedy) from error
        raise DataError(f"{where}: {key}: {mistake.words}.") from error
