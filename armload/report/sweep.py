"""A sweep in words: a line for each run as it comes, and a table of its cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armload.bench.cells import Estimate, Together, together
from armload.bench.plan import Plan
from armload.bench.run import Place, Run
from armload.bench.sweep import Sweep
from armload.core.errors import ArmloadError
from armload.core.shell import join
from armload.report import words

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_LONGEST_PROMPT = 24
_LONGEST_KIND = 40


def names_of_cells(sweep: Sweep) -> list[dict[str, str]]:
    """Return what tells each cell from the others, by what it is; of one cell, its model."""
    each = [{"model": cell.model, **_said(cell.plan)} for cell in sweep.cells]
    keys = list(dict.fromkeys(key for said in each for key in said))
    varying = [key for key in keys if len({said.get(key, "") for said in each}) > 1]
    return [{key: said.get(key, "-") for key in varying or ["model"]} for said in each]


def _said(plan: Plan) -> dict[str, str]:
    said = {
        "prompt": "" if plan.prompt_tokens else _short(plan.prompt),
        "prompt tokens": plan.prompt_tokens,
        "n": plan.n_predict,
        "context": plan.context_tokens,
        "KV type": plan.kv_type,
        "flash attention": plan.flash_attention,
        "batch": plan.batch_tokens,
        "micro-batch": plan.micro_batch_tokens,
        "cores": plan.cpus,
        "threads": plan.threads,
        "cache": "cold" if plan.cold else None,
        "arguments": join(plan.extra) if plan.extra else None,
    }
    return {key: str(value) for key, value in said.items() if value not in (None, "")}


def _short(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= _LONGEST_PROMPT else f"{line[: _LONGEST_PROMPT - 1]}…"


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


def cells_of(
    sweep: Sweep, runs: Mapping[int, Sequence[Run]]
) -> list[tuple[dict[str, str], Together]]:
    """Return each cell's name with what its repeats say; warm-ups are left out."""
    return [
        (name, together(runs.get(number, ()))) for number, name in enumerate(names_of_cells(sweep))
    ]


def sweep_table(
    sweep: Sweep, runs: Mapping[int, Sequence[Run]], errors: Mapping[int, str]
) -> Table:
    """Lay out a sweep, one cell a line, the fastest marked.

    Args:
        sweep: what was run.
        runs: of each cell, without warm-ups.
        errors: why a cell could not be started.
    """
    from rich.table import Table
    from rich.text import Text

    cells = cells_of(sweep, runs)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in cells[0][0]:
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
    rates = [cell.decode_tps.median for _, cell in cells if cell.valid and cell.decode_tps]
    for number, (name, cell) in enumerate(cells):
        is_best = len(rates) > 1 and cell.valid and _median(cell.decode_tps) == max(rates)
        table.add_row(
            *(Text(value) for value in name.values()),
            f"{cell.valid}/{len(cell.runs)}",
            words.rate(_median(cell.prefill_tps)),
            Text(words.rate(_median(cell.decode_tps)), style="bold green" if is_best else "bold"),
            _range(cell.decode_tps),
            words.seconds(_median(cell.token_p50_s)),
            words.seconds(_median(cell.ttft_s)),
            words.size(cell.max_rss_bytes),
            _remark(cell, errors.get(number, ""), is_best=bool(is_best)),
        )
    return table


def sweep_json(sweep: Sweep, runs: Mapping[int, Sequence[Run]], errors: Mapping[int, str]) -> str:
    """Return a sweep and what its repeats say as a JSON document; raw samples stay in the runs."""
    cells = [
        {
            "model": cell.model,
            "plan": cell.plan.model_dump(mode="json"),
            "error": errors.get(number, ""),
            **together(runs.get(number, ())).model_dump(mode="json"),
        }
        for number, cell in enumerate(sweep.cells)
    ]
    said = {"sweep": sweep.id, "board": sweep.board, "repeats": sweep.repeats, "cells": cells}
    return json.dumps(said, indent=1)


def _median(value: Estimate | None) -> float | None:
    return value.median if value else None


def _range(value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return ""
    return f"{words.rate(value.low)} to {words.rate(value.high)}"


def _remark(cell: Together, error: str, *, is_best: bool) -> Text:
    from rich.text import Text

    if error or (cell.runs and not cell.ended):
        return Text("failed", style="red")
    if cell.doubts:
        return Text(_kind(cell.doubts[0]), style="yellow" if cell.valid else "red")
    return Text("fastest", style="green") if is_best else Text("")


def notes(sweep: Sweep, runs: Mapping[int, Sequence[Run]], errors: Mapping[int, str]) -> list[str]:
    """Return what is to be said against single cells, each thing once."""
    cells: dict[str, list[str]] = {}
    for number, (name, cell) in enumerate(cells_of(sweep, runs)):
        said = [errors[number]] if number in errors else cell.doubts[:1]
        for doubt in said:
            cells.setdefault(doubt, []).append(_in_a_line(name))
    return [f"{'; '.join(names)}: {doubt}" for doubt, names in cells.items()]


def _in_a_line(name: Mapping[str, str]) -> str:
    return ", ".join(value if key == "model" else f"{key} {value}" for key, value in name.items())
