"""The programs of boards under sanitizers: any report that no file explains fails."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.supervised import ServiceFolder
from tests.system.sanitized import Sanitized, helpers
from tests.system.test_supervise_pass import posted, streamed
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive(
    covers=[
        "toolchains/board",
        "toolchains/native",
        "tests/system/sanitized.py",
        "tests/system/sanitizers",
    ]
)


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return helpers(request.param, tmp_path_factory.mktemp("sanitized"))


@pytest.mark.parametrize("size", [0, 64, 3_000_001])
def test_sums_of_files_and_of_their_parts(built: Sanitized, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    whole = hashlib.sha256(path.read_bytes()).hexdigest()
    assert built.runs(built.words("sha256", path)).out.split() == [whole]
    for block in (1 if size < 1000 else 4097, 1 << 63):
        for more in ((), ("-l", "-c"), ("-s", 7, "-n", 60), ("-s", 1 << 63, "-l")):
            done = built.runs(built.words("sha256", "-b", block, *more, path))
            assert done.status == 0, done.log
    for words in ((tmp_path,), ("-b", 0, path), ("-b", "x", path), ("-b",), (path, path)):
        assert built.runs(built.words("sha256", *words)).status in (1, 2)


def test_rates_of_memory_and_of_storage(built: Sanitized, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3_000_001))
    (tmp_path / "empty").touch()
    (tmp_path / "clock").write_text("2112000000\n")
    (tmp_path / "endless").write_text("9" * 100)
    for words, hz in (
        (("memory", 4, 64 << 20), None),
        (("memory", 4, 64 << 20, tmp_path / "clock"), 2_112_000_000),
        (("memory", 4, 64 << 20, tmp_path / "none"), None),
        (("memory", 4, 64 << 20, tmp_path), None),
        (("memory", 4, 64 << 20, tmp_path / "empty"), None),
        (("memory", 1, 64 << 20, tmp_path / "endless"), 10**18 - 1),
        (("storage", path), None),
        (("evict", path), None),
    ):
        done = built.runs(built.words("rates", *words))
        assert done.status == 0, done.log
        assert json.loads(done.out).get("memory_clock_hz") == hz
    for odd in (
        *(("memory", -1, 1), ("memory", 1, 9 << 60), ("memory", "9" * 30, "9" * 30)),
        *(("storage", tmp_path / "empty"), ("storage", tmp_path), ("evict", "/"), ()),
    ):
        built.runs(built.words("rates", *odd))


def test_a_program_is_watched_whatever_it_does(built: Sanitized, tmp_path: Path) -> None:
    trace = {"ARMLOAD_TRACE": str(tmp_path / "trace.jsonl")}
    wrote = built.runs(built.words("watch", "--", "seq", 20_000), trace)
    assert wrote.out.split() == [str(number) for number in range(1, 20_001)]
    assert '"writes_left_out"' in (tmp_path / "trace.jsonl").read_text().splitlines()[-1]
    ends = {
        ("sh", "-c", "exit 7"): 7,
        ("sh", "-c", "kill -9 $$"): 137,
        ("sh", "-c", "sleep 100 & exit 3"): 3,
        ("/no/such/program",): 127,
        ("/",): 126,
    }
    for words, status in ends.items():
        assert built.runs(built.words("watch", "-e", "A=b", "--", *words), trace).status == status
    for given in ("/dev/full", "/no/such/file"):
        assert built.runs(built.words("watch", "true"), {"ARMLOAD_TRACE": given}).status == 0
    assert built.runs(built.words("watch", "-p", "/dev/full", "--", "true")).status == 0
    assert built.runs(built.words("watch")).status == 2


def test_a_program_is_asked_whatever_the_questions_are(built: Sanitized, tmp_path: Path) -> None:
    path = tmp_path / "questions"
    path.write_bytes(b'1 5\na"\n\xc3\xa4\n2 0\n\n')
    script = "cat; printf ' %s' \"$1\"; exit 4"
    asked = built.runs(built.words("watch", "-q", path, "--", "sh", "-c", script, "x", "b{prompt}"))
    answers = [json.loads(line) for line in asked.out.splitlines()]
    assert [each["stdout"].encode("latin-1") for each in answers] == [
        b'a"\n\xc3\xa4 ba"\n\xc3\xa4',
        b" b",
    ]
    assert [(each["status"], each["cut_by"]) for each in answers] == [(4, ""), (4, "")]
    for words, cut_by in ((("sleep", "9"), "time"), (("yes",), "output")):
        cut = built.runs(built.words("watch", "-q", path, "-t", "1", "--", *words))
        assert [json.loads(line)["cut_by"] for line in cut.out.splitlines()] == [cut_by] * 2
    for content in (b"1 9\nab\n", b"1\n", b"1 -1\n", b"x" * 200, b"1 99999999999999\nab\n"):
        path.write_bytes(content)
        assert built.runs(built.words("watch", "-q", path, "--", "cat")).status == 126, content
    assert built.runs(built.words("watch", "-q", "/no/such/file", "--", "cat")).status == 126


def test_clocks_are_read_from_whatever_files_are_named(built: Sanitized, tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("528000000\n")
    (tmp_path / "odd").write_text("<unknown>\n")
    (tmp_path / "negative").write_text("-5\n")
    named = [tmp_path / each for each in ("memory", "none", "odd", "negative")]
    for paths, khz in (
        (" ".join(map(str, [*named, tmp_path, named[0]])), [528_000, 0, 0, 0, 0, 528_000]),
        (f"{named[0]}  {named[0]} ", [528_000, 0, 528_000]),
        (" ".join(["x" * 5000, str(named[0])]), [0, 528_000]),
        (" ".join([str(named[0])] * 40), [528_000] * 16),
        ("", None),
    ):
        trace = tmp_path / "trace.jsonl"
        sees = {"ARMLOAD_TRACE": str(trace), "ARMLOAD_CLOCKS": paths}
        assert built.runs(built.words("watch", "--", "seq", 3), sees).status == 0
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        assert {tuple(each.get("device_khz", ["none"])) for each in lines if "step" in each} == {
            ("none",) if khz is None else tuple(khz)
        }
        trace.unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_a_program_that_is_watched(
    built: Sanitized, tmp_path: Path, number: signal.Signals
) -> None:
    trace = tmp_path / "trace.jsonl"
    words = built.words("watch", "-p", tmp_path / "id", "--", "sleep", 100)
    process = built.starts(words, {"ARMLOAD_TRACE": str(trace)})
    wait_until(lambda: (tmp_path / "id").exists() and "look_ns" in trace.read_text(), process)
    process.send_signal(number)
    assert built.ended(process).status == 128 + number


def test_output_that_nobody_reads_any_more_is_dropped(built: Sanitized, tmp_path: Path) -> None:
    words = built.words("watch", "--", "seq", 200_000)
    with built.starts(words, {"ARMLOAD_TRACE": str(tmp_path / "trace.jsonl")}) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        done = built.ended(process)
    assert done.status == 1
    assert "cannot be passed on" in done.log


def first_line(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_the_monitor_answers_one_client_after_another(built: Sanitized) -> None:
    process = built.starts(built.words("monitor"))
    port = first_line(process)
    for asked in (b"c", b"s", b"cs" * 50, b"\0\xff", b""):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(asked)
            lines = client.makefile()
            for _ in asked:
                assert json.loads(lines.readline())["at_ns"] > 0
    # One that hangs up without reading.
    socket.create_connection(("127.0.0.1", port), timeout=20).close()
    process.terminate()
    assert built.ended(process).status == -signal.SIGTERM


def test_the_connection_between_two_boards(built: Sanitized) -> None:
    server = built.starts(built.words("link", "serve", "127.0.0.1", "2"))
    port = first_line(server)
    socket.create_connection(("127.0.0.1", port), timeout=20).close()
    asked = built.runs(built.words("link", "ask", "127.0.0.1", port, "2"))
    assert asked.status == 0, asked.log
    assert json.loads(asked.out)["round_trip_s"] > 0
    assert built.ended(server).status == 0
    server = built.starts(built.words("link", "serve", "127.0.0.1", "2"))
    with socket.create_connection(("127.0.0.1", first_line(server)), timeout=20) as client:
        client.sendall(b"f" + b"\xff" * 8)
        client.recv(1 << 16)
    server.kill()
    built.ended(server)


def test_small_programs_with_good_and_bad_words(built: Sanitized) -> None:
    assert json.loads(built.runs(built.words("link", "clock")).out)["monotonic_ns"] > 0
    assert built.runs(built.words("cpu_features")).status == 0
    assert json.loads(built.runs(built.words("clock", 0)).out)["core"] == 0
    assert built.runs(built.words("pin", 1, "true")).status == 0
    for words in (
        *(("clock", 1 << 40), ("clock", "x"), ("clock", 1023), ("clock", -1)),
        *(("pin", "f" * 4000, "true"), ("pin", "x", "true"), ("pin", 1), ("pin",)),
        *(("link", "serve", "x"), ("link", "ask", "127.0.0.1", "0"), ("link",)),
    ):
        built.runs(built.words(*words))


def test_a_service_is_kept_running(built: Sanitized, tmp_path: Path) -> None:
    service = ServiceFolder(tmp_path / "service", built.words("supervise"))
    environment = {
        **built.environment(),
        "NOTIFY_SOCKET": "@armload-nobody",
        "WATCHDOG_USEC": "9000",
    }
    words = "seq 1 9000; sleep 1000 & exit 3"
    service.server("a", failures=3, settled_s=0, silence_s=1, log_bytes=5000)
    service.version("b", words, failures=3, log_bytes=5000, memory_limit_bytes=1 << 40)
    service.use("a")
    try:
        process = service.start(environment)
        child = service.waits_for(state="ready")["child"]
        os.kill(child, signal.SIGKILL)
        service.waits_for(state="ready", restarts=1)
        (service.folder / "hang").touch()
        wait_until(lambda: service.state()["last_end"]["what"] == "no answer", process)
        (service.folder / "hang").unlink()
        service.waits_for(state="ready")
        service.use("b")
        (service.folder / "trial").write_text("a\n")
        process.send_signal(signal.SIGHUP)
        service.waits_for(state="ready", fell_back={"from": "b", "why": "exit 3"})
        process.terminate()
        assert built.ended(process).status == 0
        service.use("b")
        assert built.ended(service.start(environment)).status == 69
        for damaged in ("", "../a", "x" * 9000, "gone"):
            service.use(damaged)
            assert built.ended(service.start(environment)).status == 78
        settings = service.folder / "versions" / "b" / "supervisor"
        for odd in (
            *("", "\n", "port 1\nport 1", "port " + "9" * 4000, "\xff 1", "a" * 5000),
            *("port 1\naddress ::1\nfailures 1", "port 1\nuid 0\ngid 0\nfailures 1\nload_s 1"),
        ):
            settings.write_text(odd)
            service.use("b")
            assert built.ended(service.start(environment)).status in (69, 78)
        assert built.runs(built.words("supervise")).status == 2
    finally:
        service.close()


def test_connections_are_passed_on(built: Sanitized, tmp_path: Path) -> None:
    service = ServiceFolder(tmp_path / "service", built.words("supervise"))
    for name in ("a", "b"):
        service.behind(name, listen="127.0.0.1,::1", drain_s=2, failures=3)
    service.use("a")
    silent = []
    try:
        process = service.start(built.environment())
        service.waits_for(state="ready")
        for odd in (
            *(
                b"",
                b"\n",
                b"\r\n\r\n",
                b"GET\r\nConnection:\r\n\r\n",
                b"GET / HTTP/1.1\r\n\r\n" * 900,
            ),
            *(b"x" * 16_384, os.urandom(100_000), b"x" * 16_348 + b"\r\n\r\n"),
        ):
            with socket.create_connection(("::1", service.port)) as line:
                line.sendall(odd)
        silent = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(150)]
        body = os.urandom(1_000_000)
        with ThreadPoolExecutor(4) as pool:
            passed = [pool.submit(posted, service, body) for _ in range(8)]
            long = pool.submit(streamed, service, 1000)
            wait_until(lambda: all(each.done() for each in passed), process)
            service.use("b")
            process.send_signal(signal.SIGHUP)
            service.waits_for(state="ready", version="b")
            os.kill(service.state()["child"], signal.SIGKILL)
            service.waits_for(restarts=1)
            passed += [pool.submit(posted, service, body) for _ in range(8)]
            assert all(each.result()[1] == body for each in passed)
            assert long.exception() is not None
        process.terminate()
        assert built.ended(process).status == 0
    finally:
        for each in silent:
            each.close()
        service.close()
