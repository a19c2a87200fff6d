"""Jinja2 templates that people write into tasks; they reach nothing but their values."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from armload.core.errors import DataError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment


def check_template(text: str, names: Collection[str]) -> None:
    """Check a template before anything is rendered.

    Args:
        names: of the values that it may use.

    Raises:
        ValueError: it is malformed, or uses other names; says which.
    """
    from jinja2 import TemplateSyntaxError, meta

    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno} of the template: {error.message}") from error
    unknown = sorted(meta.find_undeclared_variables(tree) - set(names))
    if unknown:
        known = ", ".join(sorted(names)) or "none"
        raise ValueError(f"the template uses {unknown[0]!r}; allowed names: {known}")


def filled(text: str, values: Mapping[str, object], where: str) -> str:
    """Fill a template.

    Args:
        where: it stands and what it was filled with, for the message.

    Raises:
        DataError: it fails for these values.
    """
    try:
        return _compiled(text).render(values)
    except Exception as error:  # a template raises whatever its filters do
        raise DataError(
            f"{where}: the template fails: {str(error) or type(error).__name__}.",
            "Correct the template in the task's file, or the data.",
        ) from error


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Template:
    return _environment().from_string(text)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # What comes out is a prompt, not HTML.
    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
