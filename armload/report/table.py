"""Runs as tables for a terminal, and how each held its weights.

What came from a file or a board is printed as it is, never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.console import Group
from rich.text import Text

from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.engines.trace import Weights
from armload.report import formatting as words
from armload.report import run_words
from armload.report.layout import Column, Details, Prose, Table, whole
from armload.report.speculation import gain_lines, speculation_line

_IMPORTED = "measured by somebody else; names, prompt and text may have been left out"


def weights_line(run: Run) -> str:
    """Say how the weights were held; nothing where llama.cpp's usual way was left to it."""
    if run.trace is None or not run.trace.weights:
        asked = run.plan is not None and run.plan.weights == "mapped"
        return "mapped, as requested" if asked else ""
    last = run.trace.weights[-1]
    if last.weights == "mapped":
        return f"mapped: {last.reason}"
    parts = [
        *_held(run, last),
        *_experts(run, last),
        f"{words.size(_streamed_bytes(run, last))} streamed per token{_read(run, last)}",
        "direct and buffered reads" if last.reads == "both" else f"{last.reads} reads",
        f"window {words.size(last.window_bytes)}",
        _faults(run),
    ]
    wanted = last.requested_bytes
    requested = "what fits" if wanted is None else f"{words.size(wanted)} resident"
    return f"streamed: {', '.join(filter(None, parts))}; requested: {requested}"


def _held(run: Run, last: Weights) -> list[str]:
    reported = run.steps[-1].locked_bytes if run.steps else None
    kernel = "" if reported is None else f" (VmLck {words.size(reported)})"
    kinds = (
        (last.anonymous_bytes, "in anonymous memory"),
        (last.cached_bytes, "left in the page cache"),
        (last.released_bytes, "released"),
    )
    return [
        f"{words.size(last.locked_bytes)} locked{kernel}",
        *(f"{words.size(count)} {what}" for count, what in kinds if count),
    ]


def _experts(run: Run, last: Weights) -> list[str]:
    found = run.summary.experts
    if not last.expert_bytes or found is None:
        return []
    return [
        f"{words.size(last.expert_slot_bytes)} of {words.size(last.expert_bytes)} for experts",
        f"{found.hit_rate:.0%} hits",
        f"{words.seconds(found.wait_s_per_token)} waiting per token",
    ]


def _streamed_bytes(run: Run, last: Weights) -> int:
    missed = run.summary.experts.missed_bytes_per_token if run.summary.experts else 0.0
    return last.streamed_bytes + round(missed)


def _read(run: Run, last: Weights) -> str:
    steps = [step for step in generating(run.steps) if step.step >= last.before_step]
    counted = [step.read_bytes for step in steps if step.read_bytes is not None]
    return f" (measured {words.size(round(median(counted)))})" if counted else ""


def _faults(run: Run) -> str:
    steps = generating(run.steps)
    tokens = sum(step.output_tokens for step in steps)
    if not tokens:
        return ""
    faults = sum(step.major_faults for step in steps)
    if faults < tokens:
        return f"{words.counted(faults, 'major fault')} in {words.counted(tokens, 'token')}"
    return f"{faults / tokens:,.1f} major faults per token"


def run_table(run: Run) -> Group:
    """Lay out one run: what ran where, its figures, and what limited it."""
    if not run.steps and run.summary.decode_tps is None:
        return Group(_details(run))
    limit = Text.assemble(run.limit.sentence, " ", (run_words.advice(run), "bold"))
    return Group(_details(run), Text(""), _figures(run), Text(""), Prose(limit))


def list_table(runs: Sequence[Run]) -> Table:
    """Lay out several runs, one a line; a run is found again by the end of its id."""
    table = Table(
        Column(heading="id"),
        Column(heading="when (UTC)"),
        Column(heading="board", below=""),
        Column(heading="what ran", below=""),
        *(
            Column(heading=heading, is_number=True)
            for heading in (
                "decode\ntok/s\n(mean)",
                "prefill\ntok/s\n(mean)",
                "p50 per\ntoken",
                "first\ntoken",
                "peak\nRSS",
            )
        ),
        Column(heading="verdict"),
    )
    for run in runs:
        table.add(
            Text(run.id[-4:], style="bold"),
            words.minute(run.started_utc),
            run.board.name,
            f"{run_words.what_ran(run)}{_threads(run)}",
            Text(words.rate(run.summary.decode_tps), style="bold"),
            words.rate(run.summary.prefill_tps),
            words.seconds(run.summary.token_s.p50 if run.summary.token_s else None),
            words.seconds(run.summary.ttft_s),
            words.size(run.memory.max_rss_bytes if run.memory else None),
            _verdict(run, short=True),
        )
    return table


def _threads(run: Run) -> str:
    threads = run.trace.threads if run.trace else None
    if threads is None and run.plan is not None:
        threads = run.plan.threads
    return "" if threads is None else f", {words.counted(threads, 'thread')}"


def _details(run: Run) -> Details:
    rows: list[tuple[str, str | Text]] = [
        ("run", whole(run.id)),
        ("imported", _IMPORTED if run.is_excerpt else ""),
        ("board", run_words.board_line(run)),
        ("members", "\n".join(run_words.member_lines(run))),
        ("model", run_words.model_line(run)),
        ("weights", weights_line(run)),
        ("binary", run_words.binary_line(run)),
        ("result", run_words.result_line(run)),
        ("total", run_words.in_all(run)),
        ("per token", run_words.median_range(run)),
        ("predicted", run_words.prediction_line(run)),
        ("slow", run_words.slow_tokens(run)),
        ("energy", run_words.energy_line(run)),
        ("conditions set", run_words.setting_line(run)),
        ("background processes", run_words.background_line(run)),
        ("speculation", "\n".join(filter(None, (speculation_line(run), *gain_lines(run))))),
        ("text", run_words.reference_line(run)),
        ("note", "\n".join(run.notes)),
    ]
    ended = Text(run.exit.meaning, style="" if run.exit.status == 0 else "red")
    if run.exit.remedy:
        ended = Text.assemble(ended, "\n", (run.exit.remedy, "bold"))
    rows += [("exit", ended), ("verdict", _verdict(run, short=False))]
    return Details((label, value) for label, value in rows if value)


def _figures(run: Run) -> Table:
    times = run.summary.token_s
    figures = (
        ("first\ntoken", words.seconds(run.summary.ttft_s)),
        ("prefill\ntok/s\n(mean)", words.rate(run.summary.prefill_tps)),
        ("decode\ntok/s\n(mean)", words.rate(run.summary.decode_tps)),
        ("per token\np50", words.seconds(times.p50 if times else None)),
        ("\np90", words.seconds(times.p90 if times else None)),
        ("\np99", words.seconds(times.p99 if times else None)),
        ("\nmax", words.seconds(times.max if times else None)),
        ("peak\nRSS", words.size(run.memory.max_rss_bytes if run.memory else None)),
        ("\nVMS", words.size(run.memory.max_vms_bytes if run.memory else None)),
    )
    table = Table(*(Column(heading=heading) for heading, _ in figures))
    table.add(*(Text(value, style="bold") for _, value in figures))
    return table


def _verdict(run: Run, *, short: bool) -> Text:
    if run.verdict.valid:
        return Text("valid", style="green")
    return Text("not valid" if short else run_words.verdict_line(run), style="red")
