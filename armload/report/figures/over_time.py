"""Time per token over the run: of one run, and a panel for each cell, causes coloured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armload.analysis.causes import CAUSES, Cause
from armload.analysis.columns import Cores
from armload.analysis.run import Run
from armload.analysis.summary import generating, prompting
from armload.engines.trace import Step
from armload.report import run_words
from armload.report.cells import Cell, fastest_of_each
from armload.report.drawing import QUIET, Rows, Specification, chart_of, guide, source
from armload.report.figures.figure import (
    MOST_PANELS,
    Figure,
    TimeUnit,
    drawn,
    in_panels,
    panel_label,
    thinned,
    time_unit,
)

if TYPE_CHECKING:
    import altair as alt

NAME = "time-per-token"
TITLE = "Time per token over the run"

MOST_STEPS = 300
"""In a panel; of more, those that stand out and every other one."""

IN_MEMORY, FROM_STORAGE, PROMPT = "output token", "output token, storage read", "prompt, per token"
THROTTLED, CONTENDED = "slow: throttling", "slow: contention"
GROWN, UNEXPLAINED = "slow: context growth", "slow: unexplained"

KIND_COLOURS = {
    IN_MEMORY: "#0072B2",
    FROM_STORAGE: "#D55E00",
    THROTTLED: "#CC79A7",
    CONTENDED: "#E69F00",
    GROWN: "#56B4E9",
    UNEXPLAINED: "#7F7F7F",
    PROMPT: "#009E73",
}

KIND_SHAPES = {
    IN_MEMORY: "circle",
    FROM_STORAGE: "triangle-up",
    THROTTLED: "triangle-down",
    CONTENDED: "square",
    GROWN: "triangle-right",
    UNEXPLAINED: "cross",
    PROMPT: "diamond",
}

_KIND_OF: dict[Cause, str] = {
    "paging": FROM_STORAGE,
    "throttling": THROTTLED,
    "contention": CONTENDED,
    "context growth": GROWN,
    "unexplained": UNEXPLAINED,
}

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
    return _drawn(runs, sentence)


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
    each = ", ".join(f"{causes[cause]} {_by(cause)}" for cause in CAUSES if causes[cause])
    if len(causes) == 1:
        each = f"{'all ' if count > 1 else ''}{_by(next(iter(causes)))}"
    most = max(slow, key=lambda label: len(slow[label]))
    mostly = ""
    if len(runs) > 1 and len(slow[most]) == count:
        mostly = f", with {most}"
    elif len(runs) > 1 and 2 * len(slow[most]) > count:
        mostly = f"; {len(slow[most])} of them with {most}"
    verb = "stands" if count == 1 else "stand"
    return f"{count} of {tokens:,} tokens{where} {verb} out as slow: {each}{mostly}."


def _by(cause: Cause) -> str:
    return cause if cause == "unexplained" else f"by {cause}"


def _drawn(runs: Sequence[tuple[str, Run]], sentence: str) -> Figure:
    import altair as alt

    medians = [run.summary.token_s.p50 for _, run in runs if run.summary.token_s]
    unit = time_unit(medians)
    rows = [row for label, run in runs for row in _rows(label, run, unit.per_s)]
    kinds = kinds_among(rows)
    steps = alt.NamedData(name="steps")
    base = alt.Chart(steps)
    x = alt.X("number:Q").title("output token").axis(tickCount=5, tickMinStep=1, format=",d")
    x = x.scale(nice=False, padding=6, zero=False)
    y = alt.Y("time:Q").title(f"time per token ({unit.name})")
    y = y.axis(tickCount=4, format=",.10~g").scale(zero=True)
    line, points = token_marks(base, kinds, x, y, unit)
    middle = guide(base, alt.Y("mean(median):Q").title(f"time per token ({unit.name})"))
    chart = in_panels((line, points, middle), steps, [label for label, _ in runs], medians)
    return drawn(
        NAME,
        TITLE,
        sentence,
        chart,
        {"steps": rows},
        note=DASHED,
    )


def _rows(label: str, run: Run, per_s: float) -> Rows:
    median = run.summary.token_s.p50 if run.summary.token_s else 0.0
    rows = [
        {
            **row,
            "cell": panel_label(label),
            "time": row["ms"] / 1000 * per_s,
            "median": median * per_s,
        }
        for row in token_rows(run)
    ]
    usual = (IN_MEMORY, FROM_STORAGE)
    return thinned(rows, MOST_STEPS, always=[row["kind"] not in usual for row in rows])


def token_chart(run: Run) -> Specification:
    """Return the specification: x is the output token's number, y the time per token.

    The run has tokens. The prompt's last step yields output token 1 and stands there, its earlier
    steps left of it, each with its mean time per prompt token.
    """
    import altair as alt

    p50_s = run.summary.token_s.p50 if run.summary.token_s else None
    unit = time_unit([p50_s] if p50_s else [])
    rows = [{**row, "time": row["ms"] / 1000 * unit.per_s} for row in token_rows(run)]
    kinds = kinds_among(rows)
    base = source(STEPS)
    x = alt.X("number:Q").title("output token").axis(tickCount=10, tickMinStep=1, format=",d")
    x = x.scale(domain=_numbers_shown(rows), nice=False, padding=8)
    y = alt.Y("time:Q").title(f"time per token ({unit.name})")
    y = y.axis(tickCount=6, format=",.10~g").scale(zero=True)
    line, points = token_marks(base, kinds, x, y, unit)
    layers: list[alt.Chart] = [line, points]
    medians: Rows = []
    note = ""
    if p50_s is not None:
        note = f". {DASHED.rstrip('.')}"
        medians.append({"time": p50_s * unit.per_s})
        layers.append(guide(source(MEDIAN), y))
    subtitle = ", ".join(filter(None, (run_words.model_name(run), run_words.started(run))))
    return chart_of(
        layers,
        {STEPS: rows, MEDIAN: medians},
        title=run_words.headline(run),
        subtitle=f"{subtitle}{note}.",
    )


def token_marks(
    base: alt.Chart, kinds: list[str], x: alt.X, y: alt.Y, unit: TimeUnit
) -> tuple[alt.Chart, alt.Chart]:
    """Return a line through the output tokens, and a point for each step with its columns."""
    import altair as alt

    line = (
        base.transform_filter(f"datum.kind != '{PROMPT}'")
        .mark_line(color=QUIET, strokeWidth=1, opacity=0.5)
        .encode(x, y)
    )
    points = base.mark_point(filled=True, size=44, opacity=0.9).encode(
        x,
        y,
        alt.Color("kind:N")
        .title(None)
        .scale(domain=kinds, range=[KIND_COLOURS[kind] for kind in kinds]),
        alt.Shape("kind:N")
        .title(None)
        .scale(domain=kinds, range=[KIND_SHAPES[kind] for kind in kinds]),
        tooltip=[
            alt.Tooltip("kind:N", title="what"),
            alt.Tooltip("number:Q", title="output token"),
            alt.Tooltip("time:Q", title=f"{unit.name} per token", format=",.4~g"),
            alt.Tooltip("tokens:Q", title="tokens in this step"),
            alt.Tooltip("read_mb:Q", title="read from storage (MB)", format=".1f"),
            alt.Tooltip("major_faults:Q", title="major faults"),
            alt.Tooltip("cpu_share:Q", title="CPU time / wall time", format=".2f"),
            alt.Tooltip("involuntary_switches:Q", title="involuntary switches"),
            alt.Tooltip("mhz:Q", title="fastest core of the run (MHz)"),
        ],
    )
    return line, points


def _numbers_shown(rows: Rows) -> tuple[int, int]:
    numbers = [row["number"] for row in rows]
    return min(numbers), max(*numbers, min(numbers) + 1)


def kinds_among(rows: Rows) -> list[str]:
    """Return the kinds of tokens that are there, in the legend's order."""
    there = {row["kind"] for row in rows}
    return [kind for kind in KIND_COLOURS if kind in there]


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
