"""Loads on a service: each request is sent in time, has an outcome, and is kept."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.energy import PowerLine
from armload.analysis.load.latency import e2e_s
from armload.analysis.load.metrics import metrics_of
from armload.analysis.load.parts import Accounting
from armload.analysis.load.records import ClockOffset, RequestRecord
from armload.analysis.load.telemetry import ObservedPoint
from armload.boards.power import PowerReading
from armload.core.errors import ConnectError, RunError
from armload.core.progress import Progress, Silent
from armload.serving import point_runner
from armload.serving.arrivals import Arrivals
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.conversation import Conversation
from armload.serving.dialects.registry import dialect_named
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder, observed_points
from armload.serving.loops import open_loop
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.users import Users
from armload.serving.workload import Listed
from tests.stub_service import ASK, StubService, stub_service, target

CONSTANT = Arrivals(kind="constant")


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(
    aim: LoadTarget, *, level: LoadLevel, requests: int | None, duration_s: float | None = None
) -> LoadFolder:
    loading = LoadRunner(aim, Listed([ASK], "a file"), CONSTANT, 1, Silent())
    return loading.run([level], StopCondition(requests=requests, duration_s=duration_s, warmup=1))


def test_an_open_loop_sends_on_time_while_no_answer_has_come() -> None:
    with stub_service(header_s=1.0) as service:
        kept = loaded(target(service.url), level=LoadLevel(rate=50), requests=20)
    records = kept.requests(0)
    assert [record.number for record in records] == list(range(20))
    assert {record.outcome for record in records} == {"ok"}
    first_end = min(record.end_s for record in records)
    assert all(record.sent_s is not None and record.sent_s < first_end for record in records)
    assert [a.scheduled_s < b.scheduled_s for a, b in pairwise(records)] == [True] * 19
    assert [record.is_warmup for record in records] == [True] + [False] * 19
    (point,) = kept.load.points
    assert (point.rate, point.requests, point.clock) == (50, 20, None)
    assert len(kept.load.requests_sha256) == 64


def test_an_open_loop_with_a_cap_holds_requests_back_and_counts_that_from_their_time() -> None:
    with stub_service(header_s=0.1) as service:
        level = LoadLevel(rate=100, max_concurrency=2)
        kept = loaded(target(service.url), level=level, requests=12)
    records = kept.requests(0)
    assert {record.outcome for record in records} == {"ok"}
    begun_s = [record.begun_s or 0.0 for record in records]
    for at_s in begun_s:
        in_flight = [o for o in records if (o.begun_s or 0.0) <= at_s < o.end_s]
        assert len(in_flight) <= 2
    assert begun_s == sorted(begun_s)
    assert [record.held_s > 0 for record in records] == [False] * 2 + [True] * 10
    last = records[-1]
    # It was due at 0.11 s, and five pairs go before it.
    assert last.held_s > 0.3
    assert e2e_s(last) >= last.held_s + 0.1
    (point,) = kept.load.points
    found = metrics_of(point, records)
    assert point.max_concurrency == 2
    assert found.lateness is not None
    assert found.lateness.max_s < last.held_s
    assert found.held is not None
    assert (found.held.count, found.held.max_s) == (10, max(each.held_s for each in records))
    account = Accounting(ObservedPoint(point=point, records=tuple(records))).of(last)
    assert account is not None
    assert account.first.held_s == last.held_s
    assert account.whole.total_s == pytest.approx(e2e_s(last))


def test_what_is_held_back_when_a_load_is_interrupted_has_an_outcome() -> None:
    with stub_service(header_s=60) as service:
        records = cancelled_after(0.3, service.url, [0.0, 0.05, 0.1, 600.0], most=1)
    assert {record.outcome for record in records} == {"cancelled"}
    assert [record.sent_s is not None for record in records] == [True, False, False, False]


def test_a_closed_loop_has_no_more_requests_under_way_than_clients() -> None:
    with stub_service(gap_s=0.01) as service:
        kept = loaded(target(service.url), level=LoadLevel(concurrency=3), requests=12)
    records = kept.requests(0)
    assert len(records) == kept.load.points[0].requests == 12
    for record in records:
        under_way = [o for o in records if o.scheduled_s <= record.scheduled_s < o.end_s]
        assert len(under_way) <= 3


def test_a_closed_loop_begins_no_request_after_its_time() -> None:
    with stub_service(gap_s=0.02) as service:
        kept = loaded(
            target(service.url), level=LoadLevel(concurrency=2), requests=None, duration_s=0.5
        )
    records = kept.requests(0)
    assert len(records) > 2
    assert all(record.scheduled_s < 0.5 for record in records)


def cancelled_after(
    seconds: float, url: str, times: list[float], most: int | None = None
) -> list[RequestRecord]:
    records: list[RequestRecord] = []

    async def run() -> None:
        async with connected("") as session:
            client = Client(session, url, dialect_named("openai"), "stub", 60, most=most)

            def take() -> Conversation:
                return Users().conversation(0, lambda: ASK)

            await open_loop(client, take, times, warmup=0, note=records.append)

    async def cancel() -> None:
        task = asyncio.create_task(run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    return sorted(records, key=lambda record: record.number)


def test_every_request_of_an_interrupted_load_has_an_outcome() -> None:
    with stub_service(header_s=60) as service:
        records = cancelled_after(0.5, service.url, [0.0, 0.1, 600.0, 601.0])
    assert [record.number for record in records] == [0, 1, 2, 3]
    assert {record.outcome for record in records} == {"cancelled"}
    assert [record.sent_s is not None for record in records] == [True, True, False, False]


def test_a_request_is_made_no_sooner_than_the_one_before_it_is_sent() -> None:
    taken: list[int] = []

    def take() -> Conversation:
        taken.append(len(taken))
        return Users().conversation(0, lambda: ASK)

    async def run(url: str) -> int:
        async with connected("") as session:
            client = Client(session, url, dialect_named("openai"), "stub", 60)
            times = [0.0, 0.05, *(600.0 + number for number in range(1000))]
            task = asyncio.create_task(
                open_loop(client, take, times, warmup=0, note=lambda record: None)
            )
            await asyncio.sleep(0.5)
            made = len(taken)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return made

    with stub_service() as service:
        assert asyncio.run(run(service.url)) == 3


class Board:
    """Stands in for a service on a board, whose server ends after some requests."""

    def __init__(
        self, service: StubService, ends_after: int | None = None, *, is_seen_at_once: bool = True
    ) -> None:
        self.service = service
        self.ends_after = ends_after
        self.is_seen_at_once = is_seen_at_once
        self.silences = 0
        self.idled = 0
        self.asked: list[tuple[float, float]] = []

    def check(self, *, is_certain: bool = False) -> None:
        if not (is_certain or self.is_seen_at_once):
            return
        if is_certain and self.silences:
            self.silences -= 1
            raise ConnectError("kitchen: the connection dropped.")
        if self.ends_after is not None and len(self.service.bodies) >= self.ends_after:
            raise RunError("kitchen: llama-server was killed.", "Start it again.")

    def clock(self) -> ClockOffset:
        return ClockOffset(board_minus_client_s=1000.0, error_s=0.001, boot_id="b")

    def sample(self) -> dict[str, Any]:
        return {"at_s": time.monotonic() + 1000.0, "memory_available_bytes": 5}

    def trace(self, from_board_s: float, to_board_s: float) -> Any:
        self.asked.append((from_board_s, to_board_s))
        yield "header"
        yield "step"

    def idle_power(self, progress: Progress) -> tuple[PowerLine, ...]:
        del progress
        self.idled += 1
        return (PowerLine(here_s=time.monotonic(), reading=_reading(2.0), is_idle=True),)

    @contextmanager
    def power_recorded(
        self, path: Path, idle: Sequence[PowerLine], progress: Progress
    ) -> Iterator[None]:
        del progress
        lines = (*idle, PowerLine(here_s=time.monotonic(), reading=_reading(5.0)))
        path.write_text("".join(f"{line.model_dump_json()}\n" for line in lines))
        yield


def _reading(watts: float) -> PowerReading:
    return PowerReading(watts=watts, source="shelly at http://plug", sees="wall")


def test_the_power_of_each_point_is_kept_and_the_idle_board_measured_once() -> None:
    with stub_service() as service:
        board = Board(service)
        loading = LoadRunner(
            *(target(service.url, service=board), Listed([ASK], "a file"), CONSTANT, 1, Silent()),
            subtracts_idle=True,
        )
        kept = loading.run([LoadLevel(rate=50), LoadLevel(rate=60)], StopCondition(requests=5))
    assert board.idled == 1
    assert kept.load.subtracts_idle
    for observed in observed_points(kept, None):
        assert observed.subtracts_idle
        assert [line.reading and line.reading.watts for line in observed.power] == [2.0, 5.0]
        assert [line.is_idle for line in observed.power] == [True, False]


def test_a_boards_samples_and_trace_are_kept_beside_the_requests() -> None:
    with stub_service() as service:
        board = Board(service)
        aim = target(service.url, service=board, board="kitchen", run="r", settings={"slots": 4})
        kept = loaded(aim, level=LoadLevel(rate=50), requests=5)
    assert kept.load.service == {"slots": 4}
    assert kept.trace_file(0).read_text() == "header\nstep\n"
    samples = [json.loads(line) for line in kept.board_file(0).read_text().splitlines()]
    assert samples[0]["memory_available_bytes"] == 5
    ((from_s, to_s),) = board.asked
    last = max(record.end_s for record in kept.requests(0))
    assert from_s == pytest.approx(kept.load.points[0].began_client_s + 1000.0)
    assert to_s - from_s == pytest.approx(last)


def test_a_server_that_ends_ends_the_load_and_each_request_has_an_outcome() -> None:
    with stub_service(header_s=60) as service:
        aim = target(service.url, service=Board(service, ends_after=3), board="kitchen")
        loading = LoadRunner(aim, Listed([ASK], "a file"), CONSTANT, 1, Silent())
        with pytest.raises(RunError, match="was killed"):
            loading.run([LoadLevel(rate=20), LoadLevel(rate=30)], StopCondition(requests=200))
    assert loading.kept is not None
    records = loading.kept.requests(0)
    assert len(records) == 200
    assert {record.outcome for record in records} == {"cancelled"}
    assert len(loading.kept.load.points) == 1


def test_a_board_that_keeps_its_connection_waiting_ends_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(point_runner, "UNREACHABLE_AFTER_S", 0.3)
    gives_up = threading.Event()

    class Silence(Board):
        def check(self, *, is_certain: bool = False) -> None:
            if not is_certain:
                gives_up.wait(60)
                return
            gives_up.set()
            super().check(is_certain=True)

    with stub_service(header_s=60) as service:
        aim = target(service.url, service=Silence(service, ends_after=1), board="kitchen")
        loading = LoadRunner(aim, Listed([ASK], "a file"), CONSTANT, 1, Silent())
        with pytest.raises(RunError, match="was killed"):
            loading.run([LoadLevel(rate=20)], StopCondition(requests=2000))
    assert loading.kept is not None
    assert {record.outcome for record in loading.kept.each_request(0)} == {"cancelled"}
    assert len(service.bodies) < 1000


def test_a_board_that_restarts_at_the_end_of_a_point_is_waited_for_and_the_point_is_not_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(point_runner, "_CHECK_S", 0.05)
    with stub_service() as service:
        board = Board(service, ends_after=5, is_seen_at_once=False)
        board.silences = 2
        aim = target(service.url, service=board, board="kitchen")
        loading = LoadRunner(aim, Listed([ASK], "a file"), CONSTANT, 1, Silent())
        with pytest.raises(RunError, match="was killed"):
            loading.run([LoadLevel(rate=50), LoadLevel(rate=60)], StopCondition(requests=20))
    assert board.silences == 0
    assert loading.kept is not None
    (point,) = loading.kept.load.points
    found = metrics_of(point, loading.kept.requests(0))
    assert (found.ok, found.valid) == (20, False)
    said = "The service ended before the load did. kitchen: llama-server"
    assert any(said in each.sentence for each in found.findings)


class Shown(Silent):
    """Keeps the notes and rows of steps, and what is said."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, str]] = []
        self.rows: list[dict[str, str]] = []
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def step(self, label: str, *, total: float | None = None, unit: str = "") -> Iterator[Any]:
        del label, total, unit
        yield self

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        del total
        self.notes.append((completed, note))
        self.rows.append(dict(rows))


