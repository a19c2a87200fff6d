"""Requests that are sent to a service: each has an outcome, and the times that it took."""

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
from armload.boards.virtual.process import free_port
from armload.core.errors import ConnectError, RunError, UsageError
from armload.core.progress import Progress, Silent
from armload.serving import point_runner
from armload.serving.arrivals import Arrivals
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.conversation import Conversation
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest
from armload.serving.dialects.registry import DIALECTS, dialect_named
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder, observed_points
from armload.serving.loops import open_loop
from armload.serving.readiness import check_service, check_url
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.users import Users
from armload.serving.workload import Listed
from tests.stub_service import StubService, answer_of, stub_service

ASK = CompletionRequest(prompt="Once upon", max_tokens=4)
CONSTANT = Arrivals(kind="constant")
STREAMED = [each.name for each in DIALECTS if each.is_streamed]


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def target(url: str, dialect: str = "llama-server", **known: Any) -> LoadTarget:
    return LoadTarget(
        url=url, dialect=dialect_named(dialect), **({"api_key": "", "model": "stub"} | known)
    )


def sent(
    url: str, dialect: str = "llama-server", ask: CompletionRequest = ASK, timeout_s: float = 60
) -> Any:
    async def send() -> RequestRecord:
        async with connected("") as session:
            client = Client(session, url, dialect_named(dialect), "stub", timeout_s)
            return await client.send(ask, number=0, scheduled_s=0.0)

    return asyncio.run(send())


def loaded(
    aim: LoadTarget, *, level: LoadLevel, requests: int | None, duration_s: float | None = None
) -> LoadFolder:
    loading = LoadRunner(aim, Listed([ASK], "a file"), CONSTANT, 1, Silent())
    return loading.run([level], StopCondition(requests=requests, duration_s=duration_s, warmup=1))


@pytest.mark.parametrize("dialect", STREAMED)
def test_every_dialect_reads_text_tokens_and_the_end(dialect: str) -> None:
    with stub_service() as service:
        record = sent(service.url, dialect)
    assert (record.outcome, record.error) == ("ok", "")
    assert record.text == answer_of(4)
    assert record.generated_tokens == 4
    assert len(record.chunks) == 4
    assert record.finish_reason in ("length", "limit")
    assert record.sent_s < record.header_s <= record.chunks[0][0] <= record.end_s
    path, body = service.bodies[0]
    assert path == dialect_named(dialect).path
    assert "Once upon" in json.dumps(body)


def test_an_embedding_comes_in_one_piece_however_it_is_laid_out() -> None:
    with stub_service(dimensions=12, first_s=0.05) as service:
        record = sent(service.url, "openai-embeddings")
        service.behaviour.dimensions = 0
        empty = sent(service.url, "openai-embeddings")
    assert (record.outcome, record.dimensions, record.prompt_tokens) == ("ok", 12, 2)
    assert (record.chunks, record.generated_tokens, record.limit_tokens) == ((), None, None)
    assert record.end_s - record.sent_s >= 0.05
    assert service.bodies[0] == ("/v1/embeddings", {"model": "stub", "input": "Once upon"})
    assert empty.outcome == "malformed"


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_answer_that_the_context_has_cut_off_is_known_in_every_dialect(dialect: str) -> None:
    with stub_service(tokens=3) as service:
        cut = sent(service.url, dialect, ASK)
        whole = sent(service.url, dialect, ASK.model_copy(update={"max_tokens": 3}))
    assert (cut.outcome, cut.is_cut_off) == ("ok", True)
    assert (whole.outcome, whole.is_cut_off) == ("ok", False)


def test_the_servers_own_timings_and_counts_are_kept() -> None:
    with stub_service() as service:
        record = sent(service.url)
    assert [tokens for _, tokens in record.chunks] == [1, 2, 3, 4]
    assert record.prompt_tokens == 7
    assert record.cached_tokens == 2
    assert (record.timings.prompt_ms, record.timings.generated_ms) == (1.5, 2.5)


def test_both_forms_of_an_event_of_llm_serving_are_read() -> None:
    with stub_service(data_in_list=False) as service:
        record = sent(service.url, "llm-serving")
    assert (record.text, record.generated_tokens) == (answer_of(4), 4)
    assert service.bodies[0][1]["parameters"] == {
        "max_new_tokens": 4,
        "do_sample": "False",
        "return_full_text": "True",
    }


def test_a_chat_goes_to_a_dialect_that_has_chats() -> None:
    ask = CompletionRequest(messages=(ChatMessage(role="user", content="Hello"),), max_tokens=3)
    with stub_service() as service:
        assert sent(service.url, "openai-chat", ask).outcome == "ok"
        assert service.bodies[0][1]["messages"] == [{"role": "user", "content": "Hello"}]
        with pytest.raises(UsageError, match="takes a prompt"):
            sent(service.url, "openai", ask)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_the_thoughts_of_a_model_count_as_text(key: str) -> None:
    with stub_service(thoughts=2, thoughts_key=key) as service:
        record = sent(service.url, "openai-chat")
    assert (record.text, len(record.chunks)) == (answer_of(4), 4)


