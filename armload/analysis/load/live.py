"""A load while it runs: the requests of its last seconds, and what the server and board show."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from armload.analysis.load.latency import tpot_s, ttft_s
from armload.analysis.load.records import ENDED_BY_THE_USER, RequestRecord
from armload.analysis.load.request_columns import failure
from armload.analysis.load.server_metrics import ServerSample
from armload.core.values import Value, counted, format_seconds

WINDOW_S = 30.0
FEWEST = 10
"""Answers that are looked at even if they are older."""

_MOST = 500
"""Requests that are looked at: a client that computes for long sends its requests late."""

Chunks = Sequence[tuple[float, int | None]]


class MedianAndP95(Value):
    """The median and the 95th percentile of a latency."""

    p50_s: float
    p95_s: float


class LiveFigures(Value):
    """What a load shows now; what is not known is none.

    Attributes:
        window_s: that rates and latencies are of.
        answered_per_s: requests/s.
        in_flight: requests without an end; ``before_first`` of them have no token yet.
        ttft, tpot: of answers, and of those that are under way.
        failed: since the beginning of the point, by kind.
        busy, waiting: requests in the server's slots, and in its queue.
        celsius: of the board.
    """

    window_s: float
    answered_per_s: float
    in_flight: int
    before_first: int
    ttft: MedianAndP95 | None
    tpot: MedianAndP95 | None
    failed: dict[str, int]
    busy: int | None = None
    waiting: int | None = None
    celsius: float | None = None


class SlidingWindow:
    """Keeps what is needed of the last requests; samples may come from other threads."""

    def __init__(self) -> None:
        self._ended: deque[RequestRecord] = deque(maxlen=_MOST)
        self._failed: Counter[str] = Counter()
        self._server: ServerSample | None = None
        self._celsius: float | None = None

    def add(self, record: RequestRecord) -> None:
        """Take a request that ended."""
        self._ended.append(record)
        if record.outcome != "ok" and record.outcome not in ENDED_BY_THE_USER:
            self._failed[failure(record)] += 1

    def server(self, sample: ServerSample) -> None:
        """Take a scrape."""
        self._server = sample

    def board(self, sample: Mapping[str, Any]) -> None:
        self._celsius = sample.get("celsius")

    def figures(self, now_s: float, under_way: Iterable[tuple[float, Chunks]]) -> LiveFigures:
        """Return what the load shows now.

        Args:
            under_way: when each request in flight was scheduled, and the chunks that have come.
        """
        recent, from_s = self._recent(now_s)
        ok = [record for record in recent if record.outcome == "ok"]
        ttfts = [each for each in map(ttft_s, ok) if each is not None]
        tpots = [each for each in map(tpot_s, ok) if each is not None]
        in_flight = before_first = 0
        for scheduled_s, chunks in under_way:
            in_flight += 1
            before_first += not chunks
            if chunks and chunks[0][0] >= from_s:
                ttfts.append(chunks[0][0] - scheduled_s)
            if (token_s := token_s_of(chunks)) is not None:
                tpots.append(token_s)
        window_s = max(now_s - from_s, 1e-3)
        server = self._server
        return LiveFigures(
            window_s=window_s,
            answered_per_s=len(ok) / window_s,
            in_flight=in_flight,
            before_first=before_first,
            ttft=_middle_and_slow(ttfts),
            tpot=_middle_and_slow(tpots),
            failed=dict(self._failed),
            busy=server.busy if server else None,
            waiting=server.waiting if server else None,
            celsius=self._celsius,
        )

    def _recent(self, now_s: float) -> tuple[list[RequestRecord], float]:
        """Return the requests that ended last, and since when these are all."""
        ended, from_s = list(self._ended), max(0.0, now_s - WINDOW_S)
        recent = [record for record in ended if record.end_s >= from_s]
        if len(recent) < FEWEST and len(recent) < len(ended):
            before = ended[:-FEWEST]
            return ended[-FEWEST:], before[-1].end_s if before else 0.0
        if len(recent) == _MOST:
            return recent[1:], recent[0].end_s
        return recent, from_s


def token_s_of(chunks: Chunks) -> float | None:
    """Return the time per token after the first text so far; none while all came at once."""
    if not chunks or chunks[-1][0] == chunks[0][0]:
        return None
    (first_s, _), (last_s, last) = chunks[0], chunks[-1]
    at_first = [tokens for at_s, tokens in chunks if at_s == first_s]
    further = (last or len(chunks)) - (at_first[-1] or len(at_first))
    return (last_s - first_s) / further if further > 0 else None


def _middle_and_slow(seconds: list[float]) -> MedianAndP95 | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    p50_s, p95_s = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return MedianAndP95(p50_s=p50_s, p95_s=p95_s)


def live_rows(
    found: LiveFigures, level: str, *, slots: int | None, received_tokens: int
) -> list[tuple[str, str]]:
    """Say what a load shows now; what is not known is left out.

    Args:
        level: how fast requests are to come, such as ``2 requests/s asked``.
        slots: of the server.
        received_tokens: of all answers of the point.
    """
    if not found.before_first:
        in_flight = str(found.in_flight)
    else:
        in_flight = f"{found.in_flight}, {found.before_first} of them without a token yet"
    rows = [
        ("rate", f"{level}, {found.answered_per_s:.3g}/s answered (last {found.window_s:.0f} s)"),
        ("received", counted(received_tokens, "token")),
        ("in flight", in_flight),
        ("first token", _latency(found.ttft)),
        ("per token", _latency(found.tpot)),
        ("failed", ", ".join(f"{count} {kind}" for kind, count in found.failed.items()) or "none"),
        ("slots", _slots(found, slots)),
        ("board", "" if found.celsius is None else f"{found.celsius:.0f} °C"),
    ]
    return [(label, words) for label, words in rows if words]


def _slots(found: LiveFigures, slots: int | None) -> str:
    if found.busy is None:
        return ""
    busy = f"{found.busy} busy" if slots is None else f"{found.busy} of {slots} busy"
    return busy if found.waiting is None else f"{busy}, {found.waiting} queued"


def _latency(found: MedianAndP95 | None) -> str:
    if found is None:
        return ""
    return f"p50 {format_seconds(found.p50_s)}, p95 {format_seconds(found.p95_s)}"
