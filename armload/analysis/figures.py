"""The figures of a run, each declared once: for tables and exports, and for comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from armload.analysis.run import Run
from armload.analysis.stages import StageFigures
from armload.core.columns import Column
from armload.core.values import format_bytes, format_seconds, three_figures
from armload.engines.measurement import Measurement


def _of_tokens(name: str, run: Run) -> float | None:
    figure: float | None = getattr(run.summary.token_s, name, None)
    return figure


FIGURES: tuple[Column[Run], ...] = (
    Column(
        key="ttft_s",
        heading="first\ntoken",
        of=lambda run: run.summary.ttft_s,
        write=format_seconds,
        is_main=True,
    ),
    Column(
        key="prefill_tps",
        heading="prefill",
        unit="tok/s,\nmean",
        of=lambda run: run.summary.prefill_tps,
        write=three_figures,
        is_main=True,
    ),
    Column(
        key="decode_tps",
        heading="decode",
        unit="tok/s,\nmean",
        of=lambda run: run.summary.decode_tps,
        write=three_figures,
        has_interval=True,
        is_main=True,
        style="bold",
    ),
    Column(
        key="texts_per_s",
        heading="texts",
        unit="per s,\nmean",
        of=lambda run: run.summary.texts and run.summary.texts.texts_per_s,
        write=three_figures,
        is_main=True,
        is_optional=True,
        style="bold",
    ),
    Column(
        key="text_p50_s",
        heading="p50 per\ntext",
        of=lambda run: run.summary.texts and run.summary.texts.text_p50_s,
        write=format_seconds,
        is_optional=True,
    ),
    *(
        Column(
            key=f"token_{name}_s",
            heading=f"{name} per\ntoken",
            of=partial(_of_tokens, name),
            write=format_seconds,
            is_main=name == "p50",
        )
        for name in ("p50", "p90", "p99", "max")
    ),
    Column(
        key="max_rss_bytes",
        heading="peak\nRSS",
        of=lambda run: run.memory.max_rss_bytes if run.memory else None,
        write=format_bytes,
        is_main=True,
    ),
)
"""Of several runs, their median, unless a cell says otherwise."""


STAGE_FIGURES: tuple[Column[StageFigures], ...] = (
    Column(key="name", heading="stage", of=lambda each: each.name),
    Column(key="seconds", heading="time", of=lambda each: each.seconds, write=format_seconds),
    Column(key="tokens", heading="tokens", of=lambda each: each.tokens, is_number=True),
    Column(key="cpu_s", heading="CPU\ntime", of=lambda each: each.cpu_s, write=format_seconds),
    Column(
        key="read_bytes",
        heading="read from\nstorage",
        of=lambda each: each.read_bytes,
        write=format_bytes,
    ),
    Column(
        key="rss_bytes", heading="peak\nRSS", of=lambda each: each.rss_bytes, write=format_bytes
    ),
)
"""Of each part of a run in which the model saw or heard."""


@dataclass(frozen=True, kw_only=True)
class Measure(Column[Measurement]):
    """A figure of a measurement that comparisons compare: less of it is better.

    Attributes:
        of: in ``unit``; none where it was not measured.
        phrase: follows the figure in a sentence.
        less, more: what B is called that has less of it, or more.
    """

    phrase: str
    less: str = "faster"
    more: str = "slower"


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
