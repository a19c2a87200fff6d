"""A person's own defaults for options: in a file of theirs, and in the workspace's pyproject.toml.

Each file has a table per verb, and ``all`` for every verb that has an option of that name, unless
that is a filter, has to be given, or keeps a default of its own.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armload.cli.verb import VERBS
from armload.core.deciding import default_decides
from armload.core.errors import ArmloadError, DataError, UsageError
from armload.core.files import unreadable, write_whole
from armload.core.near_names import did_you_mean
from armload.core.options import FILTER, Declared, declared_options
from armload.core.trust import DEFAULTS_FILE, TrustedFile, is_trusted, keys_of, require_trust, trust
from armload.core.workspace import workspace

if TYPE_CHECKING:
    from armload.core.options import OptionGroup

ALL = "all"
"""The table of defaults for every verb."""

Word = str | bool | list[str]


@dataclass(frozen=True, kw_only=True)
class Default:
    """A default that a person has set.

    Attributes:
        verb: whose option it is.
        option: that it is of.
        word: the value, as it would be typed.
        file: that it stands in.
    """

    verb: str
    option: Declared
    word: Word
    file: Path

    @property
    def place(self) -> str:
        """The file, and the table in it."""
        return f"{self.file} [{_outer(self.file)}{self.verb}]"

    @property
    def typed(self) -> str:
        """The value in one word, as it would be typed."""
        return ",".join(self.word) if isinstance(self.word, list) else str(self.word)


def user_file() -> Path:
    """Return where a person's own defaults are."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "armload" / "config.toml"


def workspace_file() -> Path:
    """Return where the defaults of everybody who works in the workspace are."""
    return workspace() / DEFAULTS_FILE


def defaults_of(verb: str) -> dict[str, Default]:
    """Return the defaults of a verb's options, by the names of fields.

    The workspace's come before a person's own, and a verb's table before ``all``. What excludes
    a default of an earlier table gives way to it.

    Raises:
        DataError: a file is malformed, or has a verb or an option that does not exist.
        DiskError: a file cannot be read.
    """
    found: dict[str, Default] = {}
    for _, table in itertools.groupby(all_defaults(), key=lambda each: each.place):
        own = {
            declared.field: each
            for each in table
            for declared in declared_options(VERBS[verb].options)
            if declared.name == each.option.name
            and (each.verb == verb or (each.verb == ALL and _takes_all(declared)))
        }
        words = {field: each.word for field, each in found.items()}
        excluded = VERBS[verb].options.excluded(
            words, {field: each.word for field, each in own.items()}, as_defaults=True
        )
        found = {field: each for field, each in own.items() if field not in excluded} | found
    return found


def require_trust_in(defaults: Iterable[Default]) -> None:
    """Refuse defaults of the workspace that decide what runs, unless the user has agreed to them.

    Raises:
        UntrustedFileError: as for ``require_trust``.
        DataError, DiskError: as for ``defaults_of``.
    """
    file = workspace_file()
    if any(each.file == file and default_decides(each.option.info) for each in defaults):
        require_trust(deciding_defaults(file))


def deciding_defaults(file: Path) -> TrustedFile:
    """Return what of a workspace's defaults decides what runs.

    Raises:
        DataError, DiskError: as for ``defaults_of``.
    """
    found = {
        f"{_outer(file)}{each.verb}.{each.option.name}": each.word
        for each in _defaults_in(file)
        if default_decides(each.option.info)
    }
    return TrustedFile(folder=file.parent, path=file, keys=keys_of(file, found))


def shown_defaults(verb: str) -> dict[str, str]:
    """Return a person's defaults of a verb as help shows them, by the names of fields.

    A file that cannot be used has none: help is what leads out of that.
    """
    try:
        found = defaults_of(verb)
    except ArmloadError:
        return {}
    return {
        field: "true" if each.word is True else each.typed
        for field, each in found.items()
        if each.word
    }


def all_defaults() -> list[Default]:
    """Return all defaults that are set, the first of an option being the one that applies.

    Raises:
        DataError, DiskError: as for ``defaults_of``.
    """
    return [*_defaults_in(workspace_file()), *_defaults_in(user_file())]


def _defaults_in(file: Path) -> list[Default]:
    content: Any = _read(file)
    for name in () if file == user_file() else ("tool", "armload"):
        content = content.get(name, {}) if isinstance(content, dict) else {}
    if not isinstance(content, dict):
        raise DataError(f"{file}: [tool.armload] must be a table.", _example(file))
    return sorted(_tables(file, "", content), key=lambda each: each.verb == ALL)


_TABLE = re.compile(r"^\[tool\.armload\.all\][^\n]*\n", re.MULTILINE)


def add_workspace_default(name: str, word: str) -> Path | None:
    """Give an option a default for every verb in the workspace's file, and keep all else there.

    It is trusted from now on, unless the file decided something before that is not.

    Args:
        name: of the option; it has no default there yet.
        word: of letters, digits, dots, dashes and underscores.

    Returns:
        The file; none where its layout leaves that to a person.

    Raises:
        DataError, DiskError: as for ``defaults_of``; or the file cannot be written.
    """
    import tomllib

    file = workspace_file()
    decided = deciding_defaults(file)
    was_trusted = not decided.keys or is_trusted(decided)
    expected = _read(file)
    text = file.read_bytes().decode() if file.is_file() else ""
    if text and not text.endswith("\n"):
        text += "\n"
    line = f'{name} = "{word}"\n'
    if table := _TABLE.search(text):
        text = text[: table.end()] + line + text[table.end() :]
    else:
        text += ("\n" if text else "") + f"[tool.armload.all]\n{line}"
    try:
        expected.setdefault("tool", {}).setdefault("armload", {}).setdefault(ALL, {})[name] = word
        is_that_alone = tomllib.loads(text) == expected
    except (AttributeError, tomllib.TOMLDecodeError):
        is_that_alone = False
    if not is_that_alone:
        return None
    write_whole(file.resolve(), text.encode())
    if was_trusted:
        trust(deciding_defaults(file))
    return file


