"""The cells as a table: what was run, how fast it was, and whether that may be believed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from armload.core.columns import Column
from armload.report import formatting as words
from armload.report.cells import CELL_FIGURES, Cell, fastest
from armload.report.layout import Entry, Table
from armload.report.settings import ALWAYS_SHOWN, MODEL, NONE, PROGRAM, THREADS, differing

VALID_RUNS: Column[Cell] = Column(
    key="valid_runs",
    heading="valid\nruns",
    of=lambda cell: Entry(text=f"{len(cell.valid)}/{len(cell.runs)}", number=len(cell.valid)),
    is_number=True,
)


def cell_table(cells: Sequence[Cell]) -> Table:
    """Lay out the cells; what is the same in all is shown for board, model and threads only.

    A program that was given no model is named itself.
    """
    names = [*ALWAYS_SHOWN]
    if any(cell.settings[MODEL] == NONE for cell in cells):
        names.insert(0, PROGRAM)
    names += [name for name in differing([cell.settings for cell in cells]) if name not in names]
    best = fastest(cells) if len(cells) > 1 else None
    columns: tuple[Column[Cell], ...] = (
        *(
            Column(heading=name, of=partial(_setting, name), is_number=name == THREADS)
            for name in names
        ),
        VALID_RUNS,
        *CELL_FIGURES,
        Column(heading="limited by", of=lambda cell: cell.limit if cell.counted else words.UNKNOWN),
        Column(
            heading="verdict",
            of=lambda cell: f"{cell.state}, fastest" if cell is best else cell.state,
        ),
    )
    return Table.of(columns, cells, state=lambda cell: cell.state, best=best)


def _setting(name: str, cell: Cell) -> Entry:
    return Entry(text=cell.settings[name], number=cell.threads if name == THREADS else None)
