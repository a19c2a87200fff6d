"""A load as a page that opens anywhere: figures, what made requests slow, and the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from armload.analysis.load.assessed import CAUSES, MOST_SLOW, PointEnergy
from armload.analysis.load.capacity import why_slow
from armload.analysis.load.latency import e2e_s, tpot_s, ttft_s
from armload.analysis.load.telemetry import Telemetry
from armload.core.columns import Column
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.layout import Details, Entry, Table
from armload.report.load.loaded import LoadView, about_users, doubts_about
from armload.report.load.point_table import point_table
from armload.report.load.rates import latency_figure, throughput_figure
from armload.report.load.requests import KINDS, latency_distribution, parts_figure
from armload.report.load.table import notes
from armload.report.load.timeline import timeline
from armload.report.pages import (
    Block,
    Folded,
    Items,
    Notice,
    Page,
    Paragraph,
    Report,
    Section,
    SortableTable,
    figure_section,
    html,
    paragraphs,
    report_place,
    results_section,
    write_report,
)


def write_load_report(
    loaded: LoadView, folder: Path | None = None, progress: Progress | None = None
) -> Report:
    """Write the page and the pictures of a load into a folder.

    Args:
        folder: may exist; none for one of the load's name among the reports.

    Raises:
        UsageError: the load has no requests, or the folder is a file.
    """
    if not loaded.points:
        raise UsageError(f"{loaded.load.id} has no requests.", "Run the load again.")
    place = report_place(folder, loaded.load.id)
    return write_report(load_page(loaded), place, point_table(loaded), progress)


def load_page(loaded: LoadView) -> Page:
    """Return the page of a load with at least one point."""
    load = loaded.load
    kind = {"closed": "closed-loop", "trace": "replayed"}.get(load.arrivals, load.arrivals)
    count = sum(len(point.observed.records) for point in loaded.points)
    about = f"{kind} requests, {count} in all. {words.minute(load.started_utc)} UTC."
    users = tuple(
        f"{point.label}: {each}"
        for point in loaded.points
        for each in about_users(point.assessed.metrics)
    )
    figures = (
        latency_figure(loaded),
        throughput_figure(loaded),
        timeline(loaded),
        parts_figure(loaded),
        latency_distribution(loaded),
    )
    found = [each for point in loaded.points for each in doubts_about(point.assessed, point.label)]
    boards, server = tuple(_boards(loaded)), tuple(_server(loaded))
    return Page(
        headline=headline(loaded),
        header=tuple(paragraphs(about, style="soft")),
        lead=(
            *([Notice(lines=(loaded.capacity.sentence,))] if loaded.capacity else []),
            *([Items(items=users)] if users else []),
            *([Items(items=tuple(found), style="doubts doubtful")] if found else []),
        ),
        sections=(
            *(figure_section(figure) for figure in figures if figure),
            results_section(
                "All results",
                _about_results(loaded),
                point_table(loaded),
            ),
            Section(title="Slow requests", blocks=tuple(_slow(loaded))),
            *([Section(title="The board", blocks=boards)] if boards else []),
            *([Section(title="The server's own metrics", blocks=server)] if server else []),
            Section(title="Settings", blocks=(_settings(loaded),)),
        ),
        version=load.armload,
    )


def _about_results(loaded: LoadView) -> str:
    intervals = "" if loaded.is_staged else ", with 95% confidence intervals"
    about = f"Latencies count from the time at which a request was scheduled{intervals}."
    return " ".join([about, *notes(loaded)])


def headline(loaded: LoadView) -> str:
    """Say the result in one sentence."""
    where = f" on {loaded.load.board}" if loaded.load.board else ""
    model = loaded.load.model.removesuffix(".gguf") or "The service"
    if loaded.capacity is not None:
        return f"{model}{where} {loaded.capacity.headline}"
    best = max(point.assessed.metrics.requests_per_s for point in loaded.points)
    return f"{model}{where} answered at most {words.rate(best)} requests/s"


def _slow(loaded: LoadView) -> Iterator[Block]:
    requests = _slow_requests(loaded)
    count = sum(point.slow.causes.total() for point in loaded.points)
    if not count:
        than = ": every answer took less than twice the time of its own prompt and tokens"
        yield Paragraph(text=f"None{'' if loaded.objectives else than}.", style="result")
        return
    than = "Those that took more than twice the time of their own prompt and tokens"
    which = "Those that missed an objective" if loaded.objectives else than
    yield Paragraph(text=f"{which}.", style="result")
    yield _causes(loaded)
    for point in loaded.points:
        if why := why_slow(point.assessed):
            yield Paragraph(text=f"{point.label}: {why}")
    del requests.rows[MOST_SLOW:]
    causes = Counter(row.state for row in requests.rows)
    filters = tuple((cause, cause, times) for cause, times in causes.items())
    yield Folded(
        summary=f"The {MOST_SLOW} slowest" if count > MOST_SLOW else "All of them",
        blocks=(SortableTable(table=requests, name="slow", filters=filters),),
    )


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


def _boards(loaded: LoadView) -> Iterator[Block]:
    for point in loaded.points:
        energy = point.assessed.energy
        if facts := [
            *board_facts(point.assessed.telemetry),
            *(_energy(energy) if energy else []),
        ]:
            yield html("<h3>{}</h3>", point.label)
            yield Details(facts)


def _energy(found: PointEnergy) -> list[tuple[str, str]]:
    each = words.joules_per(
        (found.joules_per_request, "request"), (found.joules_per_token, "output token")
    )
    return [*([("energy", each)] if each else []), ("power", found.power)]


def _server(loaded: LoadView) -> Iterator[Block]:
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
    if table.rows:
        yield Paragraph(
            text="From /metrics, each second of a point, warm-up included.", style="soft"
        )
        summary = counted(len(table.rows), "row")
        yield Folded(summary=summary, blocks=(SortableTable(table=table, name="server"),))


def _settings(loaded: LoadView) -> Details:
    load = loaded.load
    rows = [
        ("load", load.id),
        ("service", load.url),
        ("board", load.board),
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
    return Details((label, value) for label, value in rows if value)


def board_facts(board: Telemetry) -> list[tuple[str, str]]:
    """Return what is known of the board at a point, with labels."""
    slots = ""
    if board.slots is not None and board.busy_slots is not None:
        slots = f"{board.busy_slots:.1f} of {board.slots} on average"
        if board.all_busy_share is not None:
            slots += f", all {board.all_busy_share:.0%} of the time"
    step = ""
    if board.decode_step_s is not None and board.sequences_per_step is not None:
        step = f"{words.seconds(board.decode_step_s)} (median), {board.sequences_per_step:.1f} "
        step += "requests each"
    facts = [
        ("busy slots", slots),
        ("decode step", step),
        ("steps with prompts", _share_of_time(board.prompt_share)),
        ("waiting for storage", _share_of_time(board.storage_share)),
        ("read from storage", words.size(board.read_bytes) if board.read_bytes else ""),
        ("below the highest frequency", _share_of_time(board.throttled_share)),
        ("highest temperature", "" if board.celsius_max is None else f"{board.celsius_max:.0f} °C"),
        (
            "least free memory",
            words.size(board.memory_available_min_bytes)
            if board.memory_available_min_bytes is not None
            else "",
        ),
    ]
    return [(label, fact) for label, fact in facts if fact]


def _share_of_time(share: float | None) -> str:
    return "" if share is None else f"{share:.0%} of the steps' time"