def typed_with_defaults(
    options: type[OptionGroup],
    words: Mapping[str, str | bool | list[str]],
    defaults: Mapping[str, Default],
) -> OptionGroup:
    """Read words, some of which are a person's defaults.

    Raises:
        UsageError: a value is not allowed; says so, and which file it comes from.
    """
    with _files_named(defaults):
        return options.typed(words, usual=defaults.keys())


@contextmanager
def files_named(verb: str, usual: Collection[str]) -> Iterator[None]:
    """Say which file a default comes from, where a mistake in the block names its option.

    Args:
        usual: the fields of a verb whose defaults apply.
    """
    try:
        yield
    except UsageError:
        found = defaults_of(verb) if usual else {}
        with _files_named({field: each for field, each in found.items() if field in usual}):
            raise


@contextmanager
def _files_named(defaults: Mapping[str, Default]) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        words = re.findall(r"--[\w-]+", f"{error.message} {error.remedy}")
        named = [
            f"{each.option.shown} comes from {each.place}."
            for each in defaults.values()
            if each.option.shown in words
        ]
        error.remedy = " ".join((error.remedy, *named)).strip()
        raise


def check_defaults(verb: str) -> None:
    """Refuse defaults of a verb whose values are not allowed.

    Raises:
        UsageError, DataError, DiskError: as for ``typed_with_defaults`` and ``defaults_of``.
    """
    from pydantic import create_model

    defaults = defaults_of(verb)
    options = VERBS[verb].options
    missing: dict[str, Any] = {
        field: (Any, None)
        for field, info in options.model_fields.items()
        if info.is_required() and field not in defaults
    }
    words = {field: each.word for field, each in defaults.items() if each.word}
    typed_with_defaults(
        create_model(options.__name__, __base__=options, **missing), words, defaults
    )


def _outer(file: Path) -> str:
    """Return what the names of tables in a file begin with."""
    return "" if file == user_file() else "tool.armload."


def _example(file: Path) -> str:
    return f"Example: [{_outer(file)}bench] on one line, and board = 'kitchen' on the next."


def _line(file: Path, table: str, key: str) -> str:
    """Return the file with the line of a table's key, or of a table in it, if it has its own."""
    inner = f"{_outer(file)}{table}".rstrip(".")
    header = f"{inner}.{key}".lstrip(".")
    now = ""
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if opened := _HEADER.fullmatch(text):
            now = opened[1]
        is_key = now == inner and text.partition("=")[0].strip().strip("\"'") == key
        if is_key or (opened and now == header):
            return f"{file}, line {number}"
    return str(file)


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")


def _read(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    except RecursionError as error:
        raise DataError(f"{file}: the values are nested too deeply.", _example(file)) from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{file}: this is not TOML: {error}.", _example(file)) from error
    except OSError as error:
        if isinstance(error, PermissionError) and not os.access(file.parent, os.X_OK):
            return {}  # a home of somebody else's holds no defaults of this person
        raise unreadable(file, error) from error


def _tables(file: Path, verb: str, content: Mapping[str, Any]) -> Iterator[Default]:
    """Yield what a table sets; those of ``board.probe`` lie in the one of ``board``."""
    options = _options(verb)
    for key, value in content.items():
        name = f"{verb}.{key}" if verb else key
        is_table = isinstance(value, dict)
        if is_table and any(f"{each}.".startswith(f"{name}.") for each in (*VERBS, ALL)):
            yield from _tables(file, name, value)
            continue
        option, word = options.get(key.replace("_", "-")), _word(value)
        near = ""
        if is_table or not verb:
            wrong, near = f"there is no verb {name!r}", did_you_mean(name, [*VERBS, ALL])
        elif option is None:
            wrong, near = f"{verb} has no option {key!r}", did_you_mean(key, options)
        elif word is None:
            wrong = f"{name} must be a string, a number, true or false, or a list of these"
        elif isinstance(word, bool) != option.is_switch:
            need = "must be" if option.is_switch else f"needs a value ({option.value}), not"
            wrong = f"{name} {need} true or false"
        else:
            yield Default(verb=verb, option=option, word=word, file=file)
            continue
        raise DataError(f"{_line(file, verb, key)}: {wrong}.", near + _example(file))


def _options(verb: str) -> dict[str, Declared]:
    verbs = VERBS.values() if verb == ALL else [VERBS[verb]] if verb in VERBS else []
    return {
        each.name: each
        for of_verb in verbs
        for each in declared_options(of_verb.options)
        if not each.option.is_argument and (verb != ALL or _takes_all(each))
    }


def _takes_all(option: Declared) -> bool:
    """Tell whether a default for every verb applies to an option.

    Not to a filter: a board to run on is not the only one to look at. And what has to be given,
    such as the board that a verb changes, must not be taken from a file by chance.
    """
    return not (
        option.heading == FILTER or option.info.is_required() or option.option.has_own_default
    )


def _word(value: object) -> Word | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return [str(each) for each in value]
    return None
