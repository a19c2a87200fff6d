"""Requests over time, above the slots that they took and the board's temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armload.analysis.load.latency import e2e_s, phases_of
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.telemetry import busy_slots
from armload.core.values import counted
from armload.report.drawing import WIDTH_PIXELS, Rows, columns_for, guide, source
from armload.report.figures.figure import Figure, drawn
from armload.report.load.loaded import LoadedPoint, LoadView

if TYPE_CHECKING:
    import altair as alt

    from armload.report.drawing import Chart

NAME, TITLE = "timeline", "Requests over time"

MOST_REQUESTS = 120
"""More bars nobody tells apart; those around the slowest request are shown."""

PHASES = {
    "client late": "#999999",
    "held back": "#009E73",
    "connecting": "#56B4E9",
    "queued": "#D55E00",
    "prompt": "#E69F00",
    "generating": "#0072B2",
    "failed": "#000000",
}

BARS_PIXELS, TRACK_PIXELS, BAR_PIXELS = 380, 70, 14
LABELS_PIXELS = 44
"""The width of every track's labels, so that their times stand above one another."""


def timeline(loaded: LoadView) -> Figure | None:
    """Draw the phases of the requests at the service's limit; none where none was sent."""
    point = loaded.telling
    shown = _around_the_slowest(point)
    if not shown:
        return None
    sentence = _sentence(point, shown)
    return _drawn(point, shown, sentence)


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


def _drawn(point: LoadedPoint, shown: list[EndedRequest], sentence: str) -> Figure:
    import altair as alt

    from_s = min(record.scheduled_s for record in shown)
    to_s = max(record.end_s for record in shown)
    domain = alt.Scale(domain=[from_s, to_s], nice=False)
    rows = [row for record in shown for row in _bars(record)]
    phases = [phase for phase in PHASES if any(row["phase"] == phase for row in rows)]
    height = min(BARS_PIXELS, BAR_PIXELS * len(shown))
    slots = [
        {"at": start_s, "until": end_s, "busy": count}
        for start_s, end_s, count in busy_slots(point.observed.records, from_s, to_s)
    ]
    warmth = _warmth(point, from_s, to_s)
    tracks: list[Any] = [
        _requests(phases, _time(domain), height),
        _slots(_time(domain, is_last=not warmth), point.assessed.telemetry.slots),
    ]
    if warmth:
        tracks.append(_temperature(_time(domain, is_last=True)))
    chart = alt.vconcat(*tracks, spacing=8)
    return drawn(
        NAME,
        TITLE,
        sentence,
        chart,
        {"requests": rows, "slots": slots, "board": warmth},
        legend_columns=columns_for(phases),
    )


def _time(scale: alt.Scale, *, is_last: bool = False) -> alt.X:
    import altair as alt

    axis = alt.Axis(labels=is_last, ticks=is_last, format=",.10~g")
    title = "time since the load began (s)" if is_last else None
    return alt.X("at:Q").title(title).scale(scale).axis(axis)


def _labels() -> alt.Axis:
    import altair as alt

    return alt.Axis(tickCount=3, minExtent=LABELS_PIXELS, maxExtent=LABELS_PIXELS, format=",d")


def _requests(phases: list[str], time: alt.X, height: int) -> alt.Chart:
    import altair as alt

    axis = alt.Axis(
        labelOverlap=True, minExtent=LABELS_PIXELS, maxExtent=LABELS_PIXELS, ticks=False
    )
    colours = [PHASES[phase] for phase in phases]
    chart: alt.Chart = (
        source("requests")
        .mark_bar()
        .encode(
            time,
            alt.X2("until:Q"),
            alt.Y("number:O").title("request").axis(axis).scale(paddingInner=0.15),
            alt.Color("phase:N").title(None).scale(domain=phases, range=colours),
            tooltip=[
                alt.Tooltip("number:O", title="request"),
                "phase:N",
                alt.Tooltip("seconds:Q", title="lasted (s)", format=",.3~g"),
            ],
        )
        .properties(width=WIDTH_PIXELS, height=height)
    )
    return chart


def _slots(time: alt.X, slots: int | None) -> Chart:
    import altair as alt

    busy = (
        source("slots")
        .mark_rect(opacity=0.6, color=PHASES["generating"])
        .encode(
            time,
            alt.X2("until:Q"),
            alt.Y("busy:Q").title("busy slots").scale(zero=True).axis(_labels()),
            alt.Y2(datum=0),
        )
    )
    layers = [busy] if slots is None else [busy, guide(source("slots"), alt.Y(datum=slots))]
    chart: Chart = alt.layer(*layers).properties(width=WIDTH_PIXELS, height=TRACK_PIXELS)
    return chart


def _temperature(time: alt.X) -> alt.Chart:
    import altair as alt

    chart: alt.Chart = (
        source("board")
        .mark_line(strokeWidth=2, color=PHASES["queued"])
        .encode(
            time,
            alt.Y("celsius:Q").title("°C").scale(zero=False).axis(_labels()),
        )
        .properties(width=WIDTH_PIXELS, height=TRACK_PIXELS)
    )
    return chart


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


def _warmth(point: LoadedPoint, from_s: float, to_s: float) -> Rows:
    zero_s = point.observed.board_at_zero_s
    return [
        {"at": sample.at_s - zero_s, "celsius": sample.celsius}
        for sample in point.observed.samples
        if sample.celsius is not None and from_s <= sample.at_s - zero_s <= to_s
    ]
