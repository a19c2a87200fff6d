"""Time per token over the run: of one run, and a panel for each cell, causes coloured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from armload.analysis.causes import CAUSES, Cause
from armload.analysis.columns import Cores
from armload.analysis.run import Run
from armload.analysis.summary import generating, prompting
from armload.engines.trace import Step
from armload.report import run_words
from armload.report.cells import Cell, fastest_of_each
from armload.report.chart import (
    COUNT,
    Channel,
    Key,
    Layer,
    Plot,
    axis,
    guide,
    in_panels,
    kinds_key,
    layered,
)
from armload.report.drawing import Rows, chart_of, columns_for, panel_label
from armload.report.figures.figure import (
    MOST_PANELS,
    Figure,
    TimeUnit,
    drawn,
    thinned,
    time_unit,
)

NAME = "time-per-token"
TITLE = "Time per token over the run"

MOST_STEPS = 300
"""In a panel; of more, those that stand out and every other one."""

IN_MEMORY, FROM_STORAGE, PROMPT = "output token", "output token, storage read", "prompt, per token"

_KIND_OF: dict[Cause, str] = {cause: f"slow: {cause}" for cause in CAUSES}
_KIND_OF["paging"] = FROM_STORAGE

_LOOKS_OF_CAUSES = (
    ("#D55E00", "triangle-up"),
    ("#CC79A7", "triangle-down"),
    ("#E69F00", "square"),
    ("#56B4E9", "triangle-right"),
    ("#7F7F7F", "cross"),
)
LOOKS = {
    IN_MEMORY: ("#0072B2", "circle"),
    **dict(zip(_KIND_OF.values(), _LOOKS_OF_CAUSES, strict=True)),
    PROMPT: ("#009E73", "diamond"),
}
"""Of the kinds of tokens, in the legend's order."""

DASHED = "Dashed: the median."
STEPS, MEDIAN = "steps", "median"
"""Names of the data sets."""


def over_time(cells: Sequence[Cell]) -> Figure | None:
    """Draw the run of each cell that is nearest to its median; none without output tokens."""
    timed = [cell for cell in cells if cell.typical]
    if not timed:
        return None
    shown = fastest_of_each(timed, MOST_PANELS)
    left_out = (
        f" Shown: {len(shown)} of {len(timed)}, the fastest of each kind; the table has all."
        if len(shown) < len(timed)
        else ""
    )
    runs = [(cell.doubted_label, cell.typical) for cell in shown if cell.typical]
    sentence = _sentence(runs) + left_out
    medians = [median_s for _, run in runs if (median_s := run.summary.median_s) is not None]
    unit = time_unit(medians)
    rows = [row for label, run in runs for row in _rows(label, run, unit.per_s)]
    key = kinds_key("kind", LOOKS, rows)
    x, y = _axes(unit, padding=6, ticks=(5, 4))
    middle = guide("steps", {"y": {**y, "field": "median", "aggregate": "mean"}})
    labels = [label for label, _ in runs]
    chart = in_panels((*_marks(x, y, key, unit), middle), labels, medians)
    return drawn(NAME, TITLE, sentence, chart, {"steps": rows}, note=DASHED, key=key)


def _sentence(runs: Sequence[tuple[str, Run]]) -> str:
    slow = {label: run_words.causes_of(run) for label, run in runs}
    tokens = sum(len(generating(run.steps)) for _, run in runs)
    count = sum(map(len, slow.values()))
    where = "" if len(runs) == 1 else f" of the {len(runs)} runs shown"
    if count == 0:
        none = f"None of the {tokens:,} tokens{where} stands out from its neighbours as slow"
        if all(run.verdict.valid for _, run in runs):
            return f"{none}."
        return f"{none}; in a run that is not valid, all of them may be slow."
    causes = Counter(cause for found in slow.values() for cause in found.values())
    named = {cause: cause if cause == "unexplained" else f"by {cause}" for cause in CAUSES}
    each = ", ".join(f"{causes[cause]} {named[cause]}" for cause in CAUSES if causes[cause])
    if len(causes) == 1:
        each = f"{'all ' if count > 1 else ''}{named[next(iter(causes))]}"
    most = max(slow, key=lambda label: len(slow[label]))
    mostly = ""
    if len(runs) > 1 and len(slow[most]) == count:
        mostly = f", with {most}"
    elif len(runs) > 1 and 2 * len(slow[most]) > count:
        mostly = f"; {len(slow[most])} of them with {most}"
    verb = "stands" if count == 1 else "stand"
    return f"{count} of {tokens:,} tokens{where} {verb} out as slow: {each}{mostly}."


