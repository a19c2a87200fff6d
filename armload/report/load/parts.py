"""Where the time of a request goes, at each rate."""

from __future__ import annotations

from statistics import fmean

from armload.analysis.load.parts import Parts
from armload.report import formatting as words
from armload.report.drawing import WIDTH_PIXELS, Rows, columns_for, source
from armload.report.figures.figure import Figure, drawn, time_unit
from armload.report.load.loaded import LoadedPoint, LoadView, labels

NAME, TITLE = "parts", "Where the time goes"

KINDS: dict[str, tuple[str, str]] = {
    "own_s": ("own prompt and tokens", "#0072B2"),
    "sharing_s": ("shared steps", "#56B4E9"),
    "blocked_s": ("prompts of others", "#E69F00"),
    "queued_s": ("queued", "#D55E00"),
    "paging_s": ("paging", "#CC79A7"),
    "throttling_s": ("throttling", "#F0E442"),
    "late_s": ("client late", "#000000"),
    "other_s": ("other", "#999999"),
}
"""Names and colours (Okabe and Ito, 2008) of the parts, in the order in which they are stacked."""

LEAST_SHARE = 0.001
BAR_PIXELS = 34


def parts_figure(loaded: LoadView) -> Figure | None:
    """Draw the mean seconds of each part at each point; none without an answered request."""
    found = {point.label: means(point) for point in loaded.points}
    known = {label: parts for label, parts in found.items() if parts is not None}
    if not known:
        return None
    sentence = _sentence(known)
    return _drawn(loaded, known, sentence)


def means(point: LoadedPoint) -> Parts | None:
    """Return the mean of each part over the answered requests; none without one."""
    accounts = [account.whole for _, account in point.accounting.answered]
    if not accounts:
        return None
    return Parts(**{name: fmean(getattr(each, name) for each in accounts) for name in KINDS})


def _sentence(found: dict[str, Parts]) -> str:
    label, parts = list(found.items())[-1]
    largest = sorted(KINDS, key=lambda name: -getattr(parts, name))[:2]
    each = " and ".join(
        f"{words.seconds(getattr(parts, name))} {KINDS[name][0]}"
        for name in largest
        if getattr(parts, name) > 0
    )
    return f"{label}: of {words.seconds(parts.total_s)} per request, {each} (means)."


def _drawn(loaded: LoadView, found: dict[str, Parts], sentence: str) -> Figure:
    import altair as alt

    unit = time_unit(parts.total_s for parts in found.values())
    total_s = sum(parts.total_s for parts in found.values())
    shown = {
        name: label
        for name, (label, _) in KINDS.items()
        if sum(getattr(parts, name) for parts in found.values()) >= LEAST_SHARE * total_s
    }
    rows: Rows = [
        {
            "point": label,
            "part": shown[name],
            "order": number,
            "time": max(0.0, getattr(parts, name)) * unit.per_s,
        }
        for label, parts in found.items()
        for number, name in enumerate(shown)
    ]
    colours = [KINDS[name][1] for name in shown]
    names = list(shown.values())
    chart = (
        source("parts")
        .mark_bar()
        .encode(
            alt.X("time:Q").title(f"mean time per request ({unit.name})").axis(format=",.10~g"),
            alt.Y("point:N").title(None).sort(labels(loaded.points)),
            alt.Color("part:N").title(None).scale(domain=names, range=colours),
            order="order:Q",
            tooltip=["point:N", "part:N", alt.Tooltip("time:Q", format=",.3~g")],
        )
        .properties(width=WIDTH_PIXELS, height=BAR_PIXELS * len(found))
    )
    return drawn(NAME, TITLE, sentence, chart, {"parts": rows}, legend_columns=columns_for(names))
