"""Time per token over a run, as one Vega-Lite specification for page and picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armload.analysis.causes import Cause
from armload.analysis.columns import Cores
from armload.analysis.run import Run
from armload.analysis.summary import generating, prompting
from armload.engines.trace import Step
from armload.report import formatting as words
from armload.report.drawing import QUIET, Specification, chart_of, guide, source

if TYPE_CHECKING:
    import altair as alt

IN_MEMORY, FROM_STORAGE, PROMPT = "output token", "output token, storage read", "prompt, per token"
THROTTLED, CONTENDED = "slow: throttling", "slow: contention"
GROWN, UNEXPLAINED = "slow: context growth", "slow: unexplained"

COLOURS = {
    IN_MEMORY: "#0072B2",
    FROM_STORAGE: "#D55E00",
    THROTTLED: "#CC79A7",
    CONTENDED: "#E69F00",
    GROWN: "#56B4E9",
    UNEXPLAINED: "#7F7F7F",
    PROMPT: "#009E73",
}
"""Colours that people with any colour vision tell apart (Okabe and Ito, 2008), and a grey."""

SHAPES = {
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

STEPS, MEDIAN = "steps", "median"
"""Names of the data sets."""


def token_chart(run: Run) -> Specification:
    """Return the specification: x is the output token's number, y milliseconds per token.

    The run has tokens. The prompt's last step yields output token 1 and stands there, its earlier
    steps left of it, each with its mean time per prompt token.
    """
    import altair as alt

    rows = token_rows(run)
    kinds = kinds_among(rows)
    base = source(STEPS)
    x = alt.X("number:Q").title("output token").axis(tickCount=10, tickMinStep=1, format=",d")
    x = x.scale(domain=_numbers_shown(rows), nice=False, padding=8)
    y = alt.Y("ms:Q").title("time per token (ms)").axis(tickCount=6, format=",.10~g")
    y = y.scale(zero=True)
    line, points = token_marks(base, kinds, x, y)
    layers: list[alt.Chart] = [line, points]
    medians: list[dict[str, float]] = []
    title = words.headline(run)
    if run.summary.token_s is not None:
        title += f", median {words.seconds(run.summary.token_s.p50)} per token (dashed)"
        medians.append({"ms": run.summary.token_s.p50 * 1000})
        layers.append(guide(source(MEDIAN), y))
    subtitle = ", ".join(filter(None, (words.model_name(run), words.started(run))))
    return chart_of(layers, {STEPS: rows, MEDIAN: medians}, title=title, subtitle=subtitle)


def token_marks(
    base: alt.Chart, kinds: list[str], x: alt.X, y: alt.Y
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
        .scale(domain=kinds, range=[COLOURS[kind] for kind in kinds]),
        alt.Shape("kind:N").title(None).scale(domain=kinds, range=[SHAPES[kind] for kind in kinds]),
        tooltip=[
            alt.Tooltip("kind:N", title="what"),
            alt.Tooltip("number:Q", title="output token"),
            alt.Tooltip("ms:Q", title="ms per token", format=".1f"),
            alt.Tooltip("tokens:Q", title="tokens in this step"),
            alt.Tooltip("read_mb:Q", title="read from storage (MB)", format=".1f"),
            alt.Tooltip("major_faults:Q", title="major faults"),
            alt.Tooltip("cpu_share:Q", title="CPU time / wall time", format=".2f"),
            alt.Tooltip("involuntary_switches:Q", title="involuntary switches"),
            alt.Tooltip("mhz:Q", title="fastest core of the run (MHz)"),
        ],
    )
    return line, points


def _numbers_shown(rows: list[dict[str, Any]]) -> tuple[int, int]:
    numbers = [row["number"] for row in rows]
    return min(numbers), max(*numbers, min(numbers) + 1)


def kinds_among(rows: list[dict[str, Any]]) -> list[str]:
    """Return the kinds of tokens that are there, in the legend's order."""
    there = {row["kind"] for row in rows}
    return [kind for kind in COLOURS if kind in there]


def token_rows(run: Run) -> list[dict[str, Any]]:
    """Return a row for each step: its token's number, milliseconds, kind and columns."""
    prompt, decode = prompting(run.steps), generating(run.steps)
    found, cores = words.causes_of(run), words.used_cores(run)
    rows = [
        _row(step, number, PROMPT, step.tokens, cores)
        for number, step in enumerate(prompt, 2 - len(prompt))
    ]
    number = 1
    for step in decode:
        number += step.output_tokens
        usual = FROM_STORAGE if words.reads_storage(step) else IN_MEMORY
        kind = _KIND_OF[found[step.step]] if step.step in found else usual
        rows.append(_row(step, number, kind, step.output_tokens, cores))
    return rows


def _row(step: Step, number: int, kind: str, tokens: int, cores: Cores) -> dict[str, Any]:
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
