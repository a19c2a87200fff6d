"""What results are laid out as, tables, facts and prose, and their look on a terminal.

On a terminal they suit 80 columns first, and any other width. Lines are broken between words
only, and never inside a command. What is longer than a line, such as a path, runs over its edge,
where the terminal itself breaks it: it is copied whole. A console that prints this must not crop.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from armload.core.columns import Column, Estimate
from armload.core.values import visible
from armload.report.formatting import UNKNOWN

Item = TypeVar("Item")

_NARROWEST_PROSE = 20
"""In less than so many columns prose is no pleasure to read beside something else."""

_GAP = 2
_INDENT = 4
_UNBROKEN = re.compile(
    r"(?<!\w)'[^'\s][^']*'\S*"  # a quoted word of a shell's
    r"|[\d.,]*\d (?:[kMG]?B|ms|s|%|°C)(?!\w)\S*"
    r"|(?:\S*armload [a-z.]+(?: \S*[\d/]\S*)?|\S+)(?: -+\w\S*(?: (?:'[^']*'|[^-\s])\S*)?)*"
)
"""What stays on one line: a word, a number with its unit, a command as far as its options go."""


def whole(text: str) -> Text:
    """Return what is never broken, though it may hold blanks, such as a path."""
    return Text(text, no_wrap=True, overflow="ignore")


def wrapped(text: Text, width: int) -> list[Text]:
    """Break prose into lines; a line of its own that is indented stays as it is."""
    lines: list[Text] = []
    for line in _text(text).split("\n", allow_blank=True):
        if text.no_wrap or line.plain.startswith(" "):
            lines.append(line)
            continue
        for part in line.divide(_breaks(line.plain, width)):
            part.rstrip()
            lines.append(part)
    return lines


def _breaks(plain: str, width: int) -> Iterator[int]:
    begin = 0
    for piece in _UNBROKEN.finditer(plain):
        if piece.start() > begin and cell_len(plain[begin : piece.end()]) > width:
            begin = piece.start()
            yield begin


class Prose:
    """Sentences, each line as long as the terminal is wide."""

    def __init__(self, text: Text | str, style: str = "") -> None:
        self._text = _text(text, style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in wrapped(self._text, options.max_width):
            yield _line(line)


class Details:
    """Labels with their values beside them; beneath them where the terminal is narrow."""

    def __init__(self, rows: Iterable[tuple[str, Text | str]]) -> None:
        self.rows = [(label, _text(value)) for label, value in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        indent = max((cell_len(label) for label, _ in self.rows), default=0) + _GAP
        is_beside = options.max_width - indent >= _NARROWEST_PROSE
        for label, value in self.rows:
            start = Text(label, style="dim")
            if is_beside:
                start.pad_right(indent - cell_len(label))
            else:
                yield _line(start)
                start = Text(" " * _GAP)
            for line in wrapped(value, options.max_width - cell_len(start.plain)):
                yield _line(Text.assemble(start, line))
                start = Text(" " * cell_len(start.plain))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What stands in a row and a column.

    Attributes:
        text: markup stays markup on a page.
        number: that a page sorts it by; none where the text is sorted, or the figure is missing.
        range: its interval in words, which a page shows beneath it.
    """

    text: Text | str
    number: float | None = None
    range: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table.

    Attributes:
        state: by which a page colours it, or filters it.
        is_best: it is marked on a page.
    """

    entries: tuple[Entry, ...]
    state: str = ""
    is_best: bool = False


class Table:
    """A table, for a terminal and for a page.

    It is as wide as it needs to be. Where a terminal is too narrow for it, prose is broken, then
    what may go below a row goes there, and at last every entry has a line of its own.
    """

    def __init__(self, *columns: Column[Any]) -> None:
        self.columns = columns
        self.rows: list[Row] = []
        self._columns: list[Column[Any]] = []
        for column in columns:
            self._columns += [column, *([_INTERVAL] if column.has_interval else [])]
        self._texts: list[list[Text]] = []

    @classmethod
    def of(
        cls,
        columns: Iterable[Column[Item]],
        items: Sequence[Item],
        *,
        state: Callable[[Item], str] = lambda _: "",
        best: Item | None = None,
    ) -> Table:
        """Lay out items, a row for each, in the columns that say something of one."""
        entries = [(column, [_entry(column, item) for item in items]) for column in columns]
        shown = [
            (column, its)
            for column, its in entries
            if not column.is_optional or any(str(each.text) not in ("", UNKNOWN) for each in its)
        ]
        table = cls(*(column for column, _ in shown))
        for item, *row in zip(items, *(its for _, its in shown), strict=True):
            table.add(*row, state=state(item), is_best=item is best)
        return table

    def add(self, *entries: Entry | Text | str, state: str = "", is_best: bool = False) -> None:
        """Add a row, with an entry for each column."""
        full = [each if isinstance(each, Entry) else Entry(text=each) for each in entries]
        self.rows.append(Row(entries=tuple(full), state=state, is_best=is_best))
        texts: list[Text | str] = []
        for column, entry in zip(self.columns, full, strict=True):
            texts += [entry.text, *([entry.range] if column.has_interval else [])]
        self._texts.append([*map(_text, texts)])

    def records(self) -> tuple[dict[str, float | str], ...]:
        """Return the rows for programs: entries by key or title, numbers where they are some."""
        headings = [column.key or column.title for column in self.columns]
        return tuple(
            {
                heading: str(entry.text) if entry.number is None else entry.number
                for heading, entry in zip(headings, row.entries, strict=True)
            }
            for row in self.rows
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, in the form that suits the width."""
        every = [
            number
            for number, column in enumerate(self._columns)
            if column is not _INTERVAL or any(row[number] for row in self._texts)
        ]
        beside = [number for number in every if self._columns[number].below is None]
        for numbers in (every, beside):
            widths = self._widths(numbers, options.max_width)
            if widths:
                yield from self._side_by_side(numbers, widths, options.max_width)
                return
        headings = [" ".join(_heading(column).split()) for column in self._columns]
        for row in self._texts:
            if row is not self._texts[0]:
                yield Text("")
            entries = [(each, text) for each, text in zip(headings, row, strict=True) if text]
            yield from (Prose(text) for heading, text in entries if not heading)
            yield Details((heading, text) for heading, text in entries if heading)

    def _side_by_side(
        self, numbers: Sequence[int], widths: Sequence[int], room: int
    ) -> RenderResult:
        yield self._grid(
            numbers, widths, [Text(_heading(each), style="dim") for each in self._columns]
        )
        below = [
            number
            for number, column in enumerate(self._columns)
            if number not in numbers and column is not _INTERVAL
        ]
        for row in self._texts:
            yield self._grid(numbers, widths, row)
            entries = [
                Text.assemble(
                    self._columns[number].below or "", row[number], no_wrap=row[number].no_wrap
                )
                for number in below
                if row[number]
            ]
            together = Text("  ").join(entries)
            fit = cell_len(together.plain) <= room - _INDENT
            for entry in [together] if fit and entries else entries:
                for line in wrapped(entry, room - _INDENT):
                    yield _line(Text.assemble(" " * _INDENT, line))

    def _grid(self, numbers: Sequence[int], widths: Sequence[int], row: Sequence[Text]) -> Grid:
        grid = Grid.grid(padding=(0, _GAP, 0, 0))
        cells = []
        for number, width in zip(numbers, widths, strict=True):
            is_number = self._columns[number].is_number
            grid.add_column(width=width, justify="right" if is_number else "left")
            cells.append(Text("\n").join(wrapped(row[number], width)))
        grid.add_row(*cells)
        return grid

    def _widths(self, numbers: Sequence[int], room: int) -> list[int]:
        """Return the columns' widths; none where there is no room for them."""
        natural = {number: max(map(_width, self._entries(number))) for number in numbers}
        prose = [number for number in numbers if self._columns[number].is_prose]
        room -= _GAP * (len(numbers) - 1)
        room -= sum(width for number, width in natural.items() if number not in prose)
        # The widest gives way first.
        most = max(natural.values())
        while most and sum(min(natural[number], most) for number in prose) > room:
            most -= 1
        for number in prose:
            fewest = max(
                cell_len(piece[0])
                for entry in self._entries(number)
                for piece in _UNBROKEN.finditer(entry.plain or "-")
            )
            if most < min(natural[number], max(fewest, _NARROWEST_PROSE)):
                return []
        if room < 0:
            return []
        return [
            min(natural[number], most) if number in prose else natural[number] for number in numbers
        ]

    def _entries(self, number: int) -> list[Text]:
        return [Text(_heading(self._columns[number])), *(row[number] for row in self._texts)]


_INTERVAL = Column[Any](heading="95%\nCI", is_number=True)


def _entry(column: Column[Item], item: Item) -> Entry:
    value = column.of(item)
    if value is None:
        return Entry(text=UNKNOWN)
    if isinstance(value, Entry):
        return value
    if isinstance(value, Text):
        return Entry(text=value)
    between = ""
    if isinstance(value, Estimate):
        if math.isfinite(value.high):
            between = span(column.write(value.low), column.write(value.high))
        value = value.value
    return Entry(
        text=Text(column.write(value), style=column.style),
        number=value if column.is_number and isinstance(value, int | float) else None,
        range=between,
    )


def span(low: str, high: str) -> str:
    """Write an interval: ``63.2–69.8 ms``."""
    unit = high.lstrip("0123456789.,-")
    return f"{low.removesuffix(unit)}–{high}"


def _heading(column: Column[Any]) -> str:
    return "\n".join(filter(None, (column.heading, column.unit)))


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.split("\n")))


def _text(text: Text | str, style: str = "") -> Text:
    """Return a text without what would steer the terminal, such as an escape sequence in a name."""
    text = text.copy() if isinstance(text, Text) else Text(text, style=style)
    text.plain = visible(text.plain)
    return text


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text
