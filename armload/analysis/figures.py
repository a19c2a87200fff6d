"""The figures of a run, each declared once: for tables and exports, and for comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from armload.analysis.run import Run
from armload.analysis.summary import TokenTimes
from armload.core.columns import Column
from armload.core.values import format_bytes, format_seconds, three_figures
from armload.engines.measurement import Measurement


def _of_tokens(figure: Callable[[TokenTimes], float]) -> Callable[[Run], float | None]:
    return lambda run: figure(run.summary.token_s) if run.summary.token_s else None


FIGURES: tuple[Column[Run], ...] = (
    Column(
        key="ttft_s",
        heading="first\ntoken",
        of=lambda run: run.summary.ttft_s,
        write=format_seconds,
        is_number=True,
        is_main=True,
    ),
    Column(
        key="prefill_tps",
        heading="prefill",
        unit="tok/s,\nmean",
        of=lambda run: run.summary.prefill_tps,
        write=three_figures,
        is_number=True,
        is_main=True,
    ),
    Column(
        key="decode_tps",
        heading="decode",
        unit="tok/s,\nmean",
        of=lambda run: run.summary.decode_tps,
        write=three_figures,
        is_number=True,
        has_interval=True,
        is_main=True,
        style="bold",
    ),
    Column(
        key="token_p50_s",
        heading="p50 per\ntoken",
        of=_of_tokens(lambda times: times.p50),
        write=format_seconds,
        is_number=True,
        is_main=True,
    ),
    Column(
        key="token_p90_s",
        heading="p90 per\ntoken",
        of=_of_tokens(lambda times: times.p90),
        write=format_seconds,
        is_number=True,
    ),
    Column(
        key="token_p99_s",
        heading="p99 per\ntoken",
        of=_of_tokens(lambda times: times.p99),
        write=format_seconds,
        is_number=True,
    ),
    Column(
        key="token_max_s",
        heading="max per\ntoken",
        of=_of_tokens(lambda times: times.max),
        write=format_seconds,
        is_number=True,
    ),
    Column(
        key="max_rss_bytes",
        heading="peak\nRSS",
        of=lambda run: run.memory.max_rss_bytes if run.memory else None,
        write=format_bytes,
        is_number=True,
        is_main=True,
    ),
)
"""Of several runs, their median, unless a cell says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Measure(Column[Measurement]):
    """A figure of a measurement that comparisons compare: less of it is better.

    Attributes:
        of: in ``unit``; none where it was not measured.
        phrase: follows the figure in a sentence.
    """

    phrase: str


def _inverse(tokens_per_s: float | None) -> float | None:
    return 1 / tokens_per_s if tokens_per_s else None


DECODE = Measure(
    key="decode",
    heading="decode, per token",
    phrase="per token",
    unit="s/token",
    of=lambda each: _inverse(each.decode_tps),
)
MEASURES = (
    DECODE,
    Measure(
        key="prefill",
        heading="prefill, per token",
        phrase="per prompt token",
        unit="s/token",
        of=lambda each: _inverse(each.prefill_tps),
    ),
    Measure(
        key="first token",
        heading="first token",
        phrase="to its first token",
        unit="s",
        of=lambda each: each.ttft_s,
    ),
)
"""The most important first."""
