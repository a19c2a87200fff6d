"""The figures of a load, one row for each rate or concurrency, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.quantiles import FEWEST_INDEPENDENT, Distribution, Quantile
from armload.analysis.wording.loads import why_slow
from armload.analysis.wording.users import about_users, no_steady_state
from armload.core.values import counted, percentage
from armload.report import formatting as words
from armload.report.layout import Column, Entry, Prose, Table
from armload.report.load.loaded import LoadView, words_of_failed

_OFFERED_OTHERWISE_FROM = 0.10
"""Difference of the drawn schedule's rate from the one that was asked for, as a share of it."""


def load_view(loaded: LoadView) -> Group:
    """Lay out the points, what is to be said of single ones, and what the service sustains."""
    points = [point.assessed for point in loaded.points]
    lines: list[RenderableType] = [_table(points)]
    for point in points:
        lines += [Prose(f"{_where(point)}: {each}") for each in about_users(point.metrics)]
        lines += [Prose(each, "yellow") for each in remarks(point)]
    if finding := _finding(loaded):
        lines += [Text(""), Prose(finding)]
    return Group(*lines)


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
    metrics, where = point.metrics, _where(point)
    said = []
    if failed := words_of_failed(metrics.failed):
        said.append(f"{where}: {failed}.")
    said += [f"{where}, not valid: {each.sentence}" for each in metrics.findings]
    steady = metrics.steady
    if steady is not None and steady.stability == "overloaded":
        said.append(
            f"{where}: overloaded. The backlog grows, and latencies depend on how long the load "
            f"lasts: {counted(steady.open_at_end, 'request')} had no answer when the last was sent."
        )
    elif metrics.conversations is not None and (why := no_steady_state(metrics.conversations)):
        said.append(f"{where}: {why}")
    elif steady is not None and metrics.independent < FEWEST_INDEPENDENT:
        said.append(
            f"{where}: no confidence intervals. Requests that queue together are alike"
            f"{', as are turns of a conversation' if metrics.conversations else ''}, and these "
            f"{metrics.requests} are worth about {metrics.independent:.0f} independent ones; "
            f"{FEWEST_INDEPENDENT:.0f} are needed. Use a longer --duration."
        )
    held = metrics.conversations
    offered = metrics.offered_per_s if held is None else held.begun_per_s
    if point.rate and offered and abs(offered / point.rate - 1) >= _OFFERED_OTHERWISE_FROM:
        said.append(
            f"{where}: by chance, the {_number(metrics)} came at {offered:.2g}/s. More of them, "
            "--arrivals constant, or another --seed come closer to that rate."
        )
    return said


def _where(point: AssessedPoint) -> str:
    name = pace(point)
    return f"At {name}" if point.rate is not None else f"With {counted(int(name), 'client')}"


def _table(points: Sequence[AssessedPoint]) -> Table:
    has_objectives = any(point.metrics.goodput for point in points)
    is_open = any(point.rate is not None for point in points)
    table = Table(
        Column(heading="rate" if is_open else "clients", is_number=True),
        Column(heading="ok", is_number=True),
        Column(heading="req/s", is_number=True),
        *([Column(heading="goodput\nreq/s", is_number=True)] if has_objectives else []),
        Column(heading="output\ntok/s", is_number=True),
        Column(heading="first token\np50", is_number=True),
        Column(heading="\np99", is_number=True),
        Column(heading="per token\np50", is_number=True),
        Column(heading="end to end\np50", is_number=True),
        Column(heading="\np99", is_number=True),
    )
    for point in points:
        table.add(*_row(point, has_objectives=has_objectives))
    return table


def _row(point: AssessedPoint, *, has_objectives: bool) -> list[str | Text]:
    metrics = point.metrics
    from_scheduled = metrics.from_scheduled
    return [
        Text(pace(point), style="bold"),
        f"{metrics.ok}/{metrics.ok + sum(metrics.failed.values())}",
        words.rate(metrics.requests_per_s),
        *([_goodput(metrics)] if has_objectives else []),
        words.rate(metrics.output_tokens_per_s),
        *_middle_and_slow(from_scheduled.ttft),
        _shown(metrics.tpot.p50 if metrics.tpot else None),
        *_middle_and_slow(from_scheduled.e2e),
    ]


def _goodput(metrics: Metrics) -> Text:
    found = metrics.goodput
    if found is None:
        return Text(words.UNKNOWN)
    return Text(f"{words.rate(found.requests_per_s)} ({percentage(found.share)})", "bold")


def _middle_and_slow(found: Distribution | None) -> list[str]:
    return [_shown(found.p50 if found else None), _shown(found.p99 if found else None)]


def _shown(quantile: Quantile | None) -> str:
    return words.seconds(None if quantile is None else quantile.value_s)


def _number(metrics: Metrics) -> str:
    if metrics.conversations is not None:
        return counted(metrics.conversations.begun, "conversation")
    return counted(metrics.requests, "request")


def point_table(loaded: LoadView) -> Table:
    """Lay out the points for a page, the lowest rate first; times are from the scheduled time."""
    has_objectives = loaded.objectives is not None
    pace_heading, unit = ("rate", f"{loaded.unit}/s") if loaded.is_open else ("clients", "")
    of_users = _columns_of_users(loaded)
    table = Table(
        Column(heading=pace_heading, unit=unit, is_number=True),
        Column(heading="answered", unit="of those sent", is_number=True),
        Column(heading="independent", unit="observations", is_number=True),
        *of_users,
        *([Column(heading="within SLO", is_number=True)] if has_objectives else []),
        Column(heading="throughput", unit="requests/s", is_number=True),
        Column(heading="output", unit="tokens/s", is_number=True),
        *(
            Column(heading=f"{latency} {percentile}", is_number=True)
            for latency in ("first token", "per token", "end to end")
            for percentile in ("p50", "p99")
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
            *(of_users[column](metrics) for column in of_users),
            *([Entry(text=percentage(share), number=share)] if has_objectives else []),
            Entry(text=words.rate(metrics.requests_per_s), number=metrics.requests_per_s),
            Entry(text=words.rate(metrics.output_tokens_per_s), number=metrics.output_tokens_per_s),
            *(
                _time(quantile)
                for each in found
                for quantile in ((each.p50, each.p99) if each else (None, None))
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
    return Entry(text=percentage(reuse.hit_rate), number=reuse.hit_rate)


def _time(found: Quantile | None) -> Entry:
    if found is None:
        return Entry(text=words.UNKNOWN)
    interval = ""
    if found.low_s is not None and found.high_s is not None:
        interval = f"{words.seconds(found.low_s)} to {words.seconds(found.high_s)}"
    return Entry(text=words.seconds(found.value_s), number=found.value_s, range=interval)
