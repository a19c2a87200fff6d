"""Groups that run distributed-llama; their boards are this machine several times."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from armload.core.errors import BoardError, RunError, UsageError
from armload.core.progress import Silent
from armload.models.synth import synthesise
from tests.distributed import SHAPE, provide_source
from tests.faults import small_disk
from tests.networks import network_of_its_own
from tests.person import Person
from tests.waiting import wait_until

pytestmark = pytest.mark.build

exhaustive = pytest.mark.exhaustive(
    covers=[
        "armload/runs",
        "armload/bench/engine_choice.py",
        "armload/engines/distributed.py",
        "toolchains/dllama",
    ]
)
NODE = "armload-dllama"
SLEEPING = ("--engine", "dllama", "--engine-args=--poll 0")
"""Nodes that ask each other again and again would keep this machine's few cores from each other."""


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    provide_source()
    person = Person(tmp_path_factory.mktemp("ann"))
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    for name in ("one", "two", "three", "four"):
        person.add_emulated(name)
    person.add_board("both", "members: [two, one]\n")
    person.add_board("all", "members: [one, two, three, four]\n")
    path = person.folder / "model.gguf"
    synthesise(SHAPE, path, quantisation="Q4_0", seed=1, progress=Silent())
    return person


def nodes(person: Person) -> list[psutil.Process]:
    """Return the nodes of distributed-llama that run in a person's folder."""
    found = []
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or ()
        if any(word.startswith(f"{person.folder}/") and word.endswith(NODE) for word in words):
            found.append(each)
    return found


def leases(person: Person) -> Iterator[Path]:
    return person.folder.glob("*-board/lease/*.*.*")


def test_one_board_runs_it_and_says_which_engine_that_was(ann: Person) -> None:
    run = ann.benches("--model", "model.gguf", "-n", "12", *SLEEPING, board="one")
    assert run["exit"]["kind"] == "done"
    assert run["engine_name"] == NODE
    assert run["plan"]["engine"] == "dllama"
    assert run["binary"]["source"] == "distributed-llama 8d624a7"
    assert run["spread"] is None
    assert {step["sync_ns"] for step in run["steps"]} == {None}
    assert sum(step["generated_tokens"] for step in run["steps"]) == 11
    assert len(run["text"].split()) >= 6
    assert "distributed-llama 8d624a7" in ann.types("show", run["id"]).stdout


def test_two_boards_share_each_layer_and_leave_nothing_running(ann: Person) -> None:
    run = ann.benches("--model", "model.gguf", "-n", "12", *SLEEPING, board="both")
    assert run["exit"]["kind"] == "done"
    first, second = run["spread"]["shares"]
    assert (first["board"], second["board"]) == ("two", "one")
    assert first["layers"] == second["layers"] == SHAPE.layers
    assert first["memory_bytes"] > second["memory_bytes"]
    assert all(step["sync_ns"] > 0 for step in run["steps"])
    (other,) = run["members"]
    assert other["exit"]["kind"] == "done"
    assert other["threads"] == 1
    assert other["node"]["computing_s"] > 0
    assert other["sent_bytes"] > sum(step["sent_bytes"] for step in run["steps"])
    assert run["limit"]["figures"]["kind"] == "shared layers"
    assert [part["board"] for part in run["limit"]["figures"]["parts"]] == ["two", "one"]
    assert not nodes(ann)
    assert not list(leases(ann))
    key = (ann.folder / "two-board" / "node-key").read_text().strip()
    assert key not in json.dumps(run)
    assert (ann.folder / "one-board" / "node-key").stat().st_mode & 0o077 == 0


@exhaustive
def test_the_engine_with_the_faster_forecast_runs_and_why_is_said(ann: Person) -> None:
    words = ("--model", "model.gguf", "-n", "4", "-t", "1", "--repeats", "1", "--json")
    done = ann.types("bench", "--board", "both", "--engine", "auto", *words)
    run = json.loads(done.stdout)
    assert run["exit"]["kind"] == "done"
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("--engine auto: ")]
    assert said.startswith(f"--engine auto: {run['plan']['engine']} for model.gguf: about ")
    found = json.loads(ann.types("fit", "--board", "both", *words[:2], "-t", "1", "--json").stdout)
    ways = {
        each["kind"]: each for each in found["models"][0]["prediction"]["division"]["alternatives"]
    }
    assert set(ways) == {"alone, mapped", "alone, streamed", "dllama"}
    assert ways["dllama"]["token_s"]["value"] > 0
    assert "was not timed" not in done.stderr
    again = ("--model", "model.gguf", "-n", "12", *SLEEPING)
    forecast = ann.benches(*again, board="both")["prediction"]
    assert forecast["compute"] == "operations"
    assert forecast["token_s"]["value"] > 0


@pytest.mark.exhaustive(covers=["armload/evaluation/logits", "armload/conversion/distributed.py"])
def test_its_logits_are_compared_with_those_of_llama_cpp_on_a_board(ann: Person) -> None:
    (ann.folder / "prompts.txt").write_text("The people went out to see the river.\nThe trees\n")
    words = ("--board", "one", "--model", "model.gguf", "--reference", "dllama", "-t", "1")
    data = ("--task", "logits", "--data", "prompts.txt", "--json")
    found = json.loads(ann.types("eval", *data, *words).stdout)["agreement"]
    assert found["reference"] == "dllama"
    assert len(found["prompts"]) == 2
    assert 0 < found["kl_mean"] < 0.05


def test_several_boards_are_no_case_for_auto(ann: Person) -> None:
    words = ("--engine", "auto", "--model", "model.gguf")
    done = ann.types("bench", "--board", "one,two", *words, status=UsageError.exit_status)
    assert "--engine auto chooses for one board or group" in done.stderr


