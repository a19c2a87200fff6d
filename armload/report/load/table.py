"""The figures of a load, one row for each rate or concurrency, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.quantiles import FEWEST_INDEPENDENT, Quantile, percentile_name
from armload.analysis.load.records import Load
from armload.analysis.wording.loads import held_back, why_slow
from armload.core.values import counted, percentage
from armload.report import formatting as words
from armload.report.layout import Column, Entry, Prose, Table
from armload.report.load.loaded import LoadView, words_of_failed
from armload.serving.loads import LoadFolder

_OFFERED_OTHERWISE_FROM = 0.10
"""Difference of the drawn schedule's rate from the one that was asked for, as a share of it."""


def load_view(loaded: LoadView) -> Group:
    """Lay out the points, what is to be said of single ones, and what the service sustains."""
    points = [point.assessed for point in loaded.points]
    lines: list[RenderableType] = [_table(points, loaded.load.percentiles)]
    for point in points:
        lines += [Prose(each, "yellow") for each in remarks(point)]
    if finding := _finding(loaded):
        lines += [Text(""), Prose(finding)]
    return Group(*lines)


def loads_table(loads: Sequence[LoadFolder]) -> Table:
    """Lay out several loads, one a line; a load is found again by the end of its id."""
    table = Table(
        Column(heading="id"),
        Column(heading="when (UTC)"),
        Column(heading="service", below=""),
        Column(heading="model", below=""),
        Column(heading="rate or clients", is_prose=True),
        Column(heading="requests", is_number=True),
        Column(heading="result"),
    )
    for load in (kept.load for kept in loads):
        table.add(
            Text(load.id[-4:], style="bold"),
            load.started_utc[:16].replace("T", " "),
            load.board or urlsplit(load.url).netloc,
            load.model,
            _paces(load),
            str(sum(point.requests for point in load.points)),
            _result(load),
        )
    return table


def _paces(load: Load) -> str:
    if load.finds_rate:
        return f"search, {counted(len(load.points), 'rate')}"
    rates = {f"{point.rate:g}" for point in load.points if point.rate is not None}
    if rates:
        return f"{', '.join(sorted(rates, key=float))} /s"
    clients = sorted({point.concurrency or 0 for point in load.points})
    return f"{', '.join(map(str, clients))} client{'' if clients == [1] else 's'}"


def _result(load: Load) -> Text:
    if any(point.service_ended for point in load.points):
        return Text("service ended", style="red")
    if any(point.is_under_way for point in load.points):
        return Text("incomplete", style="yellow")
    if not load.finds_rate:
        return Text("ended", style="green")
    found = [point.rate for point in load.points if point.verdict == "sustained" and point.rate]
    return Text(f"{max(found):g}/s sustained" if found else "undecided", style="bold")


def _finding(loaded: LoadView) -> str:
    """Say what the service sustains; without objectives, why requests were slow at the end."""
    if loaded.capacity is not None:
        return loaded.capacity.sentence
    if not loaded.points:
        return ""
    why = why_slow(loaded.points[-1].assessed)
    return f"{loaded.points[-1].label}: {why}" if why else ""


def pace(point: AssessedPoint) -> str:
    """Name a point: ``0.5/s``, or the number of its clients."""
    return str(point.concurrency) if point.rate is None else f"{point.rate:g}/s"


def remarks(point: AssessedPoint) -> list[str]:
    """Say how requests failed, and why figures are not valid."""
    metrics, name = point.metrics, pace(point)
    where = f"At {name}" if point.rate is not None else f"With {counted(int(name), 'client')}"
    said = []
    if failed := words_of_failed(metrics.failed):
        said.append(f"{where}: {failed}.")
    said += [f"{where}, not valid: {each.sentence}" for each in metrics.findings]
    if held := held_back(metrics):
        said.append(f"{where}: {held}")
    steady = metrics.steady
    if steady is not None and steady.stability == "overloaded":
        said.append(
            f"{where}: overloaded. The backlog grows, and latencies depend on how long the load "
            f"lasts: {counted(steady.open_at_end, 'request')} had no answer when the last was sent."
        )
    elif steady is not None and metrics.independent < FEWEST_INDEPENDENT:
        said.append(
            f"{where}: no confidence intervals. Requests that queue together are alike, and these "
            f"{metrics.requests} are worth about {metrics.independent:.0f} independent ones; "
            f"{FEWEST_INDEPENDENT:.0f} are needed. Use a longer --duration."
        )
    offered = metrics.offered_per_s
    if point.rate and offered and abs(offered / point.rate - 1) >= _OFFERED_OTHERWISE_FROM:
        said.append(
            f"{where}: by chance, the {metrics.requests} requests came at {offered:.2g}/s. More "
            "requests, --arrivals constant, or another --seed come closer to that rate."
        )
    return said


