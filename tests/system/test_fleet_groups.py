"""A group of boards behind a gateway, beside the same group without it, and what goes wrong."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import RunError
from tests.labs import Lab, runs_of
from tests.networks import network_of_its_own
from tests.outside_data import STORIES, needs_stories
from tests.services import rpc_servers
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(covers=["armload/fleet", "armload/runs", "armload/boards/group.py"]),
    needs_stories,
]
MODEL = ("--model", str(STORIES))
LONG = ("--model", "demo", "-n", "64", "-t", "1", "--repeats", "1", "--json")
"""The small model would have ended before anything can fail."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"), {"hall": ("one", "two"), "cellar": ("three",)})
    made.add_group("pair", "two", "one")
    made.add_group("across", "one", "three")
    made.boards = {"hall": ("pair",), "cellar": ("three",)}
    made.start()
    yield made
    made.stop()


def through(lab: Lab, board: str = "pair") -> tuple[str, ...]:
    return ("--board", board, "--scheduler", lab.address)


def nothing_is_left(lab: Lab) -> None:
    hall = lab.gateways["hall"]
    assert not list(hall.runs.glob("*/run.json"))
    assert not rpc_servers(hall.folder)
    for name in ("one", "two"):
        assert not list((hall.folder / f"{name}-board" / "lease").glob("*.*.*"))


def steady(run: dict[str, Any]) -> dict[str, Any]:
    """Return what two runs of the same have in common."""
    parts = run["prediction"]["group"]["parts"]
    return {
        **{key: run[key] for key in ("plan", "binary", "text", "fingerprint")},
        "names": sorted(run),
        "model": {**run["model"], "path": ""},
        "board": run["board"]["name"],
        "shares": [(each["board"], sorted(each)) for each in run["spread"]["shares"]],
        "split": run["spread"]["split"],
        "links": [each["board"] for each in run["spread"]["links"]],
        "steps": len(run["steps"]),
        "predicted": [(each["kind"], each["board"]) for each in parts],
        "members": [(sorted(each), each["board"], each["exit"]) for each in run["members"]],
    }


def is_first(run: dict[str, Any]) -> bool:
    """Return whether it was expected that each member had to be sent its part."""
    return "group" in [each["kind"] for each in run["prediction"]["notes"]]


def layers(run: dict[str, Any]) -> list[int]:
    """Return how many each member has; what memory is free decides."""
    return [share["layers"] for share in run["spread"]["shares"]]


def test_a_run_is_the_same_as_without_a_gateway(lab: Lab) -> None:
    assert "Offering two, one to" in lab.log("hall")
    words = (*MODEL, "-n", "24", "--new")
    first = lab.ann.benches(*words, "--scheduler", lab.address, board="pair")
    assert is_first(first)
    there = lab.ann.benches(*words, "--scheduler", lab.address, board="pair")
    here = lab.ann.benches(*words, board="pair")
    assert steady(there) == steady(here)
    assert is_first(there) == (layers(there) != layers(first)), "members keep their parts"
    files = [
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        for folder in (lab.ann.runs / run["id"] for run in (there, here))
    ]
    assert files[0] == files[1]
    nothing_is_left(lab)


@pytest.mark.parametrize("split", ["tensor", "auto"])
def test_a_model_is_split_as_asked_for(lab: Lab, split: str) -> None:
    words = (*MODEL, "-n", "8", "--split", split)
    run = lab.ann.benches(*words, "--scheduler", lab.address, board="pair")
    assert run["text"] == lab.ann.benches(*words, "--scheduler", lab.address, board="pair")["text"]
    if split == "tensor":
        assert run["spread"]["split"] == "tensor"
        assert [each["board"]["name"] for each in run["members"]] == ["two", "one"]
    else:
        chosen = run["spread"]["chosen"]
        assert 0 < chosen["layer_s"] < chosen["tensor_s"]
    nothing_is_left(lab)


def test_members_of_one_network_reach_each_other_without_the_gateway(lab: Lab) -> None:
    with network_of_its_own() as network:
        for person in (lab.ann, lab.gateways["hall"]):
            person.add_board("near", f"members: [two, one]\nlisten: {network.here}\n")
        done = lab.ann.types("bench", *through(lab, "near"), *MODEL, "-n", "8", "--json")
    assert "which have no authentication" in done.stderr
    run = json.loads(done.stdout)
    assert f"--rpc {network.here}:" in " ".join(run["command"])
    assert run["spread"]["is_direct"]
    nothing_is_left(lab)


def test_it_is_predicted_without_weights_as_without_a_gateway(lab: Lab) -> None:
    words = ("fit", *MODEL, "--json")
    found = json.loads(lab.ann.types(*words, *through(lab)).stdout)
    here = json.loads(lab.ann.types(*words, "--board", "pair").stdout)
    (there,), (direct,) = found["models"], here["models"]
    divided = r"Layers: two \d, one \d\. With --split tensor: about "
    for each in (there, direct):
        assert re.search(divided, each["sentence"])
        assert each["prediction"]["compute"] == "operations"
    assert there["prediction"]["memory"].keys() == direct["prediction"]["memory"].keys()
    assert [(part["kind"], part["board"]) for part in there["prediction"]["group"]["parts"]] == [
        ("member", "two"),
        ("member", "one"),
        ("link", "one"),
    ]
    large = ("fit", "--model", "like:qwen3.5-35b-a3b:F16", "--json", *through(lab))
    (refused,) = json.loads(lab.ann.types(*large).stdout)["models"]
    assert refused["prediction"]["verdict"] == "cannot run"
    assert "exceeds what is free: two " in refused["sentence"]


