"""Requests over time, above the slots that they took and the board's temperature."""

from __future__ import annotations

from armload.analysis.load.latency import e2e_s, phases_of
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.telemetry import busy_slots
from armload.core.values import counted
from armload.report.chart import (
    COUNT,
    Channel,
    Plot,
    axis,
    channel,
    guide,
    kinds_key,
    layered,
)
from armload.report.drawing import WIDTH_PIXELS, Rows
from armload.report.figures.figure import Figure, drawn
from armload.report.load.loaded import LoadedPoint, LoadView

NAME, TITLE = "timeline", "Requests over time"

MOST_REQUESTS = 120
"""More bars nobody tells apart; those around the slowest request are shown."""

PHASES = {
    "client late": ("#999999",),
    "held back": ("#009E73",),
    "connecting": ("#56B4E9",),
    "queued": ("#D55E00",),
    "prompt": ("#E69F00",),
    "generating": ("#0072B2",),
    "failed": ("#000000",),
}

BARS_PIXELS, TRACK_PIXELS, BAR_PIXELS = 380, 70, 14
_LABELS = {"minExtent": 44, "maxExtent": 44}
"""The width of every track's labels, so that their times stand above one another."""


def timeline(loaded: LoadView) -> Figure | None:
    """Draw the phases of the requests at the service's limit; none where none was sent."""
    point = loaded.telling
    shown = _around_the_slowest(point)
    if not shown:
        return None
    sentence = _sentence(point, shown)
    from_s = min(record.scheduled_s for record in shown)
    to_s = max(record.end_s for record in shown)
    rows = [row for record in shown for row in _bars(record)]
    height = min(BARS_PIXELS, BAR_PIXELS * len(shown))
    slots = [
        {"at": start_s, "until": end_s, "busy": count}
        for start_s, end_s, count in busy_slots(point.observed.records, from_s, to_s)
    ]
    zero_s = point.observed.board_at_zero_s
    warmth = [
        {"at": sample.at_s - zero_s, "celsius": sample.celsius}
        for sample in point.observed.samples
        if sample.celsius is not None and from_s <= sample.at_s - zero_s <= to_s
    ]
    key = kinds_key("phase", PHASES, rows)
    times = [_time(from_s, to_s, is_last=is_last) for is_last in (False, not warmth, True)]
    requests = Plot(
        rows="requests",
        x=times[0],
        y=channel(
            "number:O",
            {
                "title": "request",
                "scale": {"paddingInner": 0.15},
                "axis": {"labelOverlap": True, "ticks": False, **_LABELS},
            },
        ),
        key=key,
    ).marks(
        "bar",
        {},
        {"x2": {"field": "until"}},
        said=(
            ("number:O", "request"),
            ("phase:N", "phase"),
            ("seconds:Q", "lasted (s)", ",.3~g"),
        ),
    )
    busy = Plot(rows="slots", x=times[1], y=_up("busy", "busy slots", zero=True)).marks(
        "rect",
        {"opacity": 0.6, "color": PHASES["generating"][0]},
        {"x2": {"field": "until"}, "y2": {"datum": 0}},
    )
    most = point.assessed.telemetry.slots
    limit = [] if most is None else [guide("slots", {"y": {"datum": most}})]
    tracks = [
        layered([requests], WIDTH_PIXELS, height),
        layered([busy, *limit], WIDTH_PIXELS, TRACK_PIXELS),
    ]
    if warmth:
        celsius = Plot(rows="board", x=times[2], y=_up("celsius", "°C", zero=False)).marks(
            "line", {"strokeWidth": 2, "color": PHASES["queued"][0]}
        )
        tracks.append(layered([celsius], WIDTH_PIXELS, TRACK_PIXELS))
    return drawn(
        NAME,
        TITLE,
        sentence,
        {"vconcat": tracks, "spacing": 8},
        {"requests": rows, "slots": slots, "board": warmth},
        key=key,
    )


def _around_the_slowest(point: LoadedPoint) -> list[EndedRequest]:
    sent = [record for record in point.observed.records if phases_of(record) is not None]
    if not sent:
        return []
    slowest = max(range(len(sent)), key=lambda number: e2e_s(sent[number]))
    first = max(0, min(slowest - MOST_REQUESTS // 2, len(sent) - MOST_REQUESTS))
    return sent[first : first + MOST_REQUESTS]


def _sentence(point: LoadedPoint, shown: list[EndedRequest]) -> str:
    every = len(point.observed.records)
    which = counted(every, "request")
    if len(shown) < every:
        which = f"{len(shown)} of {every} requests, around the slowest"
    board = point.assessed.telemetry
    said = f"At {point.label}" if point.assessed.rate is not None else f"With {point.label}"
    said += f": {which}."
    if board.busy_slots is not None and board.slots is not None:
        said += f" On average {board.busy_slots:.1f} of {counted(board.slots, 'slot')} were busy."
    if board.celsius_max is not None:
        said += f" The board reached {board.celsius_max:.0f} °C."
    return said


def _time(from_s: float, to_s: float, *, is_last: bool) -> Channel:
    title = "time since the load began (s)" if is_last else None
    time = axis("at", title, domain=(from_s, to_s), nice=False)
    return {**time, "axis": {**time["axis"], "labels": is_last, "ticks": is_last}}


def _up(column: str, title: str, *, zero: bool) -> Channel:
    channel = axis(column, title, zero=zero, ticks=3, form=COUNT)
    return {**channel, "axis": {**channel["axis"], **_LABELS}}


def _bars(record: EndedRequest) -> Rows:
    phases = phases_of(record)
    if phases is None:
        return []
    slot_s = phases.end_s if phases.slot_s is None else phases.slot_s
    first_s = phases.end_s if phases.first_s is None else phases.first_s
    spans = [
        ("client late", phases.scheduled_s, phases.begun_s - phases.held_s),
        ("held back", phases.begun_s - phases.held_s, phases.begun_s),
        ("connecting", phases.begun_s, phases.sent_s),
        ("queued", phases.sent_s, slot_s),
    ]
    if record.outcome != "ok":
        spans.append(("failed", slot_s, phases.end_s))
    else:
        spans += [("prompt", slot_s, first_s), ("generating", first_s, phases.end_s)]
    return [
        {
            "number": record.number,
            "phase": phase,
            "at": start_s,
            "until": end_s,
            "seconds": end_s - start_s,
        }
        for phase, start_s, end_s in spans
        if end_s > start_s
    ]
