"""Load on a llama-server that a board runs, as a person types it: every request has an outcome."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.load.parts import Accounting
from armload.analysis.load.records import RequestRecord
from armload.engines.trace import read_trace
from armload.report.load.loaded import LoadView
from armload.serving.loads import LoadFolder
from tests.faults import listener, small_disk, without_connection
from tests.memory_groups import fill_until_gone, limited_group, moved
from tests.person import Person
from tests.system.serving import (
    assert_nothing_is_left,
    by_ssh,
    holds_lease,
    run_of,
    servers,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.build

COVERED = [
    "armload/serving",
    "armload/cli/load_options.py",
    "armload/cli/verbs/load.py",
    "armload/engines/server.py",
]
SERVICE = (
    *("--model", "word-problems:Q8_0", "--threads", "1"),
    *("--slots", "2", "--context", "256"),
)
SERVED = ("--board", "here", *SERVICE)
SHORT = ("--prompt-tokens", "uniform:4-20", "--n-predict", "uniform:2-12")
CLOCKS_ALIGNED_S = 0.005


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("load") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    yield person
    person.types("board.down", "--board", "mine", "--yes")


def latest(person: Person) -> LoadFolder:
    return LoadFolder.read(max((person.folder / "loads").iterdir()))


def assert_tokens_and_times_agree(kept: LoadFolder, point: int) -> None:
    """The server's counters and its trace say of a point what the requests' records say."""
    records = kept.requests(point)
    assert {record.outcome for record in records} == {"ok"}
    _, steps = read_trace(kept.trace_file(point))
    timings = [record.timings for record in records if record.timings]
    assert len(timings) == len(records)
    for record, own in zip(records, timings, strict=True):
        assert record.generated_tokens == own.generated_tokens == record.limit_tokens
        assert record.prompt_tokens == own.prompt_tokens
        assert own.prompt_ms is not None
        assert own.generated_ms is not None
        # The server's own times are of parts of what the client has measured.
        assert record.sent_s is not None
        took_ms = 1000 * (record.end_s - record.sent_s)
        assert own.prompt_ms + own.generated_ms <= 1.02 * took_ms
    # An answer's first token comes out of its prompt.
    generated = sum((record.generated_tokens or 0) - 1 for record in records)
    assert sum(step.generated_tokens for step in steps) == generated
    assert sum(step.prompt_tokens for step in steps) == sum(
        own.prompt_tokens or 0 for own in timings
    )


def assert_clocks_are_aligned(kept: LoadFolder, point: int) -> None:
    """The board is this machine: its clock is ours, and every step lies within a request."""
    about = kept.load.points[point]
    assert about.clock is not None
    assert abs(about.clock.board_minus_client_s) <= about.clock.error_s <= CLOCKS_ALIGNED_S
    records = kept.requests(point)
    _, steps = read_trace(kept.trace_file(point))
    zero_s = about.began_client_s + about.clock.board_minus_client_s
    begin_s = min(record.sent_s or 0.0 for record in records) - CLOCKS_ALIGNED_S
    end_s = max(record.end_s for record in records) + CLOCKS_ALIGNED_S
    assert all(begin_s <= step.start_ns / 1e9 - zero_s for step in steps)
    assert all(step.end_ns / 1e9 - zero_s <= end_s for step in steps)


def test_a_short_load_agrees_with_the_servers_counters_and_trace(ann: Person) -> None:
    words = (*SERVED, *SHORT, "--rate", "2,4", "--requests", "8", "--slo", "ttft=60s")
    found: dict[str, Any] = json.loads(ann.types("load", *words, "--json").stdout)
    assert [point["metrics"]["ok"] for point in found["points"]] == [8, 8]
    assert [point["metrics"]["goodput"]["good"] for point in found["points"]] == [8, 8]
    kept = latest(ann)
    assert kept.load.board == "here"
    assert kept.load.service is not None
    assert kept.load.service["slots"] == 2
    for point in (0, 1):
        assert_tokens_and_times_agree(kept, point)
        assert_clocks_are_aligned(kept, point)
        (sample, *_) = map(json.loads, kept.board_file(point).read_text().splitlines())
        assert sample["memory_available_bytes"] > 0
    assert not servers(ann)
    assert_the_board_is_told(found)


def assert_the_board_is_told(found: dict[str, Any]) -> None:
    """Slots, steps and the limit are known, and where the time of each request went."""
    for point in found["points"]:
        board = point["telemetry"]
        assert board["slots"] == 2
        assert 0 < board["busy_slots"] <= 2
        assert 1 <= board["sequences_per_step"] <= 2
        assert board["decode_step_s"] > 0
        assert board["memory_available_min_bytes"] > 0
        assert point["limit"]["cause"] in ("compute", "memory bandwidth", "unknown")
    assert "100% of 8 requests" in found["capacity"]["sentence"]


@pytest.mark.exhaustive(covers=["armload/analysis/load", "armload/serving"])
def test_a_server_at_its_limit_is_said_to_let_requests_queue(ann: Person) -> None:
    words = (*SERVED, "--prompt-tokens", "8", "--n-predict", "8", "--arrivals", "constant")
    load = ("--rate", "200", "--requests", "30", "--slo", "ttft=50ms")
    found: dict[str, Any] = json.loads(ann.types("load", *words, *load, "--json").stdout)
    (point,) = found["points"]
    assert max(point["slow"], key=point["slow"].get) == "queued"
    assert found["capacity"]["rate"] is None
    assert "200 requests/s" in found["capacity"]["sentence"]
    loaded = LoadView.of(latest(ann))
    (only,) = loaded.points
    for record in only.observed.counted:
        account = Accounting(only.observed).of(record)
        assert account is not None
        assert account.whole.total_s == pytest.approx(record.end_s - record.scheduled_s)
    assert (latest(ann).folder / "report.html").is_file()


CACHING = (*SERVED, "--prompt-cache", "16MiB")


@pytest.mark.exhaustive(covers=["armload/analysis/load", "armload/serving"])
def test_later_turns_are_answered_from_the_servers_prompt_cache(ann: Person) -> None:
    words = ("--turns", "3", "--prompt-tokens", "16", "--n-predict", "8", "--prefix-tokens", "24")
    load = ("--concurrency", "1", "--requests", "3", "--json")
    found = json.loads(ann.types("load", *CACHING, *words, *load).stdout)
    kept = latest(ann)
    records = kept.requests(0)
    assert [(each.conversation, each.turn) for each in records] == [
        (conversation, turn) for conversation in range(3) for turn in range(3)
    ]
    assert {record.outcome for record in records} == {"ok"}
    for before, after in pairwise(records):
        assert after.prompt_tokens is not None
        assert after.cached_tokens is not None
        assert before.prompt_tokens is not None
        if after.turn:
            # Its history is what the server has just processed; it is split into tokens anew.
            assert after.prompt_tokens > before.prompt_tokens + 16
            assert after.cached_tokens >= before.prompt_tokens - 2
        else:
            assert 24 <= after.cached_tokens < 24 + 16
    # What was not cached is what the server's trace says that it processed.
    _, steps = read_trace(kept.trace_file(0))
    assert sum(step.prompt_tokens for step in steps) == sum(
        (record.prompt_tokens or 0) - (record.cached_tokens or 0) for record in records
    )
    (point,) = found["points"]
    reuse = point["metrics"]["prompt_reuse"]
    assert reuse["cached_tokens"] == sum(record.cached_tokens or 0 for record in records)
    assert reuse["hit_rate"] > 0.5
    assert point["metrics"]["conversations"]["ended"] == {"complete": 3}


@pytest.mark.exhaustive(covers=["armload/analysis/load", "armload/serving"])
def test_conversations_end_when_they_outgrow_their_slot(ann: Person) -> None:
    words = ("--turns", "30", "--prompt-tokens", "36", "--n-predict", "16", "--concurrency", "2")
    found = json.loads(ann.types("load", *CACHING, *words, "--requests", "2", "--json").stdout)
    metrics = found["points"][0]["metrics"]
    assert metrics["conversations"]["ended"] == {"context-full": 2}
    assert metrics["failed"] == {"context-full": 2}
    last = [record for record in latest(ann).requests(0) if record.outcome == "context-full"]
    assert all(3 <= record.turn < 29 for record in last)
    assert metrics["cut_off"] == 0


@pytest.mark.exhaustive(covers=["armload/analysis/load", "armload/serving"])
def test_a_slot_becomes_free_when_its_user_gives_up(ann: Person) -> None:
    # Lengths of 7, 1, 5, 1, 15, 36, 233, 149, 1, 68, 2 and 1 tokens.
    words = ("--prompt-tokens", "4", "--n-predict", "lognormal:8:2", "--seed", "5")
    load = ("--patience", "1", "--concurrency", "2", "--requests", "12", "--json")
    found = json.loads(ann.types("load", *SERVED, *words, *load).stdout)
    kept = latest(ann)
    records = kept.requests(0)
    left = [record for record in records if record.outcome == "abandoned"]
    assert left
    assert all(record.text and record.chunks for record in left)
    metrics = found["points"][0]["metrics"]
    assert metrics["abandoned"]["requests"] == len(left)
    freed_s = metrics["abandoned"]["freed_s"]
    assert freed_s is not None
    assert freed_s < 10
    assert metrics["abandoned"]["left_busy"] == 0
    # Others took their slots: nobody waited for an answer that nobody read.
    for record in records:
        assert record.header_s is not None
        assert record.header_s - record.scheduled_s < 5
    _, steps = read_trace(kept.trace_file(0))
    assert max(step.sequences for step in steps) <= 2
    generated = sum(step.generated_tokens for step in steps)
    read = sum(record.received_tokens for record in records)
    assert generated < read + 10 * len(left)


UNENDING = (*SHORT, "--rate", "5", "--requests", "2000", "--slo", "ttft=60s")
LONG = (*SERVED, *UNENDING)


def test_a_server_that_is_killed_ends_the_load_with_its_cause(ann: Person) -> None:
    process = ann.start("load", *LONG, "--json")
    wait_for_requests(ann, process, 5)
    (server,) = servers(ann)
    server.kill()
    said = assert_the_load_has_ended_with_its_server(ann, process, "killed")
    assert "here no longer serves word-problems-Q8_0.gguf: killed from outside" in said


@pytest.mark.exhaustive(covers=[*COVERED, "armload/deploy", "deploy"])
@pytest.mark.machine
def test_a_board_that_restarts_ends_the_load_and_keeps_nobody_waiting(ann: Person) -> None:
    words = ("--model", "word-problems:Q8_0", "--slots", "2", "--context", "256", *SHORT)
    ann.types("build", "--target", "rk3568", "--programs", "llama-server")
    ann.types("board.up", "--board", "mine")
    process = ann.start(
        *("load", "--board", "mine", *words, "--rate", "5", "--requests", "2000"),
        *("--slo", "ttft=60s", "--json"),
    )
    wait_for_requests(ann, process, 5)
    ann.on_board("sync; (sleep 1; reboot -f) >/dev/null 2>&1 &")
    said = assert_the_load_has_ended_with_its_server(ann, process, "restart")
    assert "mine no longer serves word-problems-Q8_0.gguf: interrupted: the board" in said
    kept = latest(ann)
    (point,) = kept.load.points
    assert point.service_ended
    assert point.clock is not None
    assert ann.on_board("cat /proc/sys/kernel/random/boot_id").strip() != point.clock.boot_id
    # The clock of another boot begins anew.
    _, steps = read_trace(kept.trace_file(0))
    for times in (
        [sample.at_s for sample in kept.board_samples(0)],
        [step.start_ns for step in steps],
    ):
        assert times == sorted(times)
    # The lease of a run that ended with its board keeps nobody waiting.
    ann.types("deploy", "--board", "mine", "--model", "word-problems:Q8_0", "--wait", "5")
    assert json.loads(ann.types("service.list", "--board", "mine", "--json").stdout) == []


BOARD_BYTES = 500 << 20


@pytest.mark.exhaustive(covers=[*COVERED, "armload/deploy", "deploy"])
def test_a_server_without_memory_ends_the_load_and_memory_is_named(
    ann: Person, tmp_path: Path
) -> None:
    with (
        by_ssh(ann) as port,
        limited_group(BOARD_BYTES) as group,
        moved(listener(port), group),
    ):
        process = ann.start("load", "--board", "far", *SERVICE, *UNENDING, "--json")
        wait_for_requests(ann, process, 5)
        (server,) = servers(ann)
        assert str(server.pid) in (group / "cgroup.procs").read_text().split()
        with small_disk(tmp_path / "memory", 2 * BOARD_BYTES >> 20) as memory:
            fill_until_gone(group, memory / "filled", server.pid)
        said = assert_the_load_has_ended_with_its_server(ann, process, "out of memory")
    assert (
        "far no longer serves word-problems-Q8_0.gguf: killed by the kernel: the board ran out "
        "of memory; it was using "
    ) in said
    assert "Use fewer --slots, a smaller --context" in said


def assert_the_load_has_ended_with_its_server(
    person: Person, process: subprocess.Popen[str], kind: str
) -> str:
    """Every request has an outcome, no failure is a success, and nothing is left on the board.

    Args:
        kind: of the server's end.

    Returns:
        what the load has said.
    """
    shown, said = process.communicate(timeout=360)
    assert process.returncode == 9, said
    assert "Traceback" not in said
    document = json.loads(shown)
    kept = latest(person)
    records = kept.requests(0)
    assert [record.number for record in records] == list(range(2000))
    outcomes = Counter(record.outcome for record in records)
    assert set(outcomes) <= {"ok", "dropped", "refused", "cancelled"}
    assert records[0].outcome == "ok"
    assert records[-1].outcome == "cancelled"
    metrics = document["points"][0]["metrics"]
    assert metrics["ok"] == outcomes["ok"] >= 5
    assert sum(metrics["failed"].values()) == 2000 - outcomes["ok"]
    assert not metrics["valid"]
    assert metrics["goodput"]["good"] <= outcomes["ok"]
    assert run_of(person, document["run"])["exit"]["kind"] == kind
    assert_nothing_is_left(person, kept.load.url)
    return said


def killed_load(person: Person) -> tuple[LoadFolder, str]:
    """Kill a load after its first requests; return it with what it had said."""
    process = person.start("load", *LONG)
    wait_for_requests(person, process, 5)
    process.kill()
    said = process.communicate()[1]
    return latest(person), said


@pytest.mark.exhaustive(covers=COVERED)
def test_a_client_that_is_killed_leaves_its_records_and_a_service_that_ends(ann: Person) -> None:
    first = killed_load(ann)
    kept, said = killed_load(ann)  # with the service that the first has left
    assert f"here already serves word-problems-Q8_0.gguf: {kept.load.run}" in said
    assert kept.load.run == first[0].load.run
    recorded = kept.requests(0)
    assert len(recorded) >= 5
    assert {record.outcome for record in recorded} == {"ok"}

    wait_until(lambda: not (servers(ann) or holds_lease(ann)), within_s=120)
    assert_nothing_is_left(ann, kept.load.url)

    found = json.loads(ann.types("show", kept.load.id, "--json").stdout)
    metrics = found["points"][0]["metrics"]
    assert (metrics["ok"], metrics["failed"]) == (len(recorded), {"unknown": 2000 - len(recorded)})
    assert (metrics["valid"], found["capacity"]) == (False, None)
    told = " ".join(ann.types("show", kept.load.id).stdout.split())
    assert f"Incomplete: only {len(recorded)} of 2,000 requests were recorded." in told
    (pulled,) = json.loads(ann.types("pull", "--board", "here", "--json").stdout)["runs"]
    assert pulled == kept.load.run
    assert run_of(ann, pulled)["exit"]["kind"] == "unattended"


@pytest.mark.exhaustive(covers=["armload/engines", "armload/serving"])
def test_a_request_longer_than_a_slot_fails_alone_and_in_the_servers_words(ann: Person) -> None:
    (ann.folder / "requests.jsonl").write_text(
        json.dumps({"prompt": "Ann has 3 apples.", "max_tokens": 3})
        + "\n"
        + json.dumps({"prompt": "Ann has 3 apples. " * 100, "max_tokens": 3})
    )
    words = (*SERVED, "--data", "requests.jsonl", "--concurrency", "1", "--requests", "4")
    found = json.loads(ann.types("load", *words, "--json").stdout)
    metrics = found["points"][0]["metrics"]
    assert (metrics["ok"], metrics["failed"]) == (2, {"http 400": 2})
    assert "context" in latest(ann).requests(0)[1].error


@pytest.mark.exhaustive(covers=COVERED)
def test_a_connection_that_drops_for_ten_seconds_delays_requests_and_ends_no_load(
    ann: Person,
) -> None:
    load = (*SHORT, "--rate", "2", "--duration", "60", "--json")
    with by_ssh(ann) as port:
        process = ann.start("load", "--board", "far", *SERVICE, *load)
        wait_for_requests(ann, process, 3)
        with without_connection(port):
            time.sleep(10)
        shown, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    kept = latest(ann)
    records = kept.requests(0)
    assert len(records) == kept.load.points[0].requests
    assert {record.outcome for record in records} <= {"ok", "dropped", "refused", "timeout"}
    assert records[0].outcome == records[-1].outcome == "ok"
    hit = [record for record in records if record.outcome != "ok" or waited_s(record) > 5]
    assert hit
    metrics = json.loads(shown)["points"][0]["metrics"]
    measured = [record for record in records if not record.is_warmup]
    assert metrics["ok"] == sum(record.outcome == "ok" for record in measured)


def waited_s(record: RequestRecord) -> float:
    return record.end_s - record.scheduled_s


@pytest.mark.exhaustive(covers=COVERED)
@pytest.mark.machine
def test_two_minutes_of_load_on_a_virtual_board_have_no_error(ann: Person) -> None:
    words = ("--board", "mine", "--model", "word-problems:Q8_0", "--slots", "2", "--context", "256")
    load = ("--concurrency", "2", "--duration", "120", *SHORT)
    found = json.loads(ann.types("load", *words, *load, "--json").stdout)
    metrics = found["points"][0]["metrics"]
    # Beside other work the emulated board has answered as few as nine.
    assert metrics["ok"] == metrics["scheduled"] >= 4
    assert metrics["duration_s"] > 110
    assert_tokens_and_times_agree(latest(ann), 0)


def wait_for_requests(person: Person, process: Any, count: int) -> None:
    """Wait until that many requests of a new load have ended."""
    before = set((person.folder / "loads").glob("*"))

    def have_ended() -> bool:
        new = sorted(set((person.folder / "loads").glob("*")) - before)
        files = [folder / "requests-0.jsonl" for folder in new]
        return bool(files) and files[0].is_file() and files[0].read_bytes().count(b"\n") >= count

    wait_until(have_ended, process, within_s=300)
