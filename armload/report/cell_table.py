"""The cells as a table: what was run, how fast it was, and whether that may be believed."""

from __future__ import annotations

from collections.abc import Sequence

from armload.report import formatting as words
from armload.report.cells import Cell, Estimate, fastest
from armload.report.layout import Column, Entry, Table
from armload.report.settings import ALWAYS_SHOWN, MODEL, NONE, PROGRAM, THREADS, differing

_FIGURES = (
    Column(heading="runs", unit="valid / all", is_number=True),
    Column(heading="decode", unit="tokens/s, mean", is_number=True),
    Column(heading="prefill", unit="tokens/s, mean", is_number=True),
    Column(heading="first token", unit="after", is_number=True),
    Column(heading="p50", unit="per token", is_number=True),
    Column(heading="p90", unit="per token", is_number=True),
    Column(heading="p99", unit="per token", is_number=True),
    Column(heading="max", unit="per token", is_number=True),
    Column(heading="memory", unit="at its peak", is_number=True),
    Column(heading="limited by"),
    Column(heading="verdict"),
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
    table = Table(
        *(Column(heading=name, is_number=name == THREADS) for name in names),
        *_FIGURES,
    )
    for cell in cells:
        is_best = cell is best
        entries = (*(_setting(cell, name) for name in names), *_figures(cell, is_fastest=is_best))
        table.add(*entries, state=cell.state, is_best=is_best)
    return table


def _setting(cell: Cell, name: str) -> Entry:
    if name == THREADS:
        return Entry(text=cell.settings[name], number=cell.threads)
    return Entry(text=cell.settings[name])


def _figures(cell: Cell, *, is_fastest: bool) -> tuple[Entry, ...]:
    return (
        Entry(text=f"{len(cell.valid)} / {len(cell.runs)}", number=len(cell.valid)),
        _rate(cell.decode_tps),
        _rate(cell.prefill_tps),
        _time(cell.ttft_s),
        _time(cell.token_s("p50")),
        _time(cell.token_s("p90")),
        _time(cell.token_s("p99")),
        _time(cell.token_s("max")),
        Entry(text=words.size(cell.max_rss_bytes), number=cell.max_rss_bytes),
        Entry(text=cell.limit if cell.counted else words.UNKNOWN),
        Entry(text=f"{cell.state}, fastest" if is_fastest else cell.state),
    )


def _rate(rate: Estimate | None) -> Entry:
    if rate is None:
        return Entry(text=words.UNKNOWN)
    return Entry(
        text=words.rate(rate.value),
        number=rate.value,
        range=f"{words.rate(rate.low)} to {words.rate(rate.high)}",
    )


def _time(seconds: float | None) -> Entry:
    return Entry(text=words.seconds(seconds), number=seconds)