def _table(points: Sequence[AssessedPoint], chosen: Sequence[float]) -> Table:
    has_objectives = any(point.metrics.goodput for point in points)
    is_open = any(point.rate is not None for point in points)
    table = Table(
        Column(heading="rate" if is_open else "clients", is_number=True),
        Column(heading="ok", is_number=True),
        Column(heading="req/s", is_number=True),
        *([Column(heading="goodput\nreq/s", is_number=True)] if has_objectives else []),
        Column(heading="output\ntok/s", is_number=True),
        *(
            Column(heading=f"{'' if place else latency}\n{name}", is_number=True)
            for latency, names in zip(
                ("first token", "per token", "end to end"), _names(chosen), strict=True
            )
            for place, name in enumerate(names)
        ),
    )
    for point in points:
        table.add(*_row(point, _names(chosen), has_objectives=has_objectives))
    return table


def _names(chosen: Sequence[float]) -> Sequence[Sequence[str]]:
    """Return the percentiles of each latency that a terminal shows."""
    if not chosen:
        return ("p50", "p99"), ("p50",), ("p50", "p99")
    return [[percentile_name(each) for each in chosen]] * 3


def _row(
    point: AssessedPoint, names: Sequence[Sequence[str]], *, has_objectives: bool
) -> list[str | Text]:
    metrics = point.metrics
    from_scheduled = metrics.from_scheduled
    return [
        Text(pace(point), style="bold"),
        f"{metrics.ok}/{metrics.ok + sum(metrics.failed.values())}",
        words.rate(metrics.requests_per_s),
        *([_goodput(metrics)] if has_objectives else []),
        words.rate(metrics.output_tokens_per_s),
        *(
            words.seconds(found.percentiles[name].value_s if found else None)
            for found, shown in zip(
                (from_scheduled.ttft, metrics.tpot, from_scheduled.e2e), names, strict=True
            )
            for name in shown
        ),
    ]


def _goodput(metrics: Metrics) -> Text:
    found = metrics.goodput
    if found is None:
        return Text(words.UNKNOWN)
    return Text(f"{words.rate(found.requests_per_s)} ({percentage(found.share)})", "bold")


def point_table(loaded: LoadView) -> Table:
    """Lay out the points for a page, the lowest rate first; times are from the scheduled time."""
    has_objectives = loaded.objectives is not None
    percentiles = [percentile_name(each) for each in loaded.load.percentiles or (50, 99)]
    pace_heading, unit = ("rate", "requests/s") if loaded.is_open else ("clients", "")
    table = Table(
        Column(heading=pace_heading, unit=unit, is_number=True),
        Column(heading="answered", unit="of those sent", is_number=True),
        Column(heading="independent", unit="observations", is_number=True),
        *([Column(heading="within SLO", is_number=True)] if has_objectives else []),
        Column(heading="throughput", unit="requests/s", is_number=True),
        Column(heading="output", unit="tokens/s", is_number=True),
        *(
            Column(heading=f"{latency} {percentile}", is_number=True)
            for latency in ("first token", "per token", "end to end")
            for percentile in percentiles
        ),
        Column(heading="verdict"),
    )
    for point in loaded.points:
        metrics = point.assessed.metrics
        state = "valid" if metrics.valid else "not valid"
        found = (metrics.from_scheduled.ttft, metrics.tpot, metrics.from_scheduled.e2e)
        share = metrics.goodput.share if metrics.goodput else 0.0
        table.add(
            Entry(text=f"{point.pace:g}", number=point.pace),
            Entry(text=f"{metrics.ok} / {metrics.requests}", number=metrics.ok),
            Entry(text=f"{metrics.independent:.0f}", number=metrics.independent),
            *([Entry(text=percentage(share), number=share)] if has_objectives else []),
            Entry(text=words.rate(metrics.requests_per_s), number=metrics.requests_per_s),
            Entry(text=words.rate(metrics.output_tokens_per_s), number=metrics.output_tokens_per_s),
            *(
                _time(each.percentiles[name] if each else None)
                for each in found
                for name in percentiles
            ),
            state,
            state=state,
        )
    return table


def _time(found: Quantile | None) -> Entry:
    if found is None:
        return Entry(text=words.UNKNOWN)
    interval = ""
    if found.low_s is not None and found.high_s is not None:
        interval = f"{words.seconds(found.low_s)} to {words.seconds(found.high_s)}"
    return Entry(text=words.seconds(found.value_s), number=found.value_s, range=interval)
