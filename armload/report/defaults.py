"""A person's own defaults for options, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType

from armload.core.columns import Column
from armload.core.values import Value
from armload.report.layout import Table


class SetDefault(Value):
    """A default that a person has set.

    Attributes:
        verb: whose option it is; ``all`` for every verb that has one of that name.
        option: its name, without dashes before it.
        value: as it would be typed.
        file: that sets it.
        trusted: false where it decides what runs, and nobody has trusted the file: verbs refuse it.
    """

    verb: str
    option: str
    value: str | bool | tuple[str, ...]
    file: Path
    trusted: bool = True


def defaults_table(found: Sequence[SetDefault]) -> Table:
    """Lay out defaults, one a line; the first of an option applies."""
    table = Table(
        Column(heading="verb"),
        Column(heading="option"),
        Column(heading="value", is_prose=True),
        Column(heading="from", below=""),
    )
    for each in found:
        table.add(each.verb, f"--{each.option}", _typed(each.value), str(each.file))
    return table


def defaults_view(found: Sequence[SetDefault], file: Path) -> RenderableType:
    """Lay out defaults; without any, say in which file to set some."""
    if not found:
        return f"No defaults are set. To set some, edit {file}."
    table = defaults_table(found)
    untrusted = next((each.file for each in found if not each.trusted), None)
    if untrusted is None:
        return table
    return Group(
        table,
        f"{untrusted} is not trusted, so verbs refuse to use it. To see what it decides, and "
        "trust it: armload trust",
    )


def _typed(value: str | bool | tuple[str, ...]) -> str:  # noqa: FBT001
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else value
