"""YAML files that a person edits, checked so that a mistake is answered with file and line."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from armload.core.bounds import read_bounded
from armload.core.deciding import deciding
from armload.core.errors import DataError
from armload.core.files import is_full
from armload.core.near_names import available
from armload.core.places import shipped_folders
from armload.core.trust import TrustedFile, keys_of, require_trust
from armload.core.validation_messages import (
    ValidationMessage,
    boolean_for_a_number,
    keys_words,
    mistakes,
)
from armload.core.workspace import data_file, data_files, data_names, listing_of, workspace
from armload.core.yaml_syntax import syntax_error

Model = TypeVar("Model", bound=BaseModel)


class _File(NamedTuple):
    """A file as it was written."""

    path: Path
    root: yaml.Node | None
    content: dict[str, Any]


def load_named(kind: str, name: str, model: type[Model]) -> Model:
    """Read ``<kind>/<name>.yaml`` into ``model``; the key ``name`` is the file's name, in its case.

    A file may say ``extends: OTHER`` and then holds only what differs from it. A file that
    extends its own name extends the next one of that name: a person's own ``rk3568`` can so
    extend the shipped one.
    """
    path = data_file(kind, name)
    content, files = _read_extended(kind, path, (), model)
    content.setdefault("name", path.stem)
    read = _validated(model, content, files)
    for file in files:
        if file.path.parent not in set(shipped_folders(kind)):
            require_trust(own_file(kind, workspace(), file.path, model, file.content))
    return read


def has_key(kind: str, name: str, key: str, model: type[BaseModel]) -> bool:
    """Say whether ``<kind>/<name>.yaml``, or a file that it extends, has a key."""
    content, _ = _read_extended(kind, data_file(kind, name), (), model)
    return key in content


def load_file(path: Path, model: type[Model], *, is_shipped: bool = False) -> Model:
    """Read a YAML file, wherever it lies, into ``model``."""
    content, root = _read(path, model)
    read = _validated(model, content, (_File(path, root, content),))
    if not is_shipped:
        require_trust(file_alone(path, model, content))
    return read


def own_file(
    kind: str, folder: Path, path: Path, model: type[BaseModel], content: Mapping[str, Any]
) -> TrustedFile:
    """Return what of a workspace's file decides, unless the shipped one of that name says it.

    Args:
        folder: the workspace.
    """
    keys = keys_of(path, deciding(model, content))
    for shipped in shipped_folders(kind):
        if keys and (same := shipped / path.name).is_file():
            of_shipped = keys_of(same, deciding(model, _read(same, model)[0]))
            keys = {} if keys.items() <= of_shipped.items() else keys
    return TrustedFile(folder=folder, path=path, keys=keys)


def file_alone(path: Path, model: type[BaseModel], content: Mapping[str, Any]) -> TrustedFile:
    """Return what decides of a file that is named by its path."""
    folder = path.parent.resolve()
    keys = keys_of(path, deciding(model, content))
    return TrustedFile(folder=folder, path=folder / path.name, keys=keys)


def read_content(path: Path, model: type[BaseModel] = BaseModel) -> dict[str, Any]:
    return _read(path, model)[0]


def load_shipped(kind: str, model: type[Model]) -> tuple[Model, ...]:
    """Read the files of a kind that come with armload, whatever a person's own say.

    The key ``name`` is the file's name; none of them may extend another.
    """
    found = []
    for path in sorted(path for folder in shipped_folders(kind) for path in folder.glob("*.yaml")):
        content, root = _read(path, model)
        found.append(
            _validated(model, content | {"name": path.stem}, (_File(path, root, content),))
        )
    return tuple(found)


def _read(path: Path, model: type[BaseModel]) -> tuple[dict[str, Any], yaml.Node | None]:
    content = read_bounded(
        path, _MOST_BYTES, "Check the file name: configuration files are much smaller."
    )
    try:
        text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    root, said = _parsed(path, text)
    if isinstance(said, dict):
        return copy.deepcopy(said), root
    what = "expected 'key: value' lines"
    if said is None:
        what = f"this file is empty{', and its disk is full' if is_full(path) else ''}"
    raise DataError(f"{path}, line 1: {what}.", keys_words(model))


_MOST_LEVELS = 50


class _Loader(yaml.SafeLoader):
    """Refuses deep nesting before its scanner takes a time that grows with the depth's square."""

    def fetch_more_tokens(self) -> None:
        if self.flow_level + len(self.indents) > _MOST_LEVELS:
            raise RecursionError
        super().fetch_more_tokens()


# A list of models reads the files of its boards and targets again for each of them.
@functools.lru_cache(maxsize=1024)
def _parsed(path: Path, text: str) -> tuple[yaml.Node | None, object]:
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None, None
        _check_values(path, root)
        _refuse_wrong_keys(path, root)
        return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise syntax_error(path, text, error) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DataError(
            f"{path}, line {line}: the character {error.character:#06x} is not allowed in YAML.",
            "Delete it.",
        ) from error
    except ValueError as error:  # a number or a date that is none
        raise DataError(
            f"{path}: invalid date or number: {error}.",
            "Quote text that looks like a date or a number.",
        ) from error
    except RecursionError as error:
        raise DataError(
            f"{path}: the values are nested too deeply: {_MOST_LEVELS} levels are the limit."
        ) from error


