"""What is shown of a load while it runs."""

from __future__ import annotations

import pytest

from armload.analysis.load.live import (
    FEWEST,
    WINDOW_S,
    Chunks,
    LiveFigures,
    SlidingWindow,
    live_rows,
)
from armload.analysis.load.records import Outcome, RequestRecord
from armload.analysis.load.server_metrics import ServerSample


def ended(end_s: float, ttft_s: float = 0.2, outcome: Outcome = "ok") -> RequestRecord:
    """Return a request of ten tokens, each a tenth of a second after the one before."""
    first_s = end_s - 0.9
    return RequestRecord(
        number=0,
        scheduled_s=first_s - ttft_s,
        chunks=((first_s, 1), (end_s, 10)),
        end_s=end_s,
        outcome=outcome,
        status=503 if outcome == "server-error" else 200,
        generated_tokens=10,
    )


def figures(
    *records: RequestRecord, now_s: float, under_way: tuple[tuple[float, Chunks], ...] = ()
) -> LiveFigures:
    window = SlidingWindow()
    for record in records:
        window.add(record)
    return window.figures(now_s, under_way)


def test_only_the_requests_of_the_last_seconds_count() -> None:
    old = [ended(float(second), ttft_s=5.0) for second in range(10, 50)]
    new = [ended(100.0 + second / 2, ttft_s=0.1) for second in range(40)]
    found = figures(*old, *new, now_s=120.0)
    assert found.window_s == WINDOW_S
    assert found.answered_per_s == pytest.approx(40 / 30)
    assert found.ttft is not None
    assert found.ttft.p95_s == pytest.approx(0.1)
    assert found.tpot is not None
    assert found.tpot.p50_s == pytest.approx(0.1)


def test_of_a_slow_service_the_last_answers_count_however_old_they_are() -> None:
    records = [ended(60.0 * number) for number in range(1, 25)]
    found = figures(*records, now_s=1450.0)
    # The last ten came after that at 840 s.
    assert found.window_s == pytest.approx(1450 - 840)
    assert found.answered_per_s == pytest.approx(FEWEST / 610)
    few = figures(*records[:3], now_s=200.0)
    assert few.window_s == 200.0
    assert few.answered_per_s == pytest.approx(3 / 200)


def test_of_a_fast_service_the_rate_is_right_though_not_all_requests_are_kept() -> None:
    found = figures(*(ended(number / 200) for number in range(4000)), now_s=20.0)
    assert found.answered_per_s == pytest.approx(200, rel=0.01)


def test_the_figures_are_those_of_ranks() -> None:
    found = figures(*(ended(10.0, ttft_s=number / 100) for number in range(1, 101)), now_s=10.0)
    assert found.ttft is not None
    assert found.ttft.p50_s == pytest.approx(0.5)
    assert found.ttft.p95_s == pytest.approx(0.95)


def test_requests_under_way_count_as_far_as_they_have_come() -> None:
    waiting, first = (99.0, ()), (90.0, ((92.0, 1),))
    streaming = (60.0, ((61.0, 1), (99.0, 20)))
    found = figures(now_s=100.0, under_way=(waiting, first, streaming))
    assert (found.in_flight, found.before_first) == (3, 1)
    # The first token of the third came before the window.
    assert found.ttft is not None
    assert found.ttft.p95_s == pytest.approx(2.0)
    assert found.tpot is not None
    assert found.tpot.p50_s == pytest.approx(2.0)


def test_failures_are_counted_from_the_beginning_by_kind() -> None:
    failed = [ended(1.0, outcome=kind) for kind in ("timeout", "server-error", "timeout")]
    found = figures(*failed, ended(2.0, outcome="cancelled"), now_s=500.0)
    assert found.failed == {"timeout": 2, "server-error 503": 1}


def scraped(**gauges: float) -> ServerSample:
    return ServerSample(at_client_s=0.0, counters={}, gauges=gauges)


def test_rows_say_what_is_known_and_leave_out_what_is_not() -> None:
    window = SlidingWindow()
    bare = live_rows(window.figures(1.0, ()), "2 requests/s asked", slots=None, received_tokens=0)
    assert bare == [
        ("rate", "2 requests/s asked, 0/s answered (last 1 s)"),
        ("received", "0 tokens"),
        ("in flight", "0"),
        ("failed", "none"),
    ]
    window.add(ended(29.0, ttft_s=1.234))
    window.add(ended(30.0, ttft_s=0.1, outcome="timeout"))
    window.server(
        scraped(**{"llamacpp:requests_processing": 2.0, "llamacpp:requests_deferred": 7.0})
    )
    window.board({"at_s": 1.0, "celsius": 61.4})
    found = window.figures(40.0, [(39.0, ())])
    rows = live_rows(found, "2 requests/s asked", slots=2, received_tokens=1234)
    assert rows == [
        ("rate", "2 requests/s asked, 0.0333/s answered (last 30 s)"),
        ("received", "1,234 tokens"),
        ("in flight", "1, 1 of them without a token yet"),
        ("first token", "p50 1.23 s, p95 1.23 s"),
        ("per token", "p50 100 ms, p95 100 ms"),
        ("failed", "1 timeout"),
        ("slots", "2 of 2 busy, 7 queued"),
        ("board", "61 °C"),
    ]


def test_a_server_of_another_kind_tells_its_queue_too() -> None:
    window = SlidingWindow()
    window.server(scraped(**{'vllm:num_requests_running{engine="0"}': 3.0}))
    found = window.figures(1.0, ())
    assert (found.busy, found.waiting) == (3, None)
    assert ("slots", "3 busy") in live_rows(found, "4 clients", slots=None, received_tokens=0)
