"""What boards did over a run: power from the supply, and how busy each member of a group was."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence

from armload.analysis.energy import Energy
from armload.analysis.run import Run
from armload.analysis.summary import generating, prompting
from armload.report.chart import COUNT, Plot, axis, guide, kinds_key, lines_key
from armload.report.drawing import COLOURS, SHAPES, Rows
from armload.report.figures.figure import Figure, drawn, thinned

PREFILL, DECODE = "prefill", "decode"


def power_over_tokens(run: Run) -> Figure | None:
    """Draw the samples of a power meter; none without valid ones."""
    energy = run.energy
    if energy is None or energy.problem or not energy.curve:
        return None
    rows = _rows(run, energy)
    looks = {PREFILL: (COLOURS[2], SHAPES[0]), DECODE: (COLOURS[0], SHAPES[0])}
    key = kinds_key("kind", looks, rows)
    title = "output token; the prompt's tokens are left of 1"
    x = axis("number", title, zero=False, nice=False, padding=8, ticks=10, form=COUNT)
    y = axis("watts", "power (W)", zero=True, ticks=6)
    points = Plot(rows="samples", x=x, y=y, key=key).points(
        size=40,
        opacity=0.9,
        said=(
            ("kind:N", "what"),
            ("number:Q", "token", ",.1f"),
            ("time:Q", "s since the first step", ",.1f"),
            ("watts:Q", "W", ",.4~g"),
        ),
    )
    layers = [Plot(rows="samples", x=x, y=y).line(width=1, opacity=0.6, order="time"), points]
    datasets = {"samples": rows}
    dashed = ""
    if energy.idle_w is not None:
        layers.append(guide("idle", {"y": y}))
        datasets["idle"] = [{"watts": energy.idle_w}]
        dashed = " Dashed line: the idle board, before the run."
    return drawn(
        "power", "Power over the tokens", f"{energy.power}.{dashed}", layers, datasets, key=key
    )


def _rows(run: Run, energy: Energy) -> Rows:
    times_s, numbers = _knots(run)
    decodes = generating(run.steps)
    turn_s = decodes[0].start_ns / 1e9 if decodes else float("inf")
    begin_s = run.steps[0].start_ns / 1e9
    return [
        {
            "time": time_s,
            "watts": watts,
            "number": _at(begin_s + time_s, times_s, numbers),
            "kind": PREFILL if begin_s + time_s < turn_s else DECODE,
        }
        for time_s, watts in energy.curve
    ]


def _knots(run: Run) -> tuple[list[float], list[float]]:
    """Return times at which steps begin and end, and how many tokens there were by then."""
    decodes = generating(run.steps)
    prompt = [
        step for step in prompting(run.steps) if not decodes or step.start_ns < decodes[0].start_ns
    ]
    # The prompt's last step gives output token 1.
    number = 1.0 - sum(step.prompt_tokens for step in prompt)
    times_s, numbers = [], []
    for step, tokens in (
        *((step, step.prompt_tokens) for step in prompt),
        *((step, step.output_tokens) for step in decodes),
    ):
        times_s += [step.start_ns / 1e9, step.end_ns / 1e9]
        numbers += [number, number + tokens]
        number += tokens
    return times_s, numbers


def _at(time_s: float, times_s: Sequence[float], numbers: Sequence[float]) -> float:
    after = bisect_right(times_s, time_s)
    if after in (0, len(times_s)):
        return numbers[0] if after == 0 else numbers[-1]
    before_s, after_s = times_s[after - 1], times_s[after]
    share = (time_s - before_s) / (after_s - before_s) if after_s > before_s else 0.0
    return numbers[after - 1] + share * (numbers[after] - numbers[after - 1])


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
        "members",
        "Busy cores of each member over the run",
        f"The members' clocks are aligned to within {error_s * 1000:.0f} ms.",
        (plot.line(width=1, opacity=0.6), points),
        {"samples": rows},
        key=key,
    )
