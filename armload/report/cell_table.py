"""The cells as a table: what was run, how fast it was, and whether that may be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.report import formatting as words
from armload.report.cells import Cell, Estimate, fastest
from armload.report.settings import ALWAYS_SHOWN, MODEL, NONE, PROGRAM, THREADS, differing


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """One entry of a row.

    Attributes:
        text: for a person.
        number: to sort by; none where the text is sorted, or the figure is missing.
        range: its interval in words; empty without one.
    """

    text: str
    number: float | None = None
    range: str = ""


@dataclass(frozen=True, kw_only=True)
class PageColumn:
    """One column: a heading with its unit, and whether it holds numbers."""

    heading: str
    unit: str = ""
    is_number: bool = False


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One cell.

    Attributes:
        state: as the cell's.
        is_fastest: whether it decodes fastest of all valid ones.
        entries: one for each column.
    """

    state: str
    is_fastest: bool
    entries: tuple[TableEntry, ...]


@dataclass(frozen=True, kw_only=True)
class CellTable:
    """All cells, the columns that tell them apart first."""

    columns: tuple[PageColumn, ...]
    rows: tuple[TableRow, ...]


_FIGURES = (
    PageColumn(heading="runs", unit="valid / all", is_number=True),
    PageColumn(heading="decode", unit="tokens/s", is_number=True),
    PageColumn(heading="prefill", unit="tokens/s", is_number=True),
    PageColumn(heading="first token", unit="after", is_number=True),
    PageColumn(heading="p50", unit="per token", is_number=True),
    PageColumn(heading="p90", unit="per token", is_number=True),
    PageColumn(heading="p99", unit="per token", is_number=True),
    PageColumn(heading="max", unit="per token", is_number=True),
    PageColumn(heading="memory", unit="at its peak", is_number=True),
    PageColumn(heading="limited by"),
    PageColumn(heading="verdict"),
)


def cell_table(cells: Sequence[Cell]) -> CellTable:
    """Lay out the cells; what is the same in all is shown for board, model and threads only.

    A program that was given no model is named itself.
    """
    names = [*ALWAYS_SHOWN]
    if any(cell.settings[MODEL] == NONE for cell in cells):
        names.insert(0, PROGRAM)
    names += [name for name in differing([cell.settings for cell in cells]) if name not in names]
    best = fastest(cells) if len(cells) > 1 else None
    return CellTable(
        columns=(
            *(PageColumn(heading=name, is_number=name == THREADS) for name in names),
            *_FIGURES,
        ),
        rows=tuple(
            TableRow(
                state=cell.state,
                is_fastest=cell is best,
                entries=(
                    *(_setting(cell, name) for name in names),
                    *_figures(cell, is_fastest=cell is best),
                ),
            )
            for cell in cells
        ),
    )


def _setting(cell: Cell, name: str) -> TableEntry:
    if name == THREADS:
        return TableEntry(text=cell.settings[name], number=cell.threads)
    return TableEntry(text=cell.settings[name])


def _figures(cell: Cell, *, is_fastest: bool) -> tuple[TableEntry, ...]:
    return (
        TableEntry(text=f"{len(cell.valid)} / {len(cell.runs)}", number=len(cell.valid)),
        _rate(cell.decode_tps),
        _rate(cell.prefill_tps),
        _time(cell.ttft_s),
        _time(cell.token_s("p50")),
        _time(cell.token_s("p90")),
        _time(cell.token_s("p99")),
        _time(cell.token_s("max")),
        TableEntry(text=words.size(cell.max_rss_bytes), number=cell.max_rss_bytes),
        TableEntry(text=cell.limit if cell.counted else words.UNKNOWN),
        TableEntry(text=f"{cell.state}, fastest" if is_fastest else cell.state),
    )


def _rate(rate: Estimate | None) -> TableEntry:
    if rate is None:
        return TableEntry(text=words.UNKNOWN)
    return TableEntry(
        text=words.rate(rate.value),
        number=rate.value,
        range=f"{words.rate(rate.low)} to {words.rate(rate.high)}",
    )


def _time(seconds: float | None) -> TableEntry:
    return TableEntry(text=words.seconds(seconds), number=seconds)
