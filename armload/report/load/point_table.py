"""The figures of a load: one row for each rate, concurrency or stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.quantiles import SHOWN, Distribution, percentile_name
from armload.core.columns import Column, Estimate, main_ones
from armload.report import formatting as words
from armload.report.layout import Entry, Table
from armload.report.load.loaded import LoadView


def _complete(metrics: Metrics) -> Entry | None:
    held = metrics.conversations
    if held is None:
        return None
    complete = held.ended.get("complete", 0)
    return Entry(text=f"{complete} / {held.begun}", number=complete)


_METRICS: tuple[Column[Metrics], ...] = (
    Column(
        heading="answered",
        unit="of sent",
        of=lambda metrics: Entry(text=f"{metrics.ok}/{metrics.requests}", number=metrics.ok),
        is_number=True,
        is_main=True,
    ),
    Column(
        heading="independent",
        unit="observations",
        of=lambda metrics: metrics.independent,
        write="{:.0f}".format,
    ),
    Column(
        heading="conversations", unit="complete", of=_complete, is_number=True, is_optional=True
    ),
    Column(
        heading="abandoned",
        unit="requests",
        of=lambda metrics: metrics.abandoned and metrics.abandoned.requests,
        is_number=True,
        is_optional=True,
    ),
    Column(
        heading="cached",
        unit="of prompt tokens",
        of=lambda metrics: metrics.prompt_reuse and metrics.prompt_reuse.hit_rate,
        write="{:.0%}".format,
        is_optional=True,
    ),
    Column(
        heading="throughput",
        unit="req/s",
        of=lambda metrics: metrics.requests_per_s,
        write=words.rate,
        is_main=True,
    ),
    Column(
        heading="goodput",
        unit="req/s",
        of=lambda metrics: metrics.goodput and metrics.goodput.requests_per_s,
        write=words.rate,
        is_main=True,
        is_optional=True,
        style="bold",
    ),
    Column(
        heading="within\nSLO",
        of=lambda metrics: metrics.goodput and metrics.goodput.share,
        write="{:.0%}".format,
        is_main=True,
        is_optional=True,
    ),
)
_LATENCIES: dict[str, Callable[[Metrics], Distribution | None]] = {
    "first token": lambda metrics: metrics.from_scheduled.ttft,
    "per token": lambda metrics: metrics.tpot,
    "end to end": lambda metrics: metrics.from_scheduled.e2e,
}
_OF_EMBEDDINGS = {"answer": _LATENCIES["end to end"]}
_ENERGY: tuple[Column[AssessedPoint], ...] = (
    Column(
        heading="energy",
        unit="J/request",
        of=lambda point: point.energy and point.energy.joules_per_request,
        write=words.joules,
        is_main=True,
        is_optional=True,
    ),
    Column(
        heading="energy",
        unit="J/token",
        of=lambda point: point.energy and point.energy.joules_per_token,
        write=words.joules,
        is_main=True,
        is_optional=True,
    ),
)


def point_table(loaded: LoadView, *, is_main: bool = False) -> Table:
    """Lay out the points, the lowest rate first; times are from the scheduled time.

    Args:
        is_main: for a terminal, which has no room for all columns.
    """
    pace, unit = ("rate", f"{loaded.unit}/s") if loaded.is_open else ("clients", "")
    metrics = (*_METRICS, *_of_answers(loaded))
    columns: tuple[Column[AssessedPoint], ...] = (
        Column(heading=pace, unit=unit, of=_pace, is_number=True, is_main=True, style="bold"),
        *(each.through(lambda point: point.metrics) for each in metrics),
        *_ENERGY,
        Column(heading="verdict", of=_verdict),
    )
    points = [point.assessed for point in loaded.points]
    return Table.of(main_ones(columns) if is_main else columns, points, state=_verdict)


def _of_answers(loaded: LoadView) -> Iterator[Column[Metrics]]:
    of_embeddings = loaded.is_of_embeddings
    yield Column(
        heading="input" if of_embeddings else "output",
        unit="tok/s",
        of=lambda metrics: (
            metrics.prompt_tokens_per_s if of_embeddings else metrics.output_tokens_per_s
        ),
        write=words.rate,
        is_main=True,
    )
    chosen = loaded.load.percentiles
    names = [percentile_name(each) for each in chosen or SHOWN]
    for latency, found in (_OF_EMBEDDINGS if of_embeddings else _LATENCIES).items():
        for name in names:
            yield Column(
                heading=f"{latency}\n{name}",
                of=partial(_percentile, found, name),
                write=words.seconds,
                is_main=bool(chosen) or name == names[0] or latency != "per token",
            )


def _percentile(
    found: Callable[[Metrics], Distribution | None], name: str, metrics: Metrics
) -> Estimate | float | None:
    times = found(metrics)
    if times is None:
        return None
    each = times.percentiles[name]
    if each.low_s is None or each.high_s is None:
        return each.value_s
    return Estimate(value=each.value_s, low=each.low_s, high=each.high_s)


def _pace(point: AssessedPoint) -> Entry:
    stage = point.stage
    name = f"{stage.rates} ({stage.span})" if stage else f"{point.pace:g}"
    return Entry(text=name, number=point.pace)


def _verdict(point: AssessedPoint) -> str:
    return "valid" if point.metrics.valid else "not valid"
