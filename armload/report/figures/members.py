"""How busy each member of a group was over the run, on one clock."""

from __future__ import annotations

import itertools

from armload.analysis.run import Run
from armload.report.drawing import Rows, source
from armload.report.figures.figure import Figure, colour_and_shape, drawn, thinned

NAME, TITLE = "members", "Busy cores of each member over the run"

_MOST_ROWS = 300


def members_over_time(run: Run) -> Figure | None:
    """Draw the cores that each member kept busy; none without samples of the others."""
    sampled = [member for member in run.members if len(member.samples) > 1]
    if not sampled or not run.steps:
        return None
    begin_s = run.steps[0].start_ns / 1e9
    first = "" if run.spread is None else f"{run.spread.shares[0].board} (program)"
    rows: Rows = [
        {
            "member": first,
            "time": step.start_ns / 1e9 - begin_s,
            "cores": step.cpu_ns / 1e9 / step.duration_s,
            "celsius": step.celsius,
        }
        for step in run.steps
        if step.duration_s > 0
    ]
    rows = thinned(rows, _MOST_ROWS, always=[False] * len(rows))
    labels = [first]
    for member in sampled:
        labels.append(f"{member.board.name} (server)")
        its: Rows = [
            {
                "member": labels[-1],
                "time": later.at_s - begin_s,
                "cores": (later.cpu_s - earlier.cpu_s) / (later.at_s - earlier.at_s),
                "celsius": later.celsius,
            }
            for earlier, later in itertools.pairwise(member.samples)
            if later.at_s > earlier.at_s
        ]
        rows += thinned(its, _MOST_ROWS, always=[False] * len(its))
    return _drawn(labels, rows, max(member.clock_error_s or 0.0 for member in sampled))


def _drawn(labels: list[str], rows: Rows, error_s: float) -> Figure:
    import altair as alt

    data = source("samples")
    colour, shape = colour_and_shape("member", labels)
    x = alt.X("time:Q").title("time since the first step (s)").axis(tickCount=8)
    y = alt.Y("cores:Q").title("cores busy").scale(zero=True).axis(tickCount=5)
    line = data.mark_line(strokeWidth=1, opacity=0.6).encode(x, y, colour)
    points = data.mark_point(filled=True, size=30, opacity=0.9).encode(
        x,
        y,
        colour,
        shape,
        tooltip=[
            alt.Tooltip("member:N"),
            alt.Tooltip("time:Q", title="s since the first step", format=",.1f"),
            alt.Tooltip("cores:Q", title="cores busy", format=".2f"),
            alt.Tooltip("celsius:Q", title="°C", format=".0f"),
        ],
    )
    sentence = f"The members' clocks are aligned to within {error_s * 1000:.0f} ms."
    return drawn(NAME, TITLE, sentence, [line, points], {"samples": rows})
