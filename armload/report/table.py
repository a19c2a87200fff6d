"""Runs as tables for a terminal.

What came from a file or a board is printed as it is, never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.bench.run import Run
from armload.report import words

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text


def run_table(run: Run) -> Group:
    """Lay out one run: what ran where, its figures, and what limited it."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    if not run.tokens and run.summary.decode_tps is None:
        return Group(_facts(run))
    return Group(
        _facts(run),
        Padding(_figures(run), (1, 0)),
        Text.assemble(run.limit.sentence, " ", (words.advice(run), "bold")),
    )


def list_table(runs: Sequence[Run]) -> Table:
    """Lay out several runs, one a line; a run is found again by the end of its id."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("id", no_wrap=True)
    table.add_column("when (UTC)", no_wrap=True)
    for heading in ("board", "what ran"):
        table.add_column(heading, overflow="fold")
    for heading in (
        "decode\ntok/s",
        "prefill\ntok/s",
        "per token\np50",
        "first\ntoken",
        "peak\nRSS",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for run in runs:
        table.add_row(
            Text(run.id[-4:], style="bold"),
            run.started_utc[:16].replace("T", " "),
            Text(run.board.name),
            Text(words.what_ran(run)),
            Text(words.rate(run.summary.decode_tps), style="bold"),
            words.rate(run.summary.prefill_tps),
            words.seconds(run.summary.token_s.p50 if run.summary.token_s else None),
            words.seconds(run.summary.ttft_s),
            words.size(run.memory.max_rss_bytes if run.memory else None),
            _verdict(run, short=True),
        )
    return table


def _facts(run: Run) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in (
        ("run", run.id),
        ("board", words.board_line(run)),
        ("model", words.model_line(run)),
        ("binary", words.binary_line(run)),
        ("in all", words.in_all(run)),
        ("per token", words.median_range(run)),
        ("slow", words.slow_tokens(run)),
        ("set for it", words.setting_line(run)),
        ("beside it", words.strangers_line(run)),
        ("text", words.reference_line(run)),
        ("note", "\n".join(run.notes)),
    ):
        if value:
            table.add_row(label, Text(value))
    ended = Text(run.exit.meaning, style="" if run.exit.status == 0 else "red")
    if run.exit.remedy:
        ended = Text.assemble(ended, "\n", (run.exit.remedy, "bold"))
    table.add_row("exit", ended)
    table.add_row("verdict", _verdict(run, short=False))
    return table


def _figures(run: Run) -> Table:
    from rich.table import Table
    from rich.text import Text

    times = run.summary.token_s
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    figures = (
        ("first\ntoken", words.seconds(run.summary.ttft_s)),
        ("prefill\ntok/s", words.rate(run.summary.prefill_tps)),
        ("decode\ntok/s", words.rate(run.summary.decode_tps)),
        ("per token\np50", words.seconds(times.p50 if times else None)),
        ("\np90", words.seconds(times.p90 if times else None)),
        ("\np99", words.seconds(times.p99 if times else None)),
        ("\nmax", words.seconds(times.max if times else None)),
        ("peak\nRSS", words.size(run.memory.max_rss_bytes if run.memory else None)),
        ("\nVMS", words.size(run.memory.max_vms_bytes if run.memory else None)),
    )
    for heading, _ in figures:
        table.add_column(heading, no_wrap=True)
    table.add_row(*(Text(value, style="bold") for _, value in figures))
    return table


def _verdict(run: Run, *, short: bool) -> Text:
    from rich.text import Text

    if run.verdict.valid:
        return Text("valid", style="green")
    return Text("not valid" if short else words.verdict_line(run), style="red")