@exhaustive
def test_four_boards_are_connected_each_to_each(ann: Person) -> None:
    run = ann.benches("--model", "model.gguf", "-n", "8", *SLEEPING, board="all")
    assert run["exit"]["kind"] == "done"
    assert [member["exit"]["kind"] for member in run["members"]] == ["done"] * 3
    assert "--peers" in run["command"][-1]
    assert not nodes(ann)


@exhaustive
def test_boards_of_one_network_reach_each_other_without_this_machine(ann: Person) -> None:
    with network_of_its_own() as network:
        ann.add_board("near", f"members: [two, one]\nlisten: {network.here}\n")
        words = (
            "--board",
            "near",
            "--model",
            "model.gguf",
            "-n",
            "8",
            "-t",
            "1",
            "--repeats",
            "1",
            "--json",
        )
        done = ann.types("bench", *words, *SLEEPING)
    assert "which is not encrypted" in done.stderr
    run = json.loads(done.stdout)
    assert run["exit"]["kind"] == "done"
    assert f"--workers {network.here}:" in run["command"][-1]
    assert run["members"][0]["sent_bytes"] is None


def test_what_cannot_be_shared_is_refused_before_anything_is_copied(ann: Person) -> None:
    ann.add_board("three-of-them", "members: [one, two, three]\n")
    before = {*ann.folder.glob("three-board/**/*")}
    words = ("--board", "three-of-them", "--model", "model.gguf", *SLEEPING)
    done = ann.types("bench", *words, status=UsageError.exit_status)
    assert "the number of boards must be a power of two" in done.stderr
    assert "It can run on 1 or 2 or 4" in done.stderr
    copied = {*ann.folder.glob("three-board/**/*")} - before
    assert not [path for path in copied if path.suffix == ".m" or path.name == NODE]


def test_a_node_that_is_lost_is_named_and_the_tokens_before_are_kept(ann: Person) -> None:
    words = ("--model", "model.gguf", "-n", "400", "-t", "1", "--repeats", "1", "--json", *SLEEPING)
    before = {*ann.runs.glob("*")}
    process = ann.start("bench", "--board", "both", *words)
    theirs = "one-board/runs/*/trace.jsonl"
    former = {*ann.folder.glob(theirs)}
    wait_until(
        lambda: any(
            path.read_bytes().count(b'"step"') > 20 for path in {*ann.folder.glob(theirs)} - former
        ),
        within_s=180,
    )
    (worker,) = (each for each in nodes(ann) if "worker" in (each.info["cmdline"] or ()))
    worker.kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == RunError.exit_status
    assert "both: member one was lost: killed from outside (SIGKILL)" in err
    (kept,) = {*ann.runs.glob("*")} - before
    run = json.loads((kept / "run.json").read_text())
    assert run["exit"]["kind"] == "member lost"
    assert 20 < len(run["steps"]) < 400
    assert not nodes(ann)
    assert not list(leases(ann))


def test_ctrl_c_leaves_no_node(ann: Person) -> None:
    process = ann.start(
        *("bench", "--board", "both", "--model", "model.gguf", "-n", "400", "-t", "1"), *SLEEPING
    )
    wait_until(lambda: len(nodes(ann)) > 0, within_s=180)  # one listens, or they load the model
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode != 0
    wait_until(lambda: not nodes(ann), within_s=60)
    assert not list(leases(ann))


@pytest.fixture
def with_little_room(ann: Person, tmp_path: Path) -> Iterator[Path]:
    """The storage of the second member of the group ``cramped``, whose boards are this machine."""
    native = "target: host\nreach: {kind: local}\n"
    with small_disk(tmp_path / "disk", 12) as folder:
        ann.add_board("roomy", f"{native}workdir: {tmp_path}/roomy\n")
        ann.add_board("narrow", f"{native}workdir: {folder}\n")
        ann.add_board("cramped", "members: [roomy, narrow]\n")
        yield folder


def _fill(folder: Path) -> None:
    with suppress(OSError), (folder / "somebody's").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_worker_without_room_for_the_program_is_named(
    ann: Person, with_little_room: Path
) -> None:
    _fill(with_little_room)
    words = ("--model", "model.gguf", "-n", "8", "-t", "1", *SLEEPING)
    done = ann.types("bench", "--board", "cramped", *words, status=BoardError.exit_status)
    assert "error: narrow: " in done.stderr
    assert f"{with_little_room} (tmpfs) is full" in done.stderr
    assert not list(with_little_room.rglob(NODE))
    assert not list(with_little_room.glob("lease/*.*.*"))
    assert not nodes(ann)


def test_a_worker_whose_storage_fills_computes_on_and_the_run_tells_of_it(
    ann: Person, with_little_room: Path
) -> None:
    words = ("--model", "model.gguf", "-n", "450", "-t", "1", "--repeats", "1", "--json", *SLEEPING)
    process = ann.start("bench", "--board", "cramped", *words)
    theirs = "runs/*/trace.jsonl"
    wait_until(
        lambda: any(
            path.read_bytes().count(b'"step"') > 20 for path in with_little_room.glob(theirs)
        ),
        within_s=180,
    )
    _fill(with_little_room)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    run = json.loads(out)
    assert sum(step["generated_tokens"] for step in run["steps"]) == 449
    (finding,) = (each for each in run["verdict"]["findings"] if each["name"] == "storage full")
    assert finding["figures"]["board"] == "narrow"
    assert finding["sentence"].startswith("The storage of narrow was full during the run")
    assert not nodes(ann)
