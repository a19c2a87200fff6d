"""A sweep in words: a line for each run as it comes, and a table of its cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from armload.bench.record import Place
from armload.bench.run import Run
from armload.bench.sweep import Sweep
from armload.core.errors import ArmloadError
from armload.report import words
from armload.report.cells import Cell, Estimate, cells_of
from armload.report.ranking import fastest
from armload.report.settings import MODEL, Settings, choices_of, differing
from armload.report.several import rivals

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_LONGEST_KIND = 40


def names_of_cells(sweep: Sweep) -> list[Settings]:
    """Return what tells each cell from the others, by what it is; of one cell, its model."""
    each = [{MODEL: cell.model, **choices_of(cell.plan)} for cell in sweep.cells]
    names = differing(each) or [MODEL]
    return [{name: said[name] for name in names} for said in each]


class Lines:
    """The table of progress: a head, and a line for every run.

    Args:
        sweep: whose runs they are.
        done: how many were there before.
    """

    def __init__(self, sweep: Sweep, done: int) -> None:
        self._names = [_in_a_line(name) for name in names_of_cells(sweep)]
        self._total = len(sweep.cells) * (sweep.repeats + sweep.warmups)
        self._done = done
        self._width = max(4, *(len(name) for name in self._names))

    def head(self) -> str:
        """Return the heads of the columns."""
        number = "run".rjust(self._number_width)
        return f"{number}  {'cell'.ljust(self._width)}  prefill  decode tok/s  verdict"

    def line(self, place: Place, ended: Run | ArmloadError) -> str:
        """Return the line of a run, or of one that could not be started."""
        self._done += 1
        number = f"{self._done}/{self._total}".rjust(self._number_width)
        name = self._names[place.cell].ljust(self._width)
        if isinstance(ended, ArmloadError):
            return f"{number}  {name}  {'-':>7}  {'-':>12}  {ended.message}"
        prefill, decode = (
            words.rate(rate) for rate in (ended.summary.prefill_tps, ended.summary.decode_tps)
        )
        return f"{number}  {name}  {prefill:>7}  {decode:>12}  {_short_verdict(place, ended)}"

    @property
    def _number_width(self) -> int:
        return 2 * len(str(self._total)) + 1


def _short_verdict(place: Place, run: Run) -> str:
    if run.exit.status != 0:
        return run.exit.meaning
    if place.warm_up:
        return "warm-up"
    if run.verdict.valid:
        return "valid"
    return f"not valid: {_kind(run.verdict.reasons[0])}"


def _kind(doubt: str) -> str:
    """Return what a doubt calls itself before its colon; a short one whole."""
    word = doubt.partition(":")[0]
    return word.lower() if len(word) <= _LONGEST_KIND else "see below"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one of a sweep's cells.

    Attributes:
        name: what tells it from the others.
        cell: its runs without the warm-ups; none where there is none.
        error: why it could not be started; empty where it could.
    """

    name: Mapping[str, str]
    cell: Cell | None
    error: str

    @property
    def doubt(self) -> str:
        """The first thing that is to be said against its figures; nothing where there is none."""
        if self.error:
            return self.error
        if self.cell is None:
            return ""
        reasons = [reason for run in self.cell.runs for reason in run.verdict.reasons]
        return next(iter(reasons), self.cell.too_few)


def outcomes_of(
    sweep: Sweep, runs: Mapping[int, Sequence[Run]], errors: Mapping[int, str]
) -> list[Outcome]:
    """Return what became of each cell, in the sweep's order.

    Args:
        sweep: what was run.
        runs: of each cell, without warm-ups.
        errors: why a cell could not be started.
    """
    return [
        Outcome(
            name=name,
            cell=cells_of(runs[number])[0] if runs.get(number) else None,
            error=errors.get(number, ""),
        )
        for number, name in enumerate(names_of_cells(sweep))
    ]


def sweep_table(outcomes: Sequence[Outcome]) -> Table:
    """Lay out a sweep, one cell a line, the fastest marked."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in outcomes[0].name:
        table.add_column(heading, overflow="fold")
    for heading in (
        "valid\nruns",
        "prefill\ntok/s",
        "decode\ntok/s",
        "\n95 % sure",
        "per token\np50",
        "first\ntoken",
        "peak\nRSS",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    cells = [each.cell for each in outcomes if each.cell is not None]
    best = fastest(cells) if len(cells) > 1 else None
    for each in outcomes:
        cell = each.cell
        is_best = cell is not None and cell is best
        decode = cell.decode_tps if cell else None
        table.add_row(
            *(Text(value) for value in each.name.values()),
            f"{len(cell.valid)}/{len(cell.runs)}" if cell else "0/0",
            words.rate(_value(cell.prefill_tps) if cell else None),
            Text(words.rate(_value(decode)), style="bold green" if is_best else "bold"),
            f"{words.rate(decode.low)} to {words.rate(decode.high)}" if decode else "",
            words.seconds(cell.token_s("p50") if cell else None),
            words.seconds(cell.ttft_s if cell else None),
            words.size(cell.max_rss_bytes if cell else None),
            _remark(each, is_best=is_best),
        )
    return table


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what is to be said against single cells, each thing once, and of the fastest."""
    cells: dict[str, list[str]] = {}
    for each in outcomes:
        if each.doubt:
            cells.setdefault(each.doubt, []).append(_in_a_line(each.name))
    said = [f"{'; '.join(names)}: {doubt}" for doubt, names in cells.items()]
    rivalry = rivals([each.cell for each in outcomes if each.cell is not None])
    return [*said, rivalry] if rivalry else said


def sweep_json(sweep: Sweep, outcomes: Sequence[Outcome]) -> str:
    """Return a sweep and what its repeats say as a JSON document; raw samples stay in the runs."""
    cells = [
        {
            "model": cell.model,
            "plan": cell.plan.model_dump(mode="json"),
            "error": each.error,
            **_figures(each.cell),
        }
        for cell, each in zip(sweep.cells, outcomes, strict=True)
    ]
    said = {"sweep": sweep.id, "board": sweep.board, "repeats": sweep.repeats, "cells": cells}
    return json.dumps(said, indent=1)


def _figures(cell: Cell | None) -> dict[str, object]:
    if cell is None:
        return {"runs": [], "ended": 0, "valid": 0}
    return {
        "runs": [run.id for run in cell.runs],
        "ended": sum(run.exit.status == 0 for run in cell.runs),
        "valid": len(cell.valid),
        "prefill_tps": asdict(cell.prefill_tps) if cell.prefill_tps else None,
        "decode_tps": asdict(cell.decode_tps) if cell.decode_tps else None,
        "ttft_s": cell.ttft_s,
        "token_s": {name: cell.token_s(name) for name in ("p50", "p90", "p99", "max")},
        "max_rss_bytes": cell.max_rss_bytes,
        "too_few": cell.too_few,
    }


def _value(estimate: Estimate | None) -> float | None:
    return estimate.value if estimate else None


def _remark(each: Outcome, *, is_best: bool) -> Text:
    from rich.text import Text

    cell = each.cell
    if each.error or (cell is not None and not cell.counted):
        return Text("failed", style="red")
    if each.doubt:
        return Text(_kind(each.doubt), style="yellow" if cell and cell.is_valid else "red")
    return Text("fastest", style="green") if is_best else Text("")


def _in_a_line(name: Mapping[str, str]) -> str:
    return ", ".join(value if key == MODEL else f"{key} {value}" for key, value in name.items())