@pytest.mark.parametrize("dialect", ["openai", "openai-chat", "llama-server"])
def test_an_answer_of_a_fixed_length_ignores_the_models_end(dialect: str) -> None:
    with stub_service() as service:
        sent(service.url, dialect, ASK.model_copy(update={"ignores_end": True}))
        sent(service.url, dialect)
    (_, fixed), (_, free) = service.bodies
    assert fixed["ignore_eos"] is True
    assert "ignore_eos" not in free


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_answer_that_is_cut_off_is_a_failure_that_keeps_its_text(dialect: str) -> None:
    with stub_service(cut_after=2) as service:
        record = sent(service.url, dialect)
    assert record.outcome == "dropped"
    assert record.text == answer_of(2)


@pytest.mark.parametrize(
    ("behaviour", "outcome", "error"),
    [
        ({"status": 400}, "http", "as told"),
        ({"status": 500}, "server-error", "as told"),
        ({"error_after": 1}, "server-error", "out of cells"),
    ],
)
def test_an_error_of_the_service_is_recorded_in_its_own_words(
    behaviour: dict[str, Any], outcome: str, error: str
) -> None:
    with stub_service(**behaviour) as service:
        record = sent(service.url, "openai")
    assert (record.outcome, record.error) == (outcome, error)


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_an_answer_that_ends_properly_without_a_reason_is_complete(dialect: str) -> None:
    with stub_service(ends="done") as service:
        whole = sent(service.url, dialect)
        service.behaviour.tokens = 0
        empty = sent(service.url, dialect)
    assert (whole.outcome, whole.finish_reason, whole.text) == ("ok", "unknown", answer_of(4))
    assert empty.outcome == "dropped"


def test_lines_that_are_no_events_are_counted() -> None:
    with stub_service(garbage=b"<p>wait</p>\n: ping\nretry: 5\n") as service:
        record = sent(service.url, "openai")
    assert (record.outcome, record.ignored_lines, record.text) == ("ok", 4, answer_of(4))


def test_a_request_that_takes_too_long_has_timed_out() -> None:
    with stub_service(gap_s=30) as service:
        record = sent(service.url, timeout_s=0.2)
    assert (record.outcome, record.text) == ("timeout", answer_of(1))


@pytest.mark.parametrize("answers_at", ["/completion", "/metrics"])
def test_a_stream_of_another_protocol_is_malformed(answers_at: str) -> None:
    with stub_service() as service:

        class Mixed(type(dialect_named("openai"))):  # type: ignore[misc]
            path = answers_at

        async def send() -> RequestRecord:
            async with connected("") as session:
                client = Client(session, service.url, Mixed(), "stub", 60)
                return await client.send(ASK, number=0, scheduled_s=0.0)

        record = asyncio.run(send())
    assert record.outcome == "malformed"
    assert "dialect openai" in record.error


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


@pytest.mark.parametrize(
    ("behaviour", "dialect", "kind", "words"),
    [
        ({"api_key": "right"}, "openai", UsageError, "refuses the API key"),
        ({"status": 404}, "llm-serving", UsageError, "does not speak dialect llm-serving"),
        ({"status": 503}, "openai", RunError, "is not ready: as told"),
        (
            {"status": 400, "says": "default chat template is no longer allowed"},
            "openai-chat",
            UsageError,
            "has no chat template. The server rejects chats: default chat template is no",
        ),
        (
            {"status": 501, "says": "This server does not support embeddings."},
            "openai-embeddings",
            UsageError,
            "the service does not support this: This server does not support embeddings",
        ),
        (
            {"status": 400, "says": "Pooling type 'none' is not OAI compatible."},
            "openai-embeddings",
            UsageError,
            "the service does not support this: Pooling type 'none'",
        ),
    ],
)
def test_a_service_that_cannot_answer_is_found_out_before_the_load(
    behaviour: dict[str, Any], dialect: str, kind: type[Exception], words: str
) -> None:
    with stub_service(**behaviour) as service, pytest.raises(kind, match=words):
        check_service(target(service.url, dialect), ASK, 60)


def test_a_service_that_answers_is_asked_for_one_token() -> None:
    with stub_service(api_key="right") as service:
        check_service(target(service.url, api_key="right"), ASK, 60)
    assert [body["n_predict"] for _, body in service.bodies] == [1]


def test_one_request_that_is_refused_says_nothing_of_the_service() -> None:
    with stub_service(status=400) as service:
        check_service(target(service.url), ASK, 60)


def test_an_address_where_nothing_listens_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectError, match="nothing answers there") as error:
        check_service(target(url), ASK, 60)
    assert url in error.value.message
    assert "armload serve" in error.value.remedy


@pytest.mark.parametrize(
    "text", ["board", "ftp://board", "http://", "http://board:x", "http://board:99999"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be the address"):
        check_url(text)


def test_a_key_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as error:
        check_url("http://user:secret@board:80")
    assert "secret" not in str(error.value)


def test_an_address_may_end_as_openais_clients_write_it() -> None:
    assert check_url("http://board:80/v1/") == "http://board:80"
