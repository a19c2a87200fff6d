"""Columns of tables: a figure or a fact of a row, declared once for every form that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A median over runs, and where it lies with 95% confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Column(Generic[Item]):
    """A column of a table.

    Attributes:
        heading: may have several lines.
        unit: stands beneath the heading.
        key: what programs call it; empty for what only people read.
        of: returns what stands in it of an item: a number, an estimate, a text, or an entry that
            is laid out already; none where that is not known.
        write: writes what ``of`` returned, or each figure of an estimate.
        is_number: stands at the right edge; so does whatever is written by another than ``str``.
        is_prose: may be broken between words.
        below: where a terminal has no room for it, it goes to a line of its own beneath the row,
            behind these words; none: it stays.
        has_interval: a terminal shows its interval in a column beside it; a page always does.
        is_main: it is also shown where there is room for a few columns only.
        is_optional: it is left out where nothing is known, or to be said, of any item.
        style: of its entries on a terminal.
    """

    heading: str
    unit: str = ""
    key: str = ""
    of: Callable[[Item], Any] = str
    write: Callable[[Any], str] = str
    is_number: bool = False
    is_prose: bool = False
    below: str | None = None
    has_interval: bool = False
    is_main: bool = False
    is_optional: bool = False
    style: str = ""

    def __post_init__(self) -> None:
        if self.write is not str:
            object.__setattr__(self, "is_number", True)

    def from_another(self, of: Callable[[Other], Any]) -> Column[Other]:
        """Return the same column of other items."""
        return Column(**(vars(self) | {"of": of}))

    def through(self, part: Callable[[Other], Item | None]) -> Column[Other]:
        """Return the same column of items that have such a one as a part, or none."""
        return self.from_another(
            lambda whole: None if (its := part(whole)) is None else self.of(its)
        )

    @property
    def title(self) -> str:
        """The heading with its unit, in one line."""
        heading, unit = (" ".join(each.split()) for each in (self.heading, self.unit))
        return f"{heading} ({unit})" if unit else heading


def main_ones(columns: Iterable[Column[Item]]) -> list[Column[Item]]:
    """Return the columns for where there is room for a few only."""
    return [column for column in columns if column.is_main]
