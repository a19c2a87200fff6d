"""One model over two boards, which here are this machine twice."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import armload.runs.session
from armload.bench.board import run_once
from armload.bench.sweeping import combinations
from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.core.errors import BoardError, RunError, UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.runs.request import Request
from tests.networks import network_of_its_own
from tests.outside_data import STORIES, needs_stories
from tests.person import Person
from tests.servers import openssh
from tests.services import is_listening, rpc_servers
from tests.system.serving import in_place_of, serving
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    needs_stories,
]

exhaustive = pytest.mark.exhaustive(
    covers=["armload/runs", "armload/boards/forward.py", "armload/engines/spread.py", "deploy/run"]
)
LAUNCHER = ("qemu-aarch64", "-cpu", "cortex-a76")
MODEL = ("--model", str(STORIES))


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("ann"))
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    for name in ("one", "two"):
        person.add_emulated(name)
    person.add_board("both", "members: [two, one]\n")
    return person


def test_a_group_writes_what_one_board_writes_and_leaves_nothing_running(ann: Person) -> None:
    alone = ann.benches(*MODEL, "-n", "24", board="one")
    run = ann.benches(*MODEL, "-n", "24", board="both")
    assert run["text"] == alone["text"]
    assert run["exit"]["meaning"] == "done"
    assert run["board"]["name"] == "both"
    assert [share["board"] for share in run["spread"]["shares"]] == ["two", "one"]
    assert sum(share["layers"] for share in run["spread"]["shares"]) == 5
    assert len(run["steps"]) == len(alone["steps"])
    (other,) = run["members"]
    assert other["board"]["name"] == "one"
    assert other["exit"]["kind"] == "done"
    assert other["memory"]["max_rss_bytes"] > 1_000_000
    assert other["sent_bytes"] > other["received_bytes"] > 24 * 512 * 4
    (link,) = run["spread"]["links"]
    assert link["board"] == "one"
    assert 0 < link["round_trip_s"] < 0.1
    assert link["exchange_s"] > 0
    assert min(link["to_bytes_per_s"], link["from_bytes_per_s"]) > 1e5
    assert other["samples"]
    assert other["clock_error_s"] < 1
    starts_s = run["steps"][0]["start_ns"] / 1e9
    assert all(-60 < sample["at_s"] - starts_s < 60 for sample in other["samples"])
    shown = ann.types("show", run["id"]).stdout
    assert "connection: round trip" in shown
    assert not rpc_servers(ann.folder)
    for name in ("one", "two"):
        assert not list((ann.folder / f"{name}-board" / "lease").glob("*.*.*"))
    ann.types("pull", "--board", "one")
    assert len(list(ann.runs.glob("*/run.json"))) == 2


@exhaustive
def test_a_part_of_every_layer_gives_the_same_text(ann: Person) -> None:
    alone = ann.benches(*MODEL, "-n", "16", board="one")
    run = ann.benches(*MODEL, "-n", "16", "--split", "tensor", board="both")
    assert run["text"] == alone["text"]
    assert run["exit"]["kind"] == "done"
    assert run["spread"]["split"] == "tensor"
    assert [member["board"]["name"] for member in run["members"]] == ["two", "one"]
    assert not rpc_servers(ann.folder)


@exhaustive
def test_the_faster_split_is_taken_and_it_is_recorded_why(ann: Person) -> None:
    words = ("--board", "both", *MODEL, "-n", "8", "-t", "1", "--split", "auto", "--repeats", "1")
    done = ann.types("bench", *words, "--json")
    run = json.loads(done.stdout)
    chosen = run["spread"]["chosen"]
    assert 0 < chosen["layer_s"] < chosen["tensor_s"]
    assert run["spread"]["split"] == "layer"
    assert run["plan"]["split"] == "auto"
    assert "both: --split auto takes layer: about " in done.stderr
    prediction = run["prediction"]
    assert prediction["token_s"]["value"] == pytest.approx(chosen["layer_s"], rel=0.05)
    assert [part["kind"] for part in prediction["group"]["parts"]] == ["member", "member", "link"]


@exhaustive
def test_a_watched_program_of_llama_cpp_runs_on_a_group_and_any_other_is_refused(
    ann: Person,
) -> None:
    built = ann.types("build", "--target", "rk3568", "--programs", "llama-bench", "--json")
    (binary,) = json.loads(built.stdout)
    program = binary["path"]
    words = ("--put", program, "--put", str(STORIES), "--json", "--", program)
    done = ann.types("watch", "--board", "both", *words, "-m", str(STORIES), "-p", "8", "-n", "8")
    run = json.loads(done.stdout)
    assert run["exit"]["kind"] == "done"
    assert "RPC" in run["text"]
    assert "--rpc 127.0.0.1:" in " ".join(run["command"])
    assert run["members"][0]["sent_bytes"] > 100_000
    assert not rpc_servers(ann.folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("true",), "true: only llama.cpp's programs run on a group of boards"),
        (("llama-bench", "-p", "8"), "llama-bench: no model is named"),
        (("llama-cli", "-m", "x.gguf", "-ngl", "9"), "-ngl: armload divides the model"),
    ],
)
def test_a_watched_program_that_a_group_cannot_run_is_refused_at_once(
    ann: Person, words: tuple[str, ...], said: str
) -> None:
    done = ann.types("watch", "--board", "both", "--", *words, status=UsageError.exit_status)
    assert said in done.stderr


ONE_QUESTION = ("--task", "word-problems", "--limit", "1", "--budget", "24", "--threads", "1")


@exhaustive
def test_a_group_answers_a_questionnaire_as_one_board_does(ann: Person) -> None:
    graded = []
    for board in ("one", "both"):
        words = ("--board", board, "--model", "word-problems:Q8_0", *ONE_QUESTION)
        ann.types("eval", *words)
        path = max(ann.folder.glob("evaluations/*/answers-*.jsonl"))
        graded.append([json.loads(line)["text"] for line in path.read_text().splitlines()])
    assert graded[0] == graded[1] != []
    assert not rpc_servers(ann.folder)


@exhaustive
def test_a_group_serves_until_ctrl_c_and_cannot_be_left_alone(ann: Person) -> None:
    small = ("--model", "word-problems:Q8_0", "--threads", "1", "--slots", "1", "--context", "256")
    with serving(ann, *small, board="both") as service:
        assert service.about["board"] == "both"
        assert service.complete("Ann has 3 apples.", 8)["usage"]["completion_tokens"] == 8
        assert len(rpc_servers(ann.folder)) == 1
        service.process.send_signal(signal.SIGINT)
        service.ends(0)
    run = json.loads((ann.runs / service.about["run"] / "run.json").read_text())
    assert run["exit"]["kind"] == "done"
    assert run["members"][0]["sent_bytes"] > 100_000
    assert not rpc_servers(ann.folder)
    done = ann.types("serve", "--board", "both", *small, "--detach", status=UsageError.exit_status)
    assert "--detach: both is a group of boards" in done.stderr


@pytest.mark.exhaustive(covers=["armload/analysis", "armload/bench", "armload/runs"])
def test_fit_says_how_a_group_would_divide_a_model(ann: Person) -> None:
    found = json.loads(ann.types("fit", "--board", "both", *MODEL, "--json").stdout)
    (model,) = found["models"]
    assert found["board"] == "both"
    assert model["prediction"]["verdict"] == "fits"
    divided = r"Layers: two \d, one \d\. With --split tensor: about "  # by measured speed
    assert re.search(divided, model["sentence"])
    prediction = model["prediction"]
    parts = prediction["group"]["parts"]
    assert [(part["kind"], part["board"]) for part in parts] == [
        ("member", "two"),
        ("member", "one"),
        ("link", "one"),
    ]
    assert prediction["token_s"]["value"] == pytest.approx(sum(part["token_s"] for part in parts))
    assert prediction["ttft_s"]["value"] > prediction["load_s"]["value"] > 0


def test_what_does_not_fit_on_a_group_is_said_and_not_begun(ann: Person) -> None:
    words = ("--board", "both", "--model", "like:qwen3.5-35b-a3b:F16")
    found = json.loads(ann.types("fit", *words, "--json").stdout)
    assert found["models"][0]["prediction"]["verdict"] == "cannot run"
    assert "exceeds what is free: two " in found["models"][0]["sentence"]


@pytest.mark.parametrize(
    "words",
    [
        ("board.probe",),
        ("tune", *MODEL),
    ],
    ids=lambda words: words[0],
)
def test_verbs_that_do_not_take_groups_say_so(ann: Person, words: tuple[str, ...]) -> None:
    rest = words[1:]
    done = ann.types(words[0], "--board", "both", *rest, status=UsageError.exit_status)
    assert "both is a group of boards, and this command takes only single boards." in done.stderr


class EmulatedSsh(SshHost):
    """This machine behind SSH, running programs for ARM."""

    @property
    def launcher(self) -> tuple[str, ...]:
        return LAUNCHER


@exhaustive
def test_members_that_are_reached_by_ssh_write_the_same_and_no_port_stays_open(
    ann: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: dict[str, SshAddress] = {}
    monkeypatch.setattr(
        armload.runs.session,
        "connect",
        lambda board, _progress: EmulatedSsh(addresses[board.name], board.name),
    )
    plan = Plan(prompt="Once", n_predict=24, threads=1)
    with in_place_of(ann), ExitStack() as stack:
        for name in ("first", "second"):
            addresses[name] = stack.enter_context(openssh(tmp_path / name))
            ann.add_board(
                name,
                f"target: rk3568\nworkdir: {tmp_path / name / 'board'}\n"
                "reach: {kind: ssh, host: 127.0.0.1}\n",
            )
        ann.add_board("lab", "members: [first, second]\n")
        (one,) = combinations([str(STORIES)], [plan], Silent())
        alone, _ = run_once(Request(board="first"), one, Silent())
        run, _ = run_once(Request(board="lab"), one, Silent())
    assert run.text == alone.text
    (other,) = run.members
    assert other.sent_bytes is not None
    assert other.received_bytes is not None
    assert other.sent_bytes > other.received_bytes > 24 * 512 * 4
    assert run.spread is not None
    assert [link.board for link in run.spread.links] == ["second"]
    (port,) = re.findall(r"--rpc 127\.0\.0\.1:(\d+)", " ".join(run.command))
    assert not is_listening(int(port))
    assert not rpc_servers(ann.folder)


@exhaustive
def test_members_of_one_network_reach_each_other_without_this_machine(ann: Person) -> None:
    with network_of_its_own() as network:
        ann.add_board("near", f"members: [two, one]\nlisten: {network.here}\n")
        words = ("--board", "near", *MODEL, "-n", "8", "-t", "1", "--repeats", "1", "--json")
        done = ann.types("bench", *words)
    assert "which have no authentication" in done.stderr
    run = json.loads(done.stdout)
    assert run["exit"]["kind"] == "done"
    assert f"--rpc {network.here}:" in " ".join(run["command"])
    assert run["spread"]["is_direct"]
    assert run["members"][0]["sent_bytes"] is None
    ann.add_board("far", "members: [two, one]\nlisten: 172.31.255.0/30\n")
    away = ("--board", "far", *MODEL, "--repeats", "1")
    done = ann.types("bench", *away, status=BoardError.exit_status)
    assert "one: it has no address in 172.31.255.0/30" in done.stderr
    assert not rpc_servers(ann.folder)


@exhaustive
def test_a_member_that_is_lost_is_named_and_the_tokens_before_are_kept(ann: Person) -> None:
    # The small model would have ended before its server is found.
    words = ("--model", "demo", "-n", "300", "-t", "1", "--repeats", "1", "--json")
    before, earlier = {*ann.runs.glob("*")}, {*traces(ann)}
    process = ann.start("bench", "--board", "both", *words)
    wait_until(
        lambda: any(each.read_bytes().count(b'"step"') > 20 for each in {*traces(ann)} - earlier),
        within_s=180,
    )
    (server,) = rpc_servers(ann.folder)
    server.kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == RunError.exit_status
    assert "both: member one was lost: killed from outside (SIGKILL)" in err
    (kept,) = {*ann.runs.glob("*")} - before
    run = json.loads((kept / "run.json").read_text())
    assert run["exit"]["kind"] == "member lost"
    assert not run["verdict"]["valid"]
    assert 20 < len(run["steps"]) < 300
    assert len(run["text"]) > 20
    assert not rpc_servers(ann.folder)
    for name in ("one", "two"):
        assert not list((ann.folder / f"{name}-board" / "lease").glob("*.*.*"))


def traces(person: Person) -> Iterator[Path]:
    """Return the traces that lie on the first member."""
    return (person.folder / "two-board" / "runs").glob("*/trace.jsonl")
