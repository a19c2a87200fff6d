"""The figures of a load for a page: one row for each rate, concurrency or stage."""

from __future__ import annotations

from collections.abc import Callable

from armload.analysis.load.metrics import Metrics
from armload.analysis.load.quantiles import SHOWN, Quantile, percentile_name
from armload.report import formatting as words
from armload.report.layout import Column, Entry, Table
from armload.report.load.loaded import LoadView


def point_table(loaded: LoadView) -> Table:
    """Lay out the points for a page, the lowest rate first; times are from the scheduled time."""
    has_objectives = loaded.objectives is not None
    has_energy = loaded.has_energy
    percentiles = [percentile_name(each) for each in loaded.load.percentiles or SHOWN]
    pace_heading, unit = ("rate", f"{loaded.unit}/s") if loaded.is_open else ("clients", "")
    of_embeddings = loaded.is_of_embeddings
    latencies = ("embedding",) if of_embeddings else ("first token", "per token", "end to end")
    of_users = _columns_of_users(loaded)
    table = Table(
        Column(heading=pace_heading, unit=unit, is_number=True),
        Column(heading="answered", unit="of those sent", is_number=True),
        Column(heading="independent", unit="observations", is_number=True),
        *of_users,
        *([Column(heading="within SLO", is_number=True)] if has_objectives else []),
        Column(heading="throughput", unit="requests/s", is_number=True),
        Column(heading="input" if of_embeddings else "output", unit="tokens/s", is_number=True),
        *(
            Column(heading=f"{latency} {percentile}", is_number=True)
            for latency in latencies
            for percentile in percentiles
        ),
        *([Column(heading="energy", unit="J/request", is_number=True)] if has_energy else []),
        *([Column(heading="energy", unit="J/output token", is_number=True)] if has_energy else []),
        Column(heading="verdict"),
    )
    for point in loaded.points:
        metrics = point.assessed.metrics
        state = "valid" if metrics.valid else "not valid"
        found = [metrics.from_scheduled.e2e]
        tokens_per_s = metrics.prompt_tokens_per_s
        if not of_embeddings:
            found[:0] = [metrics.from_scheduled.ttft, metrics.tpot]
            tokens_per_s = metrics.output_tokens_per_s
        stage = point.assessed.stage
        name = f"{stage.rates} ({stage.span})" if stage else f"{point.pace:g}"
        share = metrics.goodput.share if metrics.goodput else 0.0
        table.add(
            Entry(text=name, number=point.pace),
            Entry(text=f"{metrics.ok} / {metrics.requests}", number=metrics.ok),
            Entry(text=f"{metrics.independent:.0f}", number=metrics.independent),
            *(of_users[column](metrics) for column in of_users),
            *([Entry(text=f"{share:.0%}", number=share)] if has_objectives else []),
            Entry(text=words.rate(metrics.requests_per_s), number=metrics.requests_per_s),
            Entry(text=words.rate(tokens_per_s), number=tokens_per_s),
            *(
                _time(each.percentiles[name] if each else None)
                for each in found
                for name in percentiles
            ),
            *(
                Entry(text=words.joules(each), number=each)
                for each in (point.assessed.joules if has_energy else ())
            ),
            state,
            state=state,
        )
    return table


def _columns_of_users(loaded: LoadView) -> dict[Column, Callable[[Metrics], Entry]]:
    """Return the columns of what users did at any point."""
    every = [point.assessed.metrics for point in loaded.points]
    columns: dict[Column, Callable[[Metrics], Entry]] = {}
    if any(metrics.conversations for metrics in every):
        columns[Column(heading="conversations", unit="complete", is_number=True)] = _complete
    if any(metrics.abandoned for metrics in every):
        columns[Column(heading="abandoned", unit="requests", is_number=True)] = _abandoned
    if any(metrics.prompt_reuse and metrics.prompt_reuse.cached_tokens for metrics in every):
        columns[Column(heading="cached", unit="of prompt tokens", is_number=True)] = _cached
    return columns


def _complete(metrics: Metrics) -> Entry:
    held = metrics.conversations
    if held is None:
        return Entry(text=words.UNKNOWN)
    complete = held.ended.get("complete", 0)
    return Entry(text=f"{complete} / {held.begun}", number=complete)


def _abandoned(metrics: Metrics) -> Entry:
    count = metrics.abandoned.requests if metrics.abandoned else 0
    return Entry(text=str(count), number=count)


def _cached(metrics: Metrics) -> Entry:
    reuse = metrics.prompt_reuse
    if reuse is None:
        return Entry(text=words.UNKNOWN)
    return Entry(text=f"{reuse.hit_rate:.0%}", number=reuse.hit_rate)


def _time(found: Quantile | None) -> Entry:
    if found is None:
        return Entry(text=words.UNKNOWN)
    interval = ""
    if found.low_s is not None and found.high_s is not None:
        interval = f"{words.seconds(found.low_s)} to {words.seconds(found.high_s)}"
    return Entry(text=words.seconds(found.value_s), number=found.value_s, range=interval)
