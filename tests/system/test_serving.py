"""Services as a person starts them: reached, found again, ended, and after every fault."""

from __future__ import annotations

import json
import signal
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from armload.core.progress import Silent
from armload.engines.service_plan import ServingPlan
from armload.runs.request import Request
from armload.serving.observation import Scraper
from armload.serving.service import Service
from armload.serving.starting import served
from tests.faults import without_connection
from tests.outside_data import shared
from tests.person import Person
from tests.system.serving import (
    Serving,
    board_folder,
    by_ssh,
    holds_lease,
    in_place_of,
    run_of,
    server_process,
    servers,
    serving,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.build

COVERED = ["armload/serving", "armload/engines/server.py", "armload/boards/forward.py", "deploy"]
MODEL = "word-problems:Q8_0"
FAST = ("--model", MODEL, "--threads", "1", "--slots", "2", "--context", "256")


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("serving") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    return person


def test_a_service_answers_until_ctrl_c_and_is_a_run_then(ann: Person) -> None:
    with serving(ann, *FAST) as service:
        about = service.about
        assert about["board"] == "here"
        assert not about["is_detached"]
        assert not about["was_running"]
        assert about["plan"]["prompt_cache_bytes"] == 0
        answer = service.complete("Ann has 3 apples.", 8)
        assert answer["usage"]["completion_tokens"] == 8

        wrong = service.ask("v1/completions", key="wrong", prompt="Ann", max_tokens=1)
        assert wrong.status_code == 401
        long = service.ask("v1/completions", prompt="apples " * 300, max_tokens=1)
        assert long.status_code == 400
        assert "context" in long.json()["error"]["message"]
        cut = service.ask("v1/completions", prompt="Ann has 3", max_tokens=500, ignore_eos=True)
        assert cut.json()["choices"][0]["finish_reason"] == "length"
        assert cut.json()["usage"]["total_tokens"] == 256

        chats = ann.types("load", *load_of_chats(service), "--n-predict", "4", "--json").stdout
        assert json.loads(chats)["points"][0]["metrics"]["ok"] == 2

        board_key = board_folder(ann) / "api-key"
        for path in (board_key, Path(about["api_key_file"])):
            assert path.read_text().strip() == service.key
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        process = server_process(ann)
        assert service.key not in " ".join(process.cmdline())
        assert service.key not in str(process.environ())
        listening = {one.laddr.ip for one in process.net_connections() if one.status == "LISTEN"}
        assert listening == {"127.0.0.1"}

        service.process.send_signal(signal.SIGINT)
        said = service.ends(0)
        assert "Stopped. Its run is kept in " in said
    assert "cleaning up before exit" not in said, "the log of its end is fetched, not shown"
    service.leaves_nothing(ann)
    run = run_of(ann, about["run"])
    assert run["exit"]["kind"] == "done"
    assert run["arguments"]["slots"] == 2
    assert run["result"]["generated_tokens"] > 0
    kept = [path.read_bytes() for path in (ann.runs / about["run"]).iterdir()]
    assert not any(service.key.encode() in content for content in kept)
    assert about["run"] in json.loads(ann.types("show", "--json").stdout)
    assert about["run"] in ann.types("show", about["run"]).stdout


@pytest.mark.exhaustive(covers=["armload/engines", "armload/runs", "armload/serving"])
def test_with_one_slot_greedy_answers_are_those_of_eval(ann: Person) -> None:
    asked = ("--task", "word-problems", "--limit", "3", "--threads", "1", "--budget", "80")
    ann.types("eval", "--board", "here", "--model", MODEL, *asked)
    (folder,) = ann.folder.glob("evaluations/*")
    items = {
        item["id"]: item
        for path in folder.glob("items/*.jsonl")
        for item in map(json.loads, path.read_text().splitlines())
    }
    answers = [
        json.loads(line)
        for path in folder.glob("answers-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(answers) == 3
    one_slot = ("--model", MODEL, "--threads", "1", "--slots", "1", "--context", "512")
    with serving(ann, *one_slot) as service:
        for answer in answers:
            item = items[answer["id"]]
            body = {"messages": item["messages"], "max_tokens": item["max_tokens"]}
            shown = service.ask("v1/chat/completions", **body).json()["choices"][0]["message"]
            assert shown["content"] == answer["text"]


@pytest.mark.exhaustive(covers=COVERED)
def test_streamed_weights_and_chat_without_a_template_are_served(ann: Person) -> None:
    plain = str(shared("stories260K.gguf"))
    words = ("--model", plain, "--threads", "1", "--slots", "1", "--weights", "streamed")
    with serving(ann, *words, "--resident", "200 kB") as service:
        messages = [{"role": "user", "content": "Once upon a time"}]
        chat = service.ask("v1/chat/completions", messages=messages, max_tokens=4)
        assert chat.status_code == 200, chat.text
        expected = shared("stories260K.expected.txt").read_text().strip()
        answer = service.complete("Once upon a time", 20)
        assert expected.removeprefix("Once upon a time").startswith(answer["choices"][0]["text"])
        assert_a_load_of_chats_is_refused(ann, service)
    run = run_of(ann, service.about["run"])
    assert run["trace"]["weights"][-1]["weights"] == "streamed"


def load_of_chats(service: Serving) -> tuple[str, ...]:
    where = ("--url", service.about["url"], "--api-key-file", service.about["api_key_file"])
    return (*where, "--dialect", "openai-chat", "--concurrency", "1", "--requests", "2")


def assert_a_load_of_chats_is_refused(person: Person, service: Serving) -> None:
    """The service's model has no chat template: that, where, and what to do are said."""
    before = set((person.folder / "loads").glob("*"))
    refused = person.types("load", *load_of_chats(service), status=2).stderr
    said = " ".join(refused.split())
    assert f"{service.about['url']}: stories260K has no chat template." in said
    assert "Use --dialect openai, with prompts instead of messages in --data." in said
    assert set((person.folder / "loads").glob("*")) == before


def test_a_detached_service_keeps_the_board_until_it_is_stopped(ann: Person) -> None:
    started = json.loads(ann.types("serve", "--board", "here", *FAST, "--detach", "--json").stdout)
    assert (started["is_detached"], started["url"]) == (True, None)
    (listed,) = json.loads(ann.types("service.list", "--board", "here", "--json").stdout)
    assert (listed["name"], listed["kind"]) == (started["run"], "detached")
    assert started["run"] in ann.types("service.list", "--board", "here").stdout

    with serving(ann, "--model", MODEL) as again:  # whatever its options are
        assert again.about["run"] == started["run"]
        assert (again.about["was_running"], again.about["plan"]["slots"]) == (True, 2)
        again.complete("Ann has 3 apples.", 4)
    assert servers(ann), "a command that found it has ended it"

    busy = ann.types("bench", "--board", "here", "--model", MODEL, status=10)
    assert f"serving {started['run']}" in busy.stderr
    assert "armload service.stop --board here" in busy.stderr

    stopped = json.loads(ann.types("service.stop", "--board", "here", "--json").stdout)
    assert (stopped["name"], stopped["kind"]) == (started["run"], "detached")
    assert run_of(ann, started["run"])["exit"]["kind"] == "done"
    again.leaves_nothing(ann)
    none = ann.types("service.stop", "--board", "here", status=2)
    assert "here has no running service." in none.stderr
    assert json.loads(ann.types("service.list", "--board", "here", "--json").stdout) == []


@pytest.mark.exhaustive(covers=["armload/engines", "armload/runs", "armload/serving"])
def test_a_service_ends_soon_after_its_client_was_killed(ann: Person) -> None:
    with serving(ann, *FAST) as service:
        service.process.kill()
        service.process.communicate()
        wait_until(lambda: not (servers(ann) or holds_lease(ann)), within_s=120)
    (pulled,) = json.loads(ann.types("pull", "--board", "here", "--json").stdout)["runs"]
    assert pulled == service.about["run"]
    assert run_of(ann, pulled)["exit"]["kind"] == "unattended"
    assert not Path(service.about["api_key_file"]).exists()
    with pytest.raises(requests.ConnectionError):
        requests.get(service.about["url"], timeout=5)


def test_a_server_that_was_killed_is_told_with_its_run(ann: Person) -> None:
    with serving(ann, *FAST) as service:
        server_process(ann).kill()
        said = service.ends(9)
    assert "here no longer serves word-problems-Q8_0.gguf: killed from outside" in said
    assert run_of(ann, service.about["run"])["exit"]["kind"] == "killed"
    service.leaves_nothing(ann)


def test_a_port_that_is_taken_is_refused_before_anything_is_done(ann: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = ann.types("serve", "--board", "here", *FAST, "--port", str(port), status=2)
    assert f"Port {port} of this machine cannot be used: " in refused.stderr
    assert not servers(ann)


PLAN = ServingPlan(slots=2, context_tokens=256, threads=1)


def test_the_boards_clock_its_state_and_its_trace_are_told(ann: Person) -> None:
    with in_place_of(ann), served(Request(board="here"), MODEL, PLAN, Silent()) as service:
        clock = service.clock()
        # The board is this machine, and its clock the same.
        assert abs(clock.board_minus_client_s) <= clock.error_s <= 0.005
        began_s = time.monotonic()
        answer = asked(service, n_predict=12)
        ended_s = time.monotonic()
        asked(service, n_predict=5)
        lines = [json.loads(line) for line in service.trace(began_s, ended_s)]
        header, *steps = lines
        assert header["clock"] == "CLOCK_MONOTONIC"
        decoded = sum(step["generated_tokens"] for step in steps)
        assert decoded == answer["timings"]["predicted_n"] - 1
        assert sum(step["prompt_tokens"] for step in steps) == answer["timings"]["prompt_n"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # it would be told the key
            sample = service.sample()
            scraped = Scraper(service.url, service.api_key, Silent()).scrape()
        assert abs(sample["at_s"] - time.monotonic()) < 60
        assert sample["memory_available_bytes"] > 0
        assert scraped is not None
        waiting = [f"llamacpp:requests_{kind}" for kind in ("processing", "deferred")]
        assert [scraped.gauges[name] for name in waiting] == [0, 0]
        assert scraped.counters["llamacpp:tokens_predicted_total"] == 17


def asked(service: Service, **body: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {service.api_key}"}
    request = {"prompt": "Ann has 3 apples.", "ignore_eos": True, **body}
    answer = requests.post(f"{service.url}/completion", json=request, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.exhaustive(covers=COVERED)
def test_a_connection_that_is_down_for_ten_seconds_harms_nothing(ann: Person) -> None:
    with (
        by_ssh(ann) as port,
        in_place_of(ann),
        served(Request(board="far"), MODEL, PLAN, Silent()) as service,
    ):
        asked(service, n_predict=2)
        with without_connection(port):
            time.sleep(10)
            service.check()
        asked(service, n_predict=2)
        service.check()
        assert service.clock().error_s <= 0.05
        assert service.sample()["memory_available_bytes"] > 0
    assert run_of(ann, service.run)["exit"]["kind"] == "done"


@pytest.mark.machine
@pytest.mark.exhaustive(covers=COVERED)
def test_a_board_that_restarts_no_longer_serves_and_what_was_served_is_a_run(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path / "ann")
    words = ("--model", MODEL, "--threads", "1", "--slots", "1", "--context", "256")
    try:
        with serving(person, *words, board="mine") as service:
            service.complete("Ann has 3 apples.", 4)
            person.on_board("sync; (sleep 1; reboot -f) >/dev/null 2>&1 &")
            said = service.ends(9)
        assert "mine no longer serves word-problems-Q8_0.gguf: interrupted: the board" in said
        assert run_of(person, service.about["run"])["exit"]["kind"] == "restart"
        assert json.loads(person.types("service.list", "--board", "mine", "--json").stdout) == []
        assert not Path(service.about["api_key_file"]).exists()
    finally:
        person.types("board.down", "--board", "mine", "--yes")