@pytest.mark.parametrize("dialect", ["llama-server", "openai"])
def test_tokens_are_shown_while_no_request_has_ended(dialect: str) -> None:
    shown = Shown()
    with stub_service() as service:

        def go_on_once_shown() -> None:
            while not any("token" in note for _, note in shown.notes):
                time.sleep(0.01)
            service.behaviour.gap_s = 0.0

        service.behaviour.gap_s = 0.25
        ask = ASK.model_copy(update={"max_tokens": 40})
        thread = threading.Thread(target=go_on_once_shown)
        thread.start()
        loading = LoadRunner(
            target(service.url, dialect), Listed([ask], "a file"), CONSTANT, 1, shown
        )
        loading.run([LoadLevel(concurrency=2)], StopCondition(requests=2))
        thread.join()
    (first, *_) = [(done, note) for done, note in shown.notes if note]
    assert first[0] == 0
    assert re.fullmatch(r"\d+ tokens? received", first[1])
    assert shown.notes[-1] == (2, "80 tokens received")


def test_a_service_that_dies_fails_the_rest_and_counts_no_success() -> None:
    with stub_service(gap_s=0.01) as service:

        def cut_soon() -> None:
            while len(service.bodies) < 5:
                time.sleep(0.01)
            service.behaviour.cut_after = 1

        thread = threading.Thread(target=cut_soon)
        thread.start()
        kept = loaded(target(service.url), level=LoadLevel(rate=40), requests=30)
        thread.join()
    outcomes = [record.outcome for record in kept.requests(0)]
    assert len(outcomes) == 30
    assert set(outcomes) == {"ok", "dropped"}
    assert outcomes[-1] == "dropped"


def test_a_load_of_which_nothing_succeeds_is_an_error_with_the_services_words() -> None:
    with stub_service(status=400) as service, pytest.raises(RunError, match="as told"):
        loaded(target(service.url), level=LoadLevel(rate=50), requests=5)
