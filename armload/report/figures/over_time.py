"""Time per token over the run, a panel for each cell, causes coloured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from armload.analysis.causes import CAUSES, Cause
from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.report import formatting as words
from armload.report.cells import Cell, fastest_of_each
from armload.report.chart import (
    FROM_STORAGE,
    IN_MEMORY,
    kinds_among,
    token_marks,
    token_rows,
)
from armload.report.drawing import Rows, guide
from armload.report.figures.figure import (
    MOST_PANELS,
    Figure,
    drawn,
    in_panels,
    panel_label,
    thinned,
    time_unit,
)

NAME = "time-per-token"
TITLE = "Time per token over the run"

MOST_STEPS = 300
"""In a panel; of more, those that stand out and every other one."""


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
    slow = {label: words.causes_of(run) for label, run in runs}
    tokens = sum(len(generating(run.steps)) for _, run in runs)
    count = sum(map(len, slow.values()))
    where = "" if len(runs) == 1 else f" of the {len(runs)} runs shown"
    if count == 0:
        none = f"None of the {tokens:,} tokens{where} stands out from its neighbours as slow"
        if all(run.verdict.valid for _, run in runs):
            return f"{none}."
        return f"{none}; in a run that is not valid, all of them may be."
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
    line, points = token_marks(base, kinds, x, y)
    middle = guide(base, alt.Y("mean(median):Q").title(f"time per token ({unit.name})"))
    chart = in_panels((line, points, middle), steps, [label for label, _ in runs], medians)
    return drawn(
        NAME,
        TITLE,
        sentence,
        chart,
        {"steps": rows},
        note="Dashed: the median.",
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
