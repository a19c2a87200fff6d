"""How busy each member of a group was over the run, on one clock."""

from __future__ import annotations

import itertools

from armload.analysis.run import Run
from armload.report.chart import Plot, axis, lines_key
from armload.report.drawing import Rows
from armload.report.figures.figure import Figure, drawn, thinned

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
    rows = thinned(rows, _MOST_ROWS)
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
        rows += thinned(its, _MOST_ROWS)
    error_s = max(member.clock_error_s or 0.0 for member in sampled)
    key = lines_key("member", labels)
    plot = Plot(
        rows="samples",
        x=axis("time", "time since the first step (s)", ticks=8),
        y=axis("cores", "cores busy", zero=True, ticks=5),
        key=key,
    )
    points = plot.points(
        size=30,
        opacity=0.9,
        said=(
            ("member:N", "member"),
            ("time:Q", "s since the first step", ",.1f"),
            ("cores:Q", "cores busy", ".2f"),
            ("celsius:Q", "°C", ".0f"),
        ),
    )
    return drawn(
        NAME,
        TITLE,
        f"The members' clocks are aligned to within {error_s * 1000:.0f} ms.",
        (plot.line(width=1, opacity=0.6), points),
        {"samples": rows},
        key=key,
    )
