"""A load as a page that opens anywhere: figures, what made requests slow, and the settings."""

from __future__ import annotations

from collections import Counter

from armload.analysis.load.assessed import CAUSES, MOST_SLOW
from armload.analysis.load.capacity import why_slow
from armload.analysis.load.latency import e2e_s, tpot_s, ttft_s
from armload.core.columns import Column
from armload.core.errors import UsageError
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.layout import Entry, Table
from armload.report.load.loaded import LoadedPoint, LoadView, about_users, doubts_about
from armload.report.load.point_table import point_table
from armload.report.load.rates import latency_figure, throughput_figure
from armload.report.load.requests import KINDS, latency_distribution, parts_figure
from armload.report.load.timeline import timeline
from armload.report.pages import Page


def load_page(loaded: LoadView) -> Page:
    """Return the page of a load.

    Raises:
        UsageError: it has no requests.
    """
    load = loaded.load
    if not loaded.points:
        raise UsageError(f"{load.id} has no requests.", "Run the load again.")
    kind = {"closed": "closed-loop", "trace": "replayed"}.get(load.arrivals, load.arrivals)
    count = sum(len(point.observed.records) for point in loaded.points)
    intervals = "" if loaded.is_staged else ", with 95% confidence intervals"
    counted_from = f"Latencies count from the time at which a request was scheduled{intervals}."
    figures = (
        latency_figure(loaded),
        throughput_figure(loaded),
        timeline(loaded),
        parts_figure(loaded),
        latency_distribution(loaded),
    )
    slow, server = _slow_requests(loaded), _server(loaded)
    count_slow = sum(point.slow.causes.total() for point in loaded.points)
    del slow.rows[MOST_SLOW:]
    causes = Counter(row.state for row in slow.rows)
    own = "Those that took more than twice the time of their own prompt and tokens."
    if not count_slow:
        own = "None: every answer took less than twice the time of its own prompt and tokens."
    missed = "Those that missed an objective." if count_slow else "None."
    return Page(
        template="load/page.html.j2",
        headline=headline(loaded),
        version=load.armload,
        figures=[figure for figure in figures if figure],
        table=point_table(loaded),
        shown={
            "about": f"{kind} requests, {count} in all. {words.minute(load.started_utc)} UTC.",
            "capacity": loaded.capacity,
            "users": [
                f"{point.label}: {each}"
                for point in loaded.points
                for each in about_users(point.assessed.metrics)
            ],
            "doubts": [
                each
                for point in loaded.points
                for each in doubts_about(point.assessed, point.label)
            ],
            "about_results": " ".join([counted_from, *loaded.notes]),
            "about_slow": missed if loaded.objectives else own,
            "slow": slow,
            "causes": _causes(loaded),
            "reasons": [
                f"{point.label}: {why}"
                for point in loaded.points
                if (why := why_slow(point.assessed))
            ],
            "which_slow": f"The {MOST_SLOW} slowest" if count_slow > MOST_SLOW else "All of them",
            "filters": [(cause, cause, times) for cause, times in causes.items()],
            "boards": [(point.label, facts) for point in loaded.points if (facts := _board(point))],
            "server": server,
            "server_rows": counted(len(server.rows), "row"),
            "settings": _settings(loaded),
        },
    )


def headline(loaded: LoadView) -> str:
    """Say the result in one sentence."""
    where = f" on {loaded.load.board}" if loaded.load.board else ""
    model = loaded.load.model.removesuffix(".gguf") or "The service"
    if loaded.capacity is not None:
        return f"{model}{where} {loaded.capacity.headline}"
    best = max(point.assessed.metrics.requests_per_s for point in loaded.points)
    return f"{model}{where} answered at most {words.rate(best)} requests/s"


def _causes(loaded: LoadView) -> Table:
    """Return a row for each point: slow requests of all, and those of each cause."""
    causes = [
        cause for cause in CAUSES if any(point.assessed.slow.get(cause) for point in loaded.points)
    ]
    table = Table(
        Column(heading=_pace(loaded)),
        *(Column(heading=heading, is_number=True) for heading in ("slow", *causes)),
    )
    for point in loaded.points:
        slow = point.assessed.slow
        table.add(
            point.label,
            f"{sum(slow.values())} of {point.assessed.metrics.ok}",
            *(str(slow.get(cause, 0)) for cause in causes),
        )
    return table


def _slow_requests(loaded: LoadView) -> Table:
    """Return the slow requests of all points, the slowest first."""
    table = Table(
        Column(heading=_pace(loaded)),
        Column(heading="request", is_number=True),
        Column(heading="cause"),
        *(
            Column(heading=heading, is_number=True)
            for heading in ("due at", "first token", "per token", "end")
        ),
        Column(heading="largest parts"),
    )
    found = [(point, each) for point in loaded.points for each in point.slow.slowest]
    for point, each in sorted(found, key=lambda slow: -e2e_s(slow[1].request)):
        record = each.request
        parts = sorted(each.parts, key=lambda part: -part[1])[:3]
        table.add(
            point.label,
            Entry(text=str(record.number), number=record.number),
            each.cause,
            *(
                Entry(text=words.seconds(time_s), number=time_s)
                for time_s in (record.scheduled_s, ttft_s(record), tpot_s(record), e2e_s(record))
            ),
            ", ".join(f"{KINDS[name][0]} {words.seconds(s)}" for name, s in parts if s > 0),
            state=each.cause,
        )
    return table


def _pace(loaded: LoadView) -> str:
    return "rate" if loaded.is_open else "clients"


def _board(point: LoadedPoint) -> list[tuple[str, str]]:
    facts, energy = point.assessed.telemetry.facts(), point.assessed.energy
    if energy:
        each = words.joules_per(
            (energy.joules_per_request, "request"), (energy.joules_per_token, "output token")
        )
        facts += [*([("energy", each)] if each else []), ("power", energy.power)]
    return facts


def _server(loaded: LoadView) -> Table:
    table = Table(
        Column(heading=_pace(loaded)),
        Column(heading="metric"),
        *(
            Column(heading=heading, unit=unit, is_number=True)
            for heading, unit in (
                ("increase", "of counters"),
                ("per second", "of counters"),
                ("mean", "of gauges"),
                ("lowest", "of gauges"),
                ("highest", "of gauges"),
            )
        ),
    )
    for point in loaded.points:
        for each in point.assessed.server:
            figures = (each.increase, each.per_s, each.mean, each.low, each.high)
            table.add(
                Entry(text=point.label, number=point.pace),
                each.name,
                *(Entry(text="" if it is None else f"{it:,.6g}", number=it) for it in figures),
            )
    return table


def _settings(loaded: LoadView) -> list[tuple[str, str]]:
    load = loaded.load
    rows = [
        ("load", load.id),
        ("service", load.url),
        ("board", load.board),
        ("installed service", f"{load.installed}, not alone" if load.installed else ""),
        ("run", load.run),
        ("model", load.model),
        ("SLO", str(loaded.objectives or "none")),
        ("arrivals", f"{load.arrivals}, seed {load.seed}"),
        ("requests", load.requests_from),
        ("dialect", load.dialect),
        *(
            (name.replace("_", " "), str(value))
            for name, value in (load.service or {}).items()
            if value is not None
        ),
        *(
            (
                f"clock of the board at {point.label}",
                f"known within {1000 * point.observed.point.clock.error_s:.1f} ms",
            )
            for point in loaded.points
            if point.observed.point.clock
        ),
    ]
    return [(label, value) for label, value in rows if value]
