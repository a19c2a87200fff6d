"""What a board drew from its supply over the tokens of a run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from armload.analysis.energy import Energy
from armload.analysis.run import Run
from armload.analysis.summary import generating, prompting
from armload.report.chart import COUNT, Plot, axis, guide, kinds_key
from armload.report.drawing import COLOURS, SHAPES, Rows
from armload.report.figures.figure import Figure, drawn

NAME, TITLE = "power", "Power over the tokens"
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
    return drawn(NAME, TITLE, f"{energy.power}.{dashed}", layers, datasets, key=key)


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