_MOST_BYTES = 1 << 18
_MOST_VALUES = 100_000


def _check_values(path: Path, root: yaml.Node) -> None:
    """Refuse aliases that make much of little, such as a list of ten lists of ten lists."""
    counts: dict[int, int] = {}

    def count(node: yaml.Node) -> int:
        if id(node) not in counts:
            counts[id(node)] = _MOST_VALUES + 1  # of one that holds itself
            children: list[yaml.Node] = []
            if isinstance(node, yaml.SequenceNode):
                children = node.value
            elif isinstance(node, yaml.MappingNode):
                children = [each for pair in node.value for each in pair]
            counts[id(node)] = 1 + sum(map(count, children))
        return counts[id(node)]

    if count(root) > _MOST_VALUES:
        raise DataError(
            f"{path}: with its aliases it holds more than {_MOST_VALUES:,} values.",
            "Write the values out, or remove aliases (*NAME).",
        )


_KEY_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})


def _refuse_wrong_keys(path: Path, root: yaml.Node) -> None:
    for mapping in _mappings(root):
        lines: dict[tuple[str, str], int] = {}
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.tag not in _KEY_TAGS:
                raise DataError(
                    f"{path}, line {line}: the key {key.value!r} must be text.",
                    "Correct or quote it: without quotes, YAML does not read it as text.",
                )
            if (key.tag, key.value) in lines:
                raise DataError(
                    f"{path}, line {line}: duplicate key {key.value!r}, first used in line "
                    f"{lines[key.tag, key.value]}.",
                    "Delete one of them.",
                )
            lines[key.tag, key.value] = line


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    seen, waiting = set(), [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias is the node that it stands for
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += (value for _, value in node.value)
            yield node


def _read_extended(
    kind: str, path: Path, on_the_way: tuple[Path, ...], model: type[BaseModel]
) -> tuple[dict[str, Any], tuple[_File, ...]]:
    """Read a file and what it extends; return what they say together, and the files in order."""
    content, root = _read(path, model)
    file = _File(path, root, content)
    base_name = content.pop("extends", None)
    if base_name is None:
        return content, (file,)
    passed = (*on_the_way, path.resolve())
    bases = list(data_files(kind, str(base_name)))
    for base in bases:
        if base.resolve() not in passed:
            inherited, files = _read_extended(kind, base, passed, model)
            return _merged(inherited, content), (file, *files)
    raise DataError(
        f"{path}, line {_place_of((file,), ('extends',)).line}: it extends {base_name!r}, "
        f"but there is no {'other ' if bases else ''}{kind}/{base_name}.yaml.",
        "" if bases else available(str(base_name), data_names(kind), listing_of(kind)),
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
    key = ""
    for position, part in enumerate(loc):
        held = [(where, *entry) for where, node in nodes for entry in _entries(node, part)]
        if isinstance(part, int):
            # Pydantic counts the entries of what was written as a single value, too.
            key += f", entry {part + 1}" if held else ""
        # Pydantic puts the kind that it chose of several between the keys of the file.
        elif held or position == len(loc) - 1:
            after_an_entry = position > 0 and isinstance(loc[position - 1], int)
            key += f"{', ' if after_an_entry else '.' if key else ''}{part}"
        if held:
            path, line, _ = held[0]
            nodes = [(where, value) for where, _, value in held]
            mappings = takewhile(lambda each: isinstance(each[1], yaml.MappingNode), nodes)
            nodes = list(mappings) or nodes[:1]
    return _Place(path, line, key)


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
        read = model.model_validate(content)
    except ValidationError as error:
        raise _data_error(mistakes(error, model, content), files) from error
    mistake = boolean_for_a_number(content, read)
    if mistake is not None:
        raise _data_error([mistake], files)
    return read


def _data_error(found: Sequence[ValidationMessage], files: Sequence[_File]) -> DataError:
    """Return all mistakes as one error, with a line for each of several."""
    placed = [(_place_of(files, each.place), each) for each in found]
    first = files[0].path
    if len(placed) == 1:
        ((place, mistake),) = placed
        extended = "" if place.path == first else f"{first} extends this file."
        # A remedy may end with a command.
        remedy = f"{extended} {mistake.hint}{mistake.remedy}".strip()
        return DataError(f"{place.path}, line {place.line}: {_said(place, mistake)}.", remedy)
    lines = [
        f"  {'' if place.path == first else f'{place.path}, '}line {place.line}: "
        f"{_said(place, mistake)}. {mistake.hint or mistake.remedy}".rstrip()
        for place, mistake in sorted(placed, key=lambda pair: (pair[0].path != first, pair[0].line))
    ]
    return DataError(
        "\n".join([f"{first}: {len(lines)} errors.", *lines]),
        "Correct these lines, then repeat the command.",
    )


def _said(place: _Place, mistake: ValidationMessage) -> str:
    return (
        f"there is no key {place.key!r}" if mistake.unknown_key else f"{place.key}: {mistake.words}"
    )
