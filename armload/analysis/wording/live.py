"""A load while it runs, in labels and a few words each."""

from __future__ import annotations

from armload.analysis.load.live import LiveFigures, MedianAndP95
from armload.core.values import counted, format_seconds


def live_rows(
    found: LiveFigures, level: str, *, slots: int | None, received_tokens: int
) -> list[tuple[str, str]]:
    """Say what a load shows now; what is not known is left out.

    Args:
        level: how fast requests are to come, such as ``2 requests/s asked``.
        slots: of the server.
        received_tokens: of all answers of the point.
    """
    rows = [
        ("rate", f"{level}, {found.answered_per_s:.3g}/s answered (last {found.window_s:.0f} s)"),
        ("received", counted(received_tokens, "token")),
        ("in flight", _in_flight(found)),
        ("first token", _latency(found.ttft)),
        ("per token", _latency(found.tpot)),
        ("failed", ", ".join(f"{count} {kind}" for kind, count in found.failed.items()) or "none"),
        ("slots", _slots(found, slots)),
        ("board", "" if found.celsius is None else f"{found.celsius:.0f} °C"),
    ]
    return [(label, words) for label, words in rows if words]


def _in_flight(found: LiveFigures) -> str:
    if not found.before_first:
        return str(found.in_flight)
    return f"{found.in_flight}, {found.before_first} of them without a token yet"


def _slots(found: LiveFigures, slots: int | None) -> str:
    if found.busy is None:
        return ""
    busy = f"{found.busy} busy" if slots is None else f"{found.busy} of {slots} busy"
    return busy if found.waiting is None else f"{busy}, {found.waiting} queued"


def _latency(found: MedianAndP95 | None) -> str:
    if found is None:
        return ""
    return f"p50 {format_seconds(found.p50_s)}, p95 {format_seconds(found.p95_s)}"
