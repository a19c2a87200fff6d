"""``armload load`` as it is typed, against services whose behaviour is known."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.load.records import Load, LoadPoint
from armload.cli.load_options import LoadOptions
from armload.cli.load_plan import is_sized, stop_condition_of
from armload.core.errors import RunError
from armload.core.files import write_whole
from armload.core.values import as_json
from armload.serving.loads import LoadFolder
from tests import forked
from tests.command_line import BIN, BOUND_BY_PERMISSIONS, typed
from tests.stub_service import StubService, stub_service
from tests.waiting import wait_until

similar = pytest.mark.exhaustive(covers=["armload/cli", "armload/serving"])


def the_load(folder: Path) -> Path:
    (path,) = (folder / "loads").iterdir()
    return path


def test_a_sweep_is_one_line_for_each_rate_and_one_document(tmp_path: Path) -> None:
    words = ("--rate", "20,40", "--requests", "8", "--slo", "ttft=30s", "--n-predict", "3")
    with stub_service() as service:
        printed = typed(tmp_path, "load", "--url", f"{service.url}/v1", *words, "--json")
    shown = typed(tmp_path, "show", "latest-load")
    assert (shown.returncode, printed.returncode) == (0, 0), shown.stderr + printed.stderr
    assert "20/s" in shown.stdout
    assert "40/s" in shown.stdout
    assert "8/8" in shown.stdout
    found = json.loads(printed.stdout)
    assert [point["rate"] for point in found["points"]] == [20.0, 40.0]
    assert found["model"] == "stub"
    for point in found["points"]:
        metrics = point["metrics"]
        assert (metrics["requests"], metrics["ok"], metrics["output_tokens"]) == (8, 8, 24)
        assert metrics["goodput"]["good"] == 8


def test_a_newcomers_load_says_before_it_begins_how_long_it_takes(tmp_path: Path) -> None:
    words = ("--rate", "4", "--duration", "1", "--arrivals", "constant", "--prompt-tokens", "8")
    with stub_service(gap_s=0.05) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--n-predict", "16", "--json")
    assert done.returncode == 0, done.stderr
    assert re.search(r"One request takes about [\d.]+ s alone; the load takes about", done.stderr)
    limits = [body["max_tokens"] for _, body in service.bodies]
    assert limits == [1, 8, 16, 16, 16, 16]
    assert (
        "Each rate lasts 1 s, of which the first 0.17 s are warm-up (not counted)." in done.stderr
    )
    metrics = json.loads(done.stdout)["points"][0]["metrics"]
    assert (metrics["warmup"], metrics["requests"]) == (1, 3)


@pytest.mark.parametrize(
    ("words", "duration_s", "warmup_s", "warmup", "sized"),
    [
        ({"rate": (1.0,)}, 600.0, 100.0, 0, True),
        ({"rate": (1.0, 10_000.0)}, 50.0, 50 / 6, 0, True),
        ({"rate": (1.0,), "warmup": 3}, 600.0, 0.0, 3, True),
        ({"rate": (1.0,), "duration": 30.0}, 30.0, 5.0, 0, False),
        ({"rate": (1.0,), "duration": 30.0, "warmup": 0}, 30.0, 0.0, 0, False),
        ({"rate": (1.0,), "requests": 30}, None, 0.0, 0, False),
        ({"rate": (1.0,), "arrivals": "seed"}, 60.0, 0.0, 0, False),
        ({"concurrency": (2,)}, 60.0, 0.0, 0, False),
    ],
)
def test_a_rate_warms_up_for_a_sixth_of_its_time_unless_the_requests_are_counted(
    words: dict[str, Any],
    duration_s: float | None,
    warmup_s: float,
    warmup: int,
    *,
    sized: bool,
) -> None:
    options = LoadOptions(**words)
    stop = stop_condition_of(options)
    assert (stop.duration_s, stop.warmup) == (duration_s, warmup)
    assert stop.warmup_s == pytest.approx(warmup_s)
    assert is_sized(options) == sized


def on_a_terminal(folder: Path, *words: str) -> tuple[int, str]:
    """Give a command on a terminal of 80 columns; return its status, and what it told there."""
    person, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen(
        [str(BIN / "armload"), *words],
        cwd=folder,
        env=environment | {"TERM": "xterm"},
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=end,
    ) as process:
        os.close(end)
        heard = b""
        with suppress(OSError):  # so a terminal tells that nobody writes to it any more
            while part := os.read(person, 1 << 16):
                heard += part
    os.close(person)
    return process.returncode, heard.decode()


@similar
def test_on_a_terminal_a_load_shows_its_last_seconds_while_it_runs(tmp_path: Path) -> None:
    words = ("--concurrency", "4", "--requests", "12", "--n-predict", "8")
    with stub_service(header_s=0.1, gap_s=0.05, slots=2) as service:
        service.waiting = 7
        status, heard = on_a_terminal(tmp_path, "load", "--url", service.url, *words)
    assert status == 0, heard
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", heard)
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", plain)]
    assert max(map(len, lines)) <= 80
    for row in (
        r"  rate +4 clients, [\d.]+/s answered \(last \d+ s\)",
        r"  received +\d+ tokens?",
        r"  in flight +4, [1-4] of them without a token yet",
        r"  first token +p50 [\d.]+ m?s, p95 [\d.]+ m?s",
        r"  per token +p50 [\d.]+ ms, p95 [\d.]+ ms",
        r"  failed +none",
        r"  slots +2 busy, 7 queued",
    ):
        assert any(re.fullmatch(row, line) for line in lines), (row, lines)


def test_clients_exports_and_a_key_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("right\n")
    words = ("--concurrency", "2", "--requests", "6", "--export", "csv,vllm")
    with stub_service(api_key="right") as service:
        done = typed(tmp_path, "load", "--url", service.url, "--api-key-file", "key", *words)
        refused = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    folder = the_load(tmp_path)
    assert {"requests.csv", "vllm-0.json"} <= {path.name for path in folder.iterdir()}
    assert "right" not in (folder / "load.json").read_text()
    assert refused.returncode == 2
    assert "--api-key-file" in refused.stderr


def interrupted(
    folder: Path, service: StubService, *words: str, when: Callable[[], bool]
) -> tuple[str, str]:
    """Press Ctrl-C when something holds; return what was shown and said."""
    command = [str(BIN / "armload"), "load", "--url", service.url, "--n-predict", "2", *words]
    with forked.popen(command, cwd=folder, env=os.environ) as process:
        wait_until(when, process)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Interrupted." in said
    assert "Traceback" not in said
    return shown, " ".join(said.split())


def test_the_loads_are_listed_with_their_rates_and_their_results(tmp_path: Path) -> None:
    plain = LoadPoint(requests=40, started_utc="2026-11-25T10:00:00Z", began_client_s=1.0)
    search = [
        plain.model_copy(update={"rate": rate, "verdict": verdict})
        for rate, verdict in ((0.5, "sustained"), (0.75, "sustained"), (1.25, "not sustained"))
    ]
    ended, open_one = ({"service_ended": "It was killed."}, {"is_under_way": True})
    loads: dict[str, tuple[str, list[LoadPoint], bool]] = {
        "a1a1": (
            "poisson",
            [plain.model_copy(update={"rate": each}) for each in (2, 0.5, 2)],
            False,
        ),
        "b2b2": ("closed", [plain.model_copy(update={"concurrency": 1, **ended})], False),
        "c3c3": ("poisson", [plain.model_copy(update={"rate": 3, **open_one})], False),
        "d4d4": ("poisson", search, True),
    }
    for number, (end, (arrivals, points, finds_rate)) in enumerate(loads.items()):
        load = Load(
            id=f"20261125T10000{number}Z-load-kitchen-{end}",
            started_utc=f"2026-11-25T10:0{number}:00+00:00",
            armload="0",
            url="http://127.0.0.1:8080",
            model="m.gguf",
            dialect="openai",
            seed=1,
            requests_from="a file",
            board="kitchen" if end == "b2b2" else "",
            arrivals=arrivals,
            points=tuple(points),
            finds_rate=finds_rate,
        )
        write_whole(tmp_path / "loads" / load.id / "load.json", as_json(load).encode())
    damaged = tmp_path / "loads" / "20261125T100009Z-load-kitchen-e5e5" / "load.json"
    write_whole(damaged, b"{}")
    shown = typed(tmp_path, "show", "--loads")
    rows = [re.split(r"  +", line.strip()) for line in shown.stdout.splitlines() if "2026" in line]
    there = "127.0.0.1:8080"
    assert rows == [
        ["a1a1", "2026-11-25 10:00", there, "m.gguf", "0.5, 2 /s", "120", "ended"],
        ["b2b2", "2026-11-25 10:01", "kitchen", "m.gguf", "1 client", "40", "service ended"],
        ["c3c3", "2026-11-25 10:02", there, "m.gguf", "3 /s", "40", "incomplete"],
        ["d4d4", "2026-11-25 10:03", there, "m.gguf", "search, 3 rates", "120", "0.75/s sustained"],
    ]
    assert "skipped:" in shown.stderr
    last = typed(tmp_path, "show", "--loads", "--last", "2")
    assert last.stdout.count("2026-") == 1
    assert "armload show --loads --last 5" in last.stderr.partition("3 older: ")[2]
    ids = json.loads(typed(tmp_path, "show", "--loads", "--json").stdout)
    assert [each[-4:] for each in ids] == [*loads, "e5e5"]
    assert typed(tmp_path, "show", "latest-load", "--loads").returncode == 2
    assert "No loads yet" in typed(damaged.parent, "show", "--loads").stderr


def test_the_percentiles_that_are_chosen_are_in_tables_page_and_document(tmp_path: Path) -> None:
    words = ("--rate", "50,60", "--requests", "8", "--n-predict", "3", "--export", "vllm")
    # Chunks that arrive at once have no time per token.
    with stub_service(gap_s=0.05) as service:
        done = typed(
            *(tmp_path, "load", "--url", service.url, *words, "--percentiles", "99.9,25,95,25")
        )
    assert done.returncode == 0, done.stderr
    headings = re.findall(r"\bp[\d.]+\b", done.stdout.partition("50/s")[0])
    assert headings == ["p25", "p95", "p99.9"] * 3
    folder = the_load(tmp_path)
    again = json.loads(typed(tmp_path, "show", folder.name, "--json").stdout)
    for point in again["points"]:
        for found in (point["metrics"]["from_scheduled"]["ttft"], point["metrics"]["tpot"]):
            values = {name: each["value_s"] for name, each in found["percentiles"].items()}
            assert list(values) == ["p25", "p50", "p90", "p95", "p99", "p99.9"]
            assert list(values.values()) == sorted(values.values())
    page = (folder / "report.html").read_text()
    assert "first token p95" in page
    assert "first token p50" not in page
    assert "25% of the requests had their first token within" in page
    assert "99.9% within" in page
    assert "p95_ttft_ms" in json.loads((folder / "vllm-0.json").read_text())


def test_repeats_with_the_largest_seed_go_on_with_the_smallest(tmp_path: Path) -> None:
    words = ("--rate", "50", "--requests", "3", "--repeats", "2", "--n-predict", "1")
    with stub_service() as service:
        done = typed(*(tmp_path, "load", "--url", service.url, *words, "--seed", str(2**32 - 1)))
    assert done.returncode == 0, done.stderr
    load = LoadFolder.read(the_load(tmp_path)).load
    assert [load.seed, *(point.seed for point in load.points)] == [2**32 - 1, None, 0]


@similar
def test_requests_that_a_cap_held_back_are_told_with_their_wait(tmp_path: Path) -> None:
    words = ("--rate", "40", "--requests", "20", "--arrivals", "constant", "--n-predict", "1")
    capped = ("--max-concurrency", "2", "--slo", "ttft=150ms")
    with stub_service(header_s=0.1) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, *capped)
        said = " ".join(done.stdout.split())
        printed = typed(tmp_path, "load", "--url", service.url, *words, *capped, "--json")
    assert done.returncode == 0, done.stderr
    told = re.search(r"At 40/s: (\d+) of 20 requests waited for --max-concurrency, up to", said)
    assert told is not None, said
    assert int(told[1]) >= 15
    (point,) = json.loads(printed.stdout)["points"]
    # This machine may be too busy to be on time; what was held back does not count as late.
    kinds = {each["kind"] for each in point["metrics"]["findings"]}
    assert kinds <= {"client late"}
    held = point["metrics"]["held"]
    assert held["max_s"] > max(0.3, point["metrics"]["lateness"]["max_s"])
    assert max(point["slow"], key=lambda cause: point["slow"][cause]) == "held back"
    for folder in (tmp_path / "loads").iterdir():
        assert "waited for --max-concurrency, up to" in (folder / "report.html").read_text()


def test_ctrl_c_keeps_every_request_with_an_outcome_and_shows_the_figures(tmp_path: Path) -> None:
    with stub_service() as service:
        words = ("--rate", "20", "--duration", "90")
        shown, said = interrupted(tmp_path, service, *words, when=lambda: len(service.bodies) >= 10)
    assert "20/s" in shown
    kept = LoadFolder.read(the_load(tmp_path))
    assert "Run the command again to start over." in said
    assert said.endswith(f"To show them: armload show {kept.load.id}")
    records = kept.requests(0)
    assert len(records) == kept.load.points[0].requests > 1_000
    outcomes = [record.outcome for record in records]
    assert set(outcomes) <= {"ok", "cancelled"}
    assert outcomes[0] == "ok"
    assert outcomes[-1] == "cancelled"
    told = " ".join(shown.split())
    assert "requests were cancelled." in told
    assert "failed" not in told


@pytest.mark.parametrize("before", [0, 1])
def test_ctrl_c_before_a_load_leaves_nothing_and_begins_none(before: int, tmp_path: Path) -> None:
    with stub_service(stuck_after=before) as service:
        words = ("--rate", "20", "--requests", "5")
        shown, said = interrupted(
            tmp_path, service, *words, when=lambda: len(service.bodies) > before
        )
    assert shown == ""
    assert "armload show" not in said
    assert not (tmp_path / "loads").exists()


@pytest.mark.parametrize(
    "level", [("--rate", "20"), pytest.param(("--concurrency", "2"), marks=similar)]
)
def test_ctrl_c_during_the_warm_up_keeps_it_and_measures_nothing(
    level: tuple[str, str], tmp_path: Path
) -> None:
    with stub_service(gap_s=0.02) as service:
        words = (*level, "--requests", "400", "--warmup", "380", "--slo", "ttft=1s")
        shown, said = interrupted(tmp_path, service, *words, when=lambda: len(service.bodies) >= 10)
    kept = LoadFolder.read(the_load(tmp_path))
    assert said.endswith(f"To show them: armload show {kept.load.id}")
    answered = [record for record in kept.requests(0) if record.outcome == "ok"]
    assert answered
    assert all(record.is_warmup for record in answered)
    assert "not valid: No request succeeded." in " ".join(shown.split())
    again = typed(tmp_path, "show", kept.load.id, "--json")
    (point,) = json.loads(again.stdout)["points"]
    assert (point["metrics"]["ok"], point["metrics"]["cut_short"]) == (0, True)


SEARCH = ("--find-rate", "--slo", "e2e=2s")


def found_rates(folder: Path) -> list[Path]:
    """Return the requests of rates that a search has tried."""
    headers = folder.glob("loads/*/load.json")
    searches = [path.parent for path in headers if '"finds_rate": true' in path.read_text()]
    return [path for search in searches for path in search.glob("requests-*.jsonl")]


def test_ctrl_c_during_the_probe_of_a_search_says_where_its_records_are(tmp_path: Path) -> None:
    with stub_service(header_s=0.05, slots=2) as service:
        shown, said = interrupted(tmp_path, service, *SEARCH, when=lambda: len(service.bodies) >= 6)
    probe = LoadFolder.read(the_load(tmp_path))
    assert shown == ""
    assert "The records of the probe are kept; no rate was tried yet." in said
    assert "Run the command again to start over." in said
    assert said.endswith(f"To show them: armload show {probe.load.id}")
    assert len(probe.requests(0)) > 0


@similar
def test_ctrl_c_during_a_search_shows_the_rates_that_were_tried(tmp_path: Path) -> None:
    def is_searching() -> bool:
        return any(path.stat().st_size > 0 for path in found_rates(tmp_path))

    with stub_service(header_s=0.02, slots=2) as service:
        shown, said = interrupted(
            tmp_path, service, *SEARCH, "--max-time", "120", when=is_searching
        )
    (requests,) = found_rates(tmp_path)
    kept = LoadFolder.read(requests.parent)
    (point,) = kept.load.points
    assert f"{point.rate:g}/s" in shown
    assert "requests were cancelled." in " ".join(shown.split())
    assert "Run the command again to start the search over." in said
    assert len(kept.requests(0)) == point.requests
    assert point.verdict is None


def test_a_client_that_is_killed_leaves_what_it_has_recorded(tmp_path: Path) -> None:
    words = ("--rate", "20", "--requests", "1000", "--n-predict", "2")
    with (
        stub_service() as service,
        forked.popen(
            [str(BIN / "armload"), "load", "--url", service.url, *words],
            cwd=tmp_path,
            env=os.environ,
        ) as process,
    ):
        wait_until(lambda: len(service.bodies) >= 10, process)
        process.kill()
    kept = LoadFolder.read(the_load(tmp_path))
    records = kept.requests(0)
    assert kept.load.points[0].requests == 1000
    assert 5 <= len(records) < 1000
    assert {record.outcome for record in records} == {"ok"}
    about = kept.load.points[0]
    assert 0 < time.monotonic() - about.began_client_s < 600
    told = " ".join(typed(tmp_path, "show", kept.load.id).stdout.split())
    assert "failed" not in told
    assert f"Incomplete: only {len(records)} of 1,000 requests were recorded." in told


@similar
def test_conversations_with_a_shared_prefix_are_shown_with_what_was_cached(
    tmp_path: Path,
) -> None:
    words = ("--rate", "20", "--requests", "10", "--turns", "3", "--n-predict", "2")
    shared = ("--prefix-tokens", "6", "--prefix-share", "0.5", "--prompt-tokens", "4")
    with stub_service(cached=3) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, *shared, "--slo", "ttft=9s")
    assert done.returncode == 0, done.stderr
    assert "One conversation takes about" in done.stderr
    told = " ".join(done.stdout.split())
    assert "At 20/s: 10 conversations of 3 turns on average, all complete." in told
    assert "43% of the prompt tokens came from the server's cache (90 of 210)." in told
    prompts = [body["prompt"] for _, body in service.bodies[2:]]
    assert len(prompts) == 30
    firsts = [prompt for prompt in prompts if "\n" not in prompt]
    assert sorted({len(prompt.split()) for prompt in firsts}) == [4, 10]
    begun = {" ".join(prompt.split()[:6]) for prompt in firsts if len(prompt.split()) == 10}
    assert len(begun) == 1
    kept = LoadFolder.read(the_load(tmp_path))
    assert "50% of conversations begin with the same 6 tokens" in kept.load.requests_from
    again = " ".join(typed(tmp_path, "show", kept.load.id).stdout.split())
    assert "10 conversations of 3 turns" in again
    page = (the_load(tmp_path) / "report.html").read_text()
    assert "20 conversations/s: 10 conversations of 3 turns on average" in page


@similar
def test_users_who_give_up_are_no_failures_and_are_told(tmp_path: Path) -> None:
    words = ("--rate", "20", "--requests", "10", "--patience", "0.3", "--abort-on", "1")
    with stub_service(gap_s=0.05) as service:
        done = typed(
            *(tmp_path, "load", "--url", service.url, *words),
            *("--n-predict", "uniform:2-20", "--slo", "ttft=9s", "--json"),
        )
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(done.stdout)["points"]
    metrics = point["metrics"]
    left = metrics["abandoned"]["requests"]
    assert 0 < left < 10
    assert metrics["failed"] == {"abandoned": left}
    assert {each["kind"] for each in metrics["findings"]} <= {"client late"}
    assert metrics["abandoned"]["freed_s"] is not None
    assert metrics["goodput"]["good"] <= 10 - left


def test_a_service_that_dies_in_the_middle_is_told_with_what_was_measured(tmp_path: Path) -> None:
    words = ("--rate", "50", "--requests", "30", "--json", "--n-predict", "2")
    with stub_service() as service:
        service.behaviour.cut_after = 1
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 9, done.stderr
    metrics = json.loads(done.stdout)["points"][0]["metrics"]
    assert (metrics["ok"], metrics["failed"], metrics["valid"]) == (0, {"dropped": 30}, False)


@similar
def test_a_load_in_a_folder_that_cannot_be_written_is_shown_without_a_page(tmp_path: Path) -> None:
    with stub_service() as service:
        words = ("--rate", "50", "--requests", "5", "--n-predict", "2")
        typed(tmp_path, "load", "--url", service.url, *words)
    folder = the_load(tmp_path)
    (folder / "report.html").unlink()
    folder.chmod(0o555)
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, str(BIN / "armload"), "show", folder.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "5/5" in done.stdout
    assert "page" not in done.stdout
    assert "The page was not written" in done.stderr


@pytest.mark.parametrize(
    "level", [("--rate", "20,40"), pytest.param(("--concurrency", "2,4"), marks=similar)]
)
def test_a_load_ends_with_a_status_of_its_own_at_the_failure_that_is_one_too_many(
    level: tuple[str, str], tmp_path: Path
) -> None:
    words = (*level, "--requests", "200", "--abort-on", "3", "--n-predict", "2", "--json")
    with stub_service(gap_s=0.02, status=503, answered=10) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
        sent = len(service.bodies)
    assert done.returncode == RunError.exit_status, done.stderr
    said = " ".join(done.stderr.split())
    assert "3 requests failed (3 server-error 503), as many as --abort-on allows." in said
    # Two requests go ahead of the load, eight are answered, three fail; few may be under way.
    assert 13 <= sent < 20
    (point,) = json.loads(done.stdout)["points"]
    metrics = point["metrics"]
    # One that is being answered when the third fails is cut short.
    assert metrics["ok"] in range(6, 9)
    assert metrics["failed"]["server-error 503"] in range(3, sent - 9)
    assert (metrics["valid"], metrics["cut_short"]) == (False, True)


@pytest.mark.parametrize(
    ("allowed", "status"), [pytest.param("4", RunError.exit_status, marks=similar), ("5", 0)]
)
def test_only_so_many_failures_end_a_load(allowed: str, status: int, tmp_path: Path) -> None:
    words = ("--concurrency", "1", "--requests", "10", "--abort-on", allowed, "--n-predict", "2")
    with stub_service(status=503, answered=8) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--json")
    assert done.returncode == status, done.stderr
    metrics = json.loads(done.stdout)["points"][0]["metrics"]
    assert (metrics["ok"], metrics["failed"]) == (6, {"server-error 503": 4})


@similar
def test_failures_count_for_each_rate_alone(tmp_path: Path) -> None:
    words = ("--rate", "50,60,70", "--requests", "4", "--abort-on", "4", "--n-predict", "2")
    with stub_service(status=503, answered=5) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--json")
    assert done.returncode == RunError.exit_status, done.stderr
    first, second = json.loads(done.stdout)["points"]
    assert (first["metrics"]["ok"], second["metrics"]["ok"]) == (3, 0)
    assert first["metrics"]["failed"] == {"server-error 503": 1}


def under_a_limit_of_files(folder: Path, limit: str, url: str) -> Any:
    words = ("--rate", "100", "--requests", "90", "--arrivals", "constant", "--n-predict", "1")
    command = f'ulimit {limit} && exec "$@"'
    program = [str(BIN / "armload"), "load", "--url", url, *words, "--json"]
    return subprocess.run(
        ["sh", "-c", command, "sh", *program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@similar
def test_the_clients_own_limit_on_open_files_is_raised_and_else_named(tmp_path: Path) -> None:
    with stub_service(header_s=2) as service:
        raised = under_a_limit_of_files(tmp_path, "-S -n 64", service.url)
        limited = under_a_limit_of_files(tmp_path, "-n 64", service.url)
    assert raised.returncode == 0, raised.stderr
    (point,) = json.loads(raised.stdout)["points"]
    assert (point["metrics"]["ok"], point["metrics"]["failed"]) == (90, {})
    (point,) = json.loads(limited.stdout)["points"]
    assert set(point["metrics"]["failed"]) == {"client-limit"}
    assert not point["metrics"]["valid"]


def test_a_load_that_ends_within_its_warm_up_says_so_and_measured_nothing(tmp_path: Path) -> None:
    words = ("--concurrency", "1", "--duration", "0.2", "--warmup", "100000", "--n-predict", "1")
    with stub_service(gap_s=0.05) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 9, done.stderr
    assert "all requests at 1 client were warm-up." in " ".join(done.stderr.split())
    assert "a smaller --warmup" in done.stderr
