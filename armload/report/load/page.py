"""A load as a page that opens anywhere: figures, what made requests slow, and the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from armload.analysis.load.assessed import CAUSES, Cause
from armload.analysis.load.latency import e2e_s, tpot_s, ttft_s
from armload.analysis.load.telemetry import Telemetry
from armload.analysis.wording.loads import why_slow
from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import percentage
from armload.report import formatting as words
from armload.report.figures.figure import Figure
from armload.report.load.distributions import latency_distribution
from armload.report.load.loaded import LoadedPoint, LoadView, words_of_failed
from armload.report.load.parts import KINDS, parts_figure
from armload.report.load.points import point_table
from armload.report.load.rates import latency_figure, throughput_figure
from armload.report.load.timeline import timeline
from armload.report.pages import PAGE_NAME, Report, render, report_place, write_report

TEMPLATE_NAME = "load/page.html.j2"
MOST_SLOW = 200
"""Slow requests in the table of a point, the slowest first."""


@dataclass(frozen=True, kw_only=True)
class SlowRow:
    """One slow request, as the table shows it."""

    point: str
    number: int
    cause: str
    scheduled_s: float
    first_s: float
    token_s: float | None
    end_s: float
    parts: str


def write_page(loaded: LoadView, folder: Path) -> Path:
    """Write a load's page into its folder, and return its path."""
    page = folder / PAGE_NAME
    write_whole(page, render_page(loaded, figures_of(loaded)).encode())
    return page


def figures_of(loaded: LoadView) -> list[Figure]:
    """Return the figures in the order in which a person reads them."""
    drawn = (
        latency_figure(loaded),
        throughput_figure(loaded),
        timeline(loaded),
        parts_figure(loaded),
        latency_distribution(loaded),
    )
    return [figure for figure in drawn if figure is not None]


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
    figures = figures_of(loaded)
    return write_report(
        *(place, figures, lambda: render_page(loaded, figures), progress),
        headline=headline(loaded),
        table=point_table(loaded),
    )


def render_page(loaded: LoadView, figures: Sequence[Figure]) -> str:
    """Return the page of a load with at least one point."""
    slow = slow_rows(loaded)
    values = {
        "version": loaded.load.armload,
        "headline": headline(loaded),
        "load": loaded.load,
        "loaded": loaded,
        "doubts": doubts(loaded.points),
        "figures": figures,
        "table": point_table(loaded),
        "causes": cause_table(loaded),
        "shown_causes": shown_causes(loaded),
        "slow": slow[:MOST_SLOW],
        "slow_count": len(slow),
        "filters": list(Counter(row.cause for row in slow[:MOST_SLOW]).items()),
        "boards": [(point.label, board_facts(point.assessed.telemetry)) for point in loaded.points],
    }
    return render(TEMPLATE_NAME, values, {figure.name: figure.specification for figure in figures})


def headline(loaded: LoadView) -> str:
    """Say the result in one sentence."""
    where = f" on {loaded.load.board}" if loaded.load.board else ""
    model = loaded.load.model.removesuffix(".gguf") or "The service"
    if loaded.capacity is not None:
        sustained = [
            point.label
            for point in loaded.points
            if point.pace == (loaded.capacity.rate or loaded.capacity.concurrency)
        ]
        if sustained:
            return f"{model}{where} sustains {sustained[0]} within the SLO"
        return f"{model}{where} does not sustain {loaded.points[0].label} within the SLO"
    best = max(point.assessed.metrics.requests_per_s for point in loaded.points)
    return f"{model}{where} answered at most {words.rate(best)} requests/s"


def doubts(points: Sequence[LoadedPoint]) -> list[str]:
    """Say which figures are not valid, and what failed."""
    said = []
    for point in points:
        metrics = point.assessed.metrics
        said += [f"{point.label}, not valid: {each.sentence}" for each in metrics.findings]
        if failed := words_of_failed(metrics.failed):
            said.append(f"{point.label}: {failed}.")
    return said


def cause_table(loaded: LoadView) -> list[tuple[str, str, list[str], str]]:
    """Return a row for each point: slow requests of all, those of each cause, and the main one.

    The causes are those that any point has, in the order of ``CAUSES``.
    """
    causes = shown_causes(loaded)
    return [
        (
            point.label,
            f"{sum(point.assessed.slow.values())} of {point.assessed.metrics.ok}",
            [str(point.assessed.slow.get(cause, 0)) for cause in causes],
            why_slow(point.assessed),
        )
        for point in loaded.points
    ]


def shown_causes(loaded: LoadView) -> list[Cause]:
    """Return the causes that any point of a load has."""
    return [
        cause for cause in CAUSES if any(point.assessed.slow.get(cause) for point in loaded.points)
    ]


def slow_rows(loaded: LoadView) -> list[SlowRow]:
    """Return the slow requests of all points, the slowest first."""
    rows = []
    for point in loaded.points:
        records = {record.number: record for record in point.observed.records}
        for each in point.slow:
            record = records[each.number]
            parts = sorted(each.parts, key=lambda part: -part[1])[:3]
            rows.append(
                SlowRow(
                    point=point.label,
                    number=each.number,
                    cause=each.cause,
                    scheduled_s=record.scheduled_s,
                    first_s=ttft_s(record),
                    token_s=tpot_s(record),
                    end_s=e2e_s(record),
                    parts=", ".join(
                        f"{KINDS[name][0]} {words.seconds(seconds)}"
                        for name, seconds in parts
                        if seconds > 0
                    ),
                )
            )
    return sorted(rows, key=lambda row: -row.end_s)


def board_facts(board: Telemetry) -> list[tuple[str, str]]:
    """Return what is known of the board at a point, with labels."""
    slots = ""
    if board.slots is not None and board.busy_slots is not None:
        slots = f"{board.busy_slots:.1f} of {board.slots} on average"
        if board.all_busy_share is not None:
            slots += f", all {percentage(board.all_busy_share)} of the time"
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
    return "" if share is None else f"{percentage(share)} of the steps' time"
