"""The one way in which text becomes part of a POSIX shell's command line."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def quote(word: str | PurePath) -> str:
    """Quote one word so that a POSIX shell reads back exactly that word."""
    return shlex.quote(str(word))


def join(words: Sequence[str | PurePath]) -> str:
    return " ".join(quote(word) for word in words)


def program_name() -> str:
    """Return what armload is called here: by its path, where that is not among the programs."""
    beside, found = Path(sys.argv[0]).parent / "armload", shutil.which("armload")
    if not beside.is_file() or (found and Path(found).resolve() == beside.resolve()):
        return "armload"
    return quote(beside)


def pip_install(*words: str) -> str:
    """Return the command that installs packages beside armload, in the way that it was installed.

    The environments of uv have no pip, and pipx has a command of its own for those it made.
    """
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return join(["pipx", "runpip", prefix.name, "install", *words])
    if find_spec("pip") is None:
        return join(["uv", "pip", "install", "--python", sys.executable, *words])
    return join([sys.executable, "-m", "pip", "install", *words])


def render(template: str, values: Mapping[str, object]) -> str:
    """Fill ``deploy/<template>``; every value that is printed is quoted for the shell.

    A list is printed as its quoted words. A template that names an unknown value fails. The
    functions of ``deploy/functions.sh`` that the script uses come before it.
    """
    return _with_functions(_environment().get_template(template).render(values))


def fill(template: str, values: Mapping[str, object], quoted: Callable[[object], str]) -> str:
    """Fill ``deploy/<template>`` for a reader other than a command line's shell.

    Args:
        quoted: writes each value that is printed as that reader takes it.
    """
    return _environment().overlay(finalize=quoted).get_template(template).render(values)


def call(function: str, *words: str | int | PurePath) -> str:
    """Return the script that calls one of ``deploy/functions.sh`` with these words, quoted."""
    if function not in _functions():
        raise LookupError(f"deploy/functions.sh has no function {function}")
    return _with_functions(join([function, *map(str, words)]) + "\n")


def shell_words(value: object) -> str:
    """Quote a value of a template for the shell; a list becomes its words."""
    if isinstance(value, (list, tuple)):
        return join([str(word) for word in value])
    return quote(str(value))


def _with_functions(script: str) -> str:
    functions, used = _functions(), set[str]()
    found = _names_in(script)
    while found:
        used |= found
        found = {other for name in found for other in _names_in(functions[name])} - used
    return "".join(text for name, text in functions.items() if name in used) + script


def _names_in(script: str) -> set[str]:
    """Return the library's functions that a script names; a mere word of that name costs bytes."""
    return _functions().keys() & set(re.findall(r"(?<![\w./$-])\w+(?![\w./=-])", script))


@functools.cache
def _functions() -> Mapping[str, str]:
    """Return the text of each function of the library without its comments, by its name."""
    from armload.core.places import data_path

    library = data_path("deploy", "functions.sh").read_text(encoding="utf-8")
    code = re.sub(r"(?m)^ *#.*\n", "", library)
    function = r"(?m)^(\w+)\(\) (?:\{ .* \}|[{(]\n(?:.*\n)*?[)}])\n"
    return {each[1]: each[0] for each in re.finditer(function, code)}


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    from armload.core.places import shipped_folders

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([str(folder) for folder in shipped_folders("deploy")]),
        undefined=jinja2.StrictUndefined,
        finalize=shell_words,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - these become shell scripts; finalize quotes for the shell
    )