def test_it_answers_a_questionnaire_as_one_board_does(lab: Lab) -> None:
    graded = []
    for board in ("one", "pair"):
        words = ("--task", "word-problems", "--limit", "1", "--budget", "24", "--threads", "1")
        done = lab.ann.types("eval", *through(lab, board), "--model", "word-problems:Q8_0", *words)
        assert re.search(r"takes? (at least|about) .* if all answers are that long", done.stderr)
        path = max(lab.ann.folder.glob("evaluations/*/answers-*.jsonl"))
        graded.append([json.loads(line)["text"] for line in path.read_text().splitlines()])
    assert graded[0] == graded[1] != []
    nothing_is_left(lab)


def test_a_group_and_its_members_take_turns(lab: Lab) -> None:
    words = (*MODEL, "-t", "1", "-n", "40", "--repeats", "3", "--json")
    boards = ("pair", "one", "pair", "two")
    before = {*runs_of(lab.ann)}
    commands = [
        lab.ann.start("bench", *through(lab, board), *words, "--new", "--seed", str(seed))
        for seed, board in enumerate(boards)
    ]
    for command in commands:
        _, err = command.communicate(timeout=600)
        assert command.returncode == 0, err
    spans: dict[str, list[tuple[int, int]]] = {"one": [], "two": []}
    for run in runs_of(lab.ann).values():
        if run["id"] not in before:
            span = (run["steps"][0]["start_ns"], run["steps"][-1]["end_ns"])
            board = run["board"]["name"]
            for member in spans if board == "pair" else (board,):
                spans[member].append(span)
    for each in spans.values():
        assert len(each) == 9
        assert all(one[1] < other[0] for one, other in pairwise(sorted(each)))
    nothing_is_left(lab)


def test_a_group_that_no_gateway_has_whole_is_refused_and_so_are_verbs_without_groups(
    lab: Lab,
) -> None:
    host, scheduler = socket.gethostname(), ("--scheduler", lab.address)
    refused = lab.ann.types("bench", "--board", "across", *scheduler, status=6)
    said = f"No worker of {lab.address} offers all members of across: one ({host}), three ({host})."
    assert said in refused.stderr
    assert f"armload worker --scheduler {lab.address} --boards one,three" in refused.stderr
    for words in (("tune", *MODEL), ("deploy", *MODEL), ("pull",)):
        done = lab.ann.types(*words, "--board", "pair", *scheduler, status=2)
        assert (
            "pair is a group of boards, and this command takes only single boards." in done.stderr
        )


def begun(lab: Lab) -> subprocess.Popen[str]:
    """Start a long run on the group, and wait until it has written some tokens."""
    runs = lab.gateways["hall"].folder / "two-board" / "runs"
    earlier = {*runs.glob("*/trace.jsonl")}
    process = lab.ann.start("bench", *through(lab), *LONG)

    def is_begun() -> bool:
        new = {*runs.glob("*/trace.jsonl")} - earlier
        return any(each.read_bytes().count(b'"step"') > 10 for each in new)

    wait_until(is_begun, process, within_s=300)
    return process


def new_run(lab: Lab, before: set[Path]) -> dict[str, Any]:
    (path,) = {*lab.ann.runs.glob("*/run.json")} - before
    run: dict[str, Any] = json.loads(path.read_text())
    return run


def test_a_member_that_is_lost_is_named_and_the_tokens_before_come_back(lab: Lab) -> None:
    before = {*lab.ann.runs.glob("*/run.json")}
    process = begun(lab)
    (server,) = rpc_servers(lab.gateways["hall"].folder)
    server.kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == RunError.exit_status
    assert "pair: member one was lost: killed from outside (SIGKILL)" in err
    run = new_run(lab, before)
    assert run["exit"]["kind"] == "member lost"
    assert 10 <= len(run["steps"]) < 64
    nothing_is_left(lab)


def test_ctrl_c_stops_the_group_and_brings_the_partial_run(lab: Lab) -> None:
    before = {*lab.ann.runs.glob("*/run.json")}
    process = begun(lab)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    run = new_run(lab, before)
    assert run["exit"]["kind"] == "stopped"
    assert 10 <= len(run["steps"]) < 64
    assert [each["board"]["name"] for each in run["members"]] == ["one"]
    nothing_is_left(lab)


@pytest.mark.parametrize("lost", ["hall", "scheduler"])
def test_a_run_is_whole_although_its_gateway_or_scheduler_was_killed(lab: Lab, lost: str) -> None:
    before = {*lab.ann.runs.glob("*/run.json")}
    process = begun(lab)
    lab.kill(lost)
    if lost == "scheduler":
        lab.start_scheduler()
    else:
        lab.start_gateway(lost)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    run = new_run(lab, before)
    assert run["exit"]["kind"] == "done"
    assert [each["exit"]["kind"] for each in run["members"]] == ["done"]
    nothing_is_left(lab)
