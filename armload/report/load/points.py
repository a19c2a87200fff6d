"""The points of a load as a table that can be sorted."""

from __future__ import annotations

from armload.analysis.load.quantiles import Distribution, Quantile
from armload.core.values import percentage
from armload.report import formatting as words
from armload.report.cell_table import CellTable, PageColumn, TableEntry, TableRow
from armload.report.load.loaded import LoadedPoint, LoadView

_LATENCIES = ("first token", "per token", "end to end")


def point_table(loaded: LoadView) -> CellTable:
    """Lay out the points, the lowest rate first; times are from the scheduled time."""
    has_objectives = loaded.objectives is not None
    pace = ("rate", "requests/s") if loaded.is_open else ("clients", "")
    return CellTable(
        columns=(
            PageColumn(heading=pace[0], unit=pace[1], is_number=True),
            PageColumn(heading="answered", unit="of those sent", is_number=True),
            *([PageColumn(heading="within SLO", is_number=True)] if has_objectives else []),
            PageColumn(heading="throughput", unit="requests/s", is_number=True),
            PageColumn(heading="output", unit="tokens/s", is_number=True),
            *(
                PageColumn(heading=f"{latency} {percentile}", is_number=True)
                for latency in _LATENCIES
                for percentile in ("p50", "p99")
            ),
            PageColumn(heading="verdict"),
        ),
        rows=tuple(_row(point, has_objectives=has_objectives) for point in loaded.points),
    )


def _row(point: LoadedPoint, *, has_objectives: bool) -> TableRow:
    metrics = point.assessed.metrics
    state = "valid" if metrics.valid else "not valid"
    found = (metrics.from_scheduled.ttft, metrics.tpot, metrics.from_scheduled.e2e)
    latencies = [
        _time(quantile(each) if each else None)
        for each in found
        for quantile in (_median, _slowest)
    ]
    within = []
    if has_objectives:
        share = metrics.goodput.share if metrics.goodput else 0.0
        within = [TableEntry(text=percentage(share), number=share)]
    return TableRow(
        state=state,
        is_fastest=False,
        entries=(
            TableEntry(text=f"{point.pace:g}", number=point.pace),
            TableEntry(text=f"{metrics.ok} / {metrics.requests}", number=metrics.ok),
            *within,
            TableEntry(text=words.rate(metrics.requests_per_s), number=metrics.requests_per_s),
            TableEntry(
                text=words.rate(metrics.output_tokens_per_s), number=metrics.output_tokens_per_s
            ),
            *latencies,
            TableEntry(text=state),
        ),
    )


def _median(found: Distribution) -> Quantile:
    return found.p50


def _slowest(found: Distribution) -> Quantile:
    return found.p99


def _time(found: Quantile | None) -> TableEntry:
    if found is None:
        return TableEntry(text=words.UNKNOWN)
    interval = ""
    if found.low_s is not None and found.high_s is not None:
        interval = f"{words.seconds(found.low_s)} to {words.seconds(found.high_s)}"
    return TableEntry(text=words.seconds(found.value_s), number=found.value_s, range=interval)
