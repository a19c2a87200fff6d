"""What results are laid out as, tables, facts and prose, and their look on a terminal.

On a terminal they suit 80 columns first, and any other width. Lines are broken between words
only, and never inside a command. What is longer than a line, such as a path, runs over its edge,
where the terminal itself breaks it: it is copied whole. A console that prints this must not crop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from armload.core.values import visible

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
class Column:
    """A column of a table.

    Attributes:
        heading: may have several lines.
        unit: stands beneath the heading.
        is_number: stands at the right edge.
        is_prose: may be broken between words.
        below: where a terminal has no room for it, it goes to a line of its own beneath the row,
            behind these words; none: it stays.
    """

    heading: str
    unit: str = ""
    is_number: bool = False
    is_prose: bool = False
    below: str | None = None


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

    def __init__(self, *columns: Column) -> None:
        self.columns = columns
        self.rows: list[Row] = []
        self._texts: list[list[Text]] = []

    def add(self, *entries: Entry | Text | str, state: str = "", is_best: bool = False) -> None:
        """Add a row, with an entry for each column."""
        full = [each if isinstance(each, Entry) else Entry(text=each) for each in entries]
        self.rows.append(Row(entries=tuple(full), state=state, is_best=is_best))
        self._texts.append([_text(each.text) for each in full])

    def records(self) -> tuple[dict[str, float | str], ...]:
        """Return the rows for programs: entries by the heading, numbers where they are some."""
        headings = [column.heading for column in self.columns]
        return tuple(
            {
                heading: str(entry.text) if entry.number is None else entry.number
                for heading, entry in zip(headings, row.entries, strict=True)
            }
            for row in self.rows
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, in the form that suits the width."""
        every = range(len(self.columns))
        beside = [number for number in every if self.columns[number].below is None]
        for numbers in (every, beside):
            widths = self._widths(numbers, options.max_width)
            if widths:
                yield from self._side_by_side(numbers, widths, options.max_width)
                return
        headings = [" ".join(_heading(column).split()) for column in self.columns]
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
            numbers, widths, [Text(_heading(each), style="dim") for each in self.columns]
        )
        below = [number for number in range(len(self.columns)) if number not in numbers]
        for row in self._texts:
            yield self._grid(numbers, widths, row)
            entries = [
                Text.assemble(
                    self.columns[number].below or "", row[number], no_wrap=row[number].no_wrap
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
            is_number = self.columns[number].is_number
            grid.add_column(width=width, justify="right" if is_number else "left")
            cells.append(Text("\n").join(wrapped(row[number], width)))
        grid.add_row(*cells)
        return grid

    def _widths(self, numbers: Sequence[int], room: int) -> list[int]:
        """Return the columns' widths; none where there is no room for them."""
        natural = {number: max(map(_width, self._entries(number))) for number in numbers}
        prose = [number for number in numbers if self.columns[number].is_prose]
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
        return [Text(_heading(self.columns[number])), *(row[number] for row in self._texts)]


def _heading(column: Column) -> str:
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
