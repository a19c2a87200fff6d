"""The one way in which text becomes part of a POSIX shell's command line."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def quote(word: str | PurePath) -> str:
    """Quote one word so that a POSIX shell reads back exactly that word."""
    return shlex.quote(str(word))


def join(words: Sequence[str | PurePath]) -> str:
    return " ".join(quote(word) for word in words)


def pip_install(*words: str) -> str:
    """Return the command that installs packages beside armload, whatever ``PATH`` says."""
    return join([sys.executable, "-m", "pip", "install", *words])


def render(template: str, values: Mapping[str, object]) -> str:
    """Fill ``deploy/<template>``; every value that is printed is quoted for the shell.

    A list is printed as its quoted words. A template that names an unknown value fails.
    """
    return _environment().get_template(template).render(values)


def _quoted(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return join([str(word) for word in value])
    return quote(str(value))


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    from armload.core.workspace import shipped_folders

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([str(folder) for folder in shipped_folders("deploy")]),
        undefined=jinja2.StrictUndefined,
        finalize=_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - these become shell scripts; finalize quotes for the shell
    )