def _rows(label: str, run: Run, per_s: float) -> Rows:
    median_s = run.summary.median_s or 0.0
    rows = [
        {
            **row,
            "cell": panel_label(label),
            "time": row["ms"] / 1000 * per_s,
            "median": median_s * per_s,
        }
        for row in token_rows(run)
    ]
    usual = (IN_MEMORY, FROM_STORAGE)
    return thinned(rows, MOST_STEPS, always=[row["kind"] not in usual for row in rows])


def tokens(run: Run) -> Figure | None:
    """Draw all steps of a run over the output tokens' numbers; none without a step.

    The prompt's last step yields output token 1 and stands there, its earlier steps left of it,
    each with its mean time per prompt token.
    """
    if not prompting(run.steps) and not generating(run.steps):
        return None
    median_s = run.summary.median_s
    unit = time_unit([median_s] if median_s else [])
    rows = [{**row, "time": row["ms"] / 1000 * unit.per_s} for row in token_rows(run)]
    key = kinds_key("kind", LOOKS, rows)
    x, y = _axes(unit, padding=8, ticks=(10, 6))
    layers = _marks(x, y, key, unit)
    medians: Rows = []
    note = ""
    if median_s is not None:
        note = DASHED
        medians.append({"time": median_s * unit.per_s})
        layers.append(guide("median", {"y": y}))
    about = ", ".join(filter(None, (run_words.model_name(run), run_words.started(run))))
    specification = chart_of(
        layered(layers),
        {"steps": rows, "median": medians},
        title=run_words.headline(run),
        subtitle=" ".join(filter(None, (f"{about}.", note))),
        legend_columns=columns_for(list(key.looks)),
    )
    return Figure(
        name="tokens", title="Time per token", sentence="", note=note, specification=specification
    )


def _axes(unit: TimeUnit, *, padding: int, ticks: tuple[int, int]) -> tuple[Channel, Channel]:
    along, up = ticks
    x = axis(
        "number",
        "output token",
        zero=False,
        nice=False,
        padding=padding,
        ticks=along,
        form=COUNT,
    )
    return x, axis("time", f"time per token ({unit.name})", zero=True, ticks=up)


def _marks(x: Channel, y: Channel, key: Key, unit: TimeUnit) -> list[Layer]:
    """Return a line through the output tokens, and a point for each step with its columns."""
    line = Plot(rows="steps", x=x, y=y).line(
        width=1, opacity=0.5, where=f"datum.kind != '{PROMPT}'"
    )
    points = Plot(rows="steps", x=x, y=y, key=key).points(
        size=44,
        opacity=0.9,
        said=(
            ("kind:N", "what"),
            ("number:Q", "output token"),
            ("time:Q", f"{unit.name} per token", ",.4~g"),
            ("tokens:Q", "tokens in this step"),
            ("read_mb:Q", "read from storage (MB)", ".1f"),
            ("major_faults:Q", "major faults"),
            ("cpu_share:Q", "CPU time / wall time", ".2f"),
            ("involuntary_switches:Q", "involuntary switches"),
            ("mhz:Q", "fastest core of the run (MHz)"),
        ),
    )
    return [line, points]


def token_rows(run: Run) -> Rows:
    """Return a row for each step: its token's number, milliseconds, kind and columns."""
    prompt, decode = prompting(run.steps), generating(run.steps)
    found, cores = run_words.causes_of(run), run_words.used_cores(run)
    rows = [
        _step_row(step, number, PROMPT, step.tokens, cores)
        for number, step in enumerate(prompt, 2 - len(prompt))
    ]
    number = 1
    for step in decode:
        number += step.output_tokens
        usual = FROM_STORAGE if step.read_bytes or step.major_faults else IN_MEMORY
        kind = _KIND_OF[found[step.step]] if step.step in found else usual
        rows.append(_step_row(step, number, kind, step.output_tokens, cores))
    return rows


def _step_row(step: Step, number: int, kind: str, tokens: int, cores: Cores) -> dict[str, Any]:
    return {
        "number": number,
        "kind": kind,
        "ms": step.duration_s * 1000 / tokens,
        "tokens": tokens,
        "read_mb": None if step.read_bytes is None else step.read_bytes / 1e6,
        "major_faults": step.major_faults,
        "cpu_share": step.cpu_ns / 1e9 / step.duration_s if step.duration_s else None,
        "involuntary_switches": step.involuntary_switches,
        "mhz": cores.khz(step) / 1000 or None,
    }
