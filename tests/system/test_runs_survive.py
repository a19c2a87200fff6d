"""Runs that nothing can lose: killed workstations, a cut in the power, Ctrl-C twice."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import ExitStack

import pytest

from tests.person import Person
from tests.system.people import (
    ENGINE_RUNS,
    RUNS,
    HeldEngine,
    benches,
    board_is_clean,
    checked,
    held_engine,
    power_cut,
    said_by,
)
from tests.terminal import at_a_terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.machine, pytest.mark.build]

in_bulk = pytest.mark.exhaustive(
    covers=["armload/boards", "armload/deploy", "armload/runs", "deploy"]
)

EARLY_STAGES = ("present", "copying", "launching")
AGAIN = ("awake", "killed", "awake")
"""What has the power cut once more, at another random moment."""

LIST_RUNS = f"(ls {RUNS} 2>/dev/null || true)"


@in_bulk
@pytest.mark.parametrize("stage", EARLY_STAGES)
def test_a_workstation_killed_before_its_run_begins_goes_on_with_the_same_command(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    # Each stage is another request; only a large model is seen while it is copied.
    tokens = 3 if stage == "copying" else EARLY_STAGES.index(stage) + 20
    words = benches(tokens, model="random" if stage == "copying" else "")
    before, runs_before = known(ann), set(ann.on_board(LIST_RUNS).split())
    if stage == "copying":
        ann.on_board("rm -rf /data/local/tmp/armload/models")
    process = ann.start(*words)
    if stage == "present":
        time.sleep(0.6)
    else:
        copying = "ls /data/local/tmp/armload/models/*/.armload/*.part >/dev/null 2>&1"
        launching = f'[ "$({LIST_RUNS} | wc -l)" -gt {len(runs_before)} ]'
        ann.waits_on_board(copying if stage == "copying" else launching, process)
    process.kill()
    process.communicate()
    run = json.loads(ann.types(*words).stdout)
    checked(run, tokens)
    nothing_lost_nothing_doubled(ann, run["id"], before, runs_before)


@pytest.mark.parametrize("stage", ["running", pytest.param("ended", marks=in_bulk)])
def test_a_workstation_killed_in_a_run_takes_it_over_with_the_same_command(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    tokens = 30 if stage == "running" else 31  # each is another request
    before, runs_before = known(ann), set(ann.on_board(LIST_RUNS).split())
    with held_engine(ann) as engine:
        process = ann.start(*benches(tokens))
        engine.waited_for(process)
        process.kill()
        process.communicate()
        if stage == "running":
            a_board_in_use_is_stopped_by_nobody(ann)
        if stage == "ended":
            engine.goes_on()
            ann.waits_on_board(f"! {ENGINE_RUNS}")
        again = ann.start(*benches(tokens))
        said_by(again, "resuming")
    out, err = again.communicate(timeout=800)
    assert again.returncode == 0, err
    run = json.loads(out)
    checked(run, tokens)
    nothing_lost_nothing_doubled(ann, run["id"], before, runs_before)


def a_board_in_use_is_stopped_by_nobody(ann: Person) -> None:
    machine = ann.machine()
    refused = ann.types("board.down", "--board", "mine", status=2)
    assert "mine was not stopped: it is in use by" in refused.stderr
    assert "--yes" in refused.stderr
    with at_a_terminal(ann, "board.down", "--board", "mine") as asked:
        asked.waits_for("[y/n]")
        assert "mine is in use by" in asked.said
        asked.answers(b"\n")
        assert asked.ends() == 2
    assert ann.machine() == machine


def known(ann: Person) -> set[str]:
    return set(json.loads(ann.types("show", "--json").stdout))


def nothing_lost_nothing_doubled(
    ann: Person, run_id: str, before: set[str], runs_before: set[str]
) -> None:
    assert known(ann) - before == {run_id}
    assert set(ann.on_board(LIST_RUNS).split()) - runs_before == {run_id}
    board_is_clean(ann)
    assert json.loads(ann.types("pull", "--board", "mine", "--json").stdout)["runs"] == []


@in_bulk
def test_new_starts_another_run_beside_the_one_that_was_left(people: tuple[Person, Person]) -> None:
    ann, _ = people
    words = benches(72)
    with held_engine(ann) as engine:
        process = ann.start(*words)
        engine.waited_for(process)
        process.kill()
        process.communicate()
        fresh = ann.start(*words, "--new")
        said_by(fresh, "is in use by")
    out, err = fresh.communicate(timeout=800)
    run = json.loads(out)
    checked(run, 72)
    assert "resuming" not in err
    (left,) = json.loads(ann.types("pull", "--board", "mine", "--json").stdout)["runs"]
    assert left != run["id"]


def steps_seen(ann: Person, here: set[str]) -> int:
    """Return how many steps of a run that is not known yet its follower has kept."""
    kept = [path for path in ann.runs.glob("*/seen.jsonl") if path.parent.name not in here]
    # The first line of a trace is its header.
    return max((path.read_bytes().count(b"\n") - 1 for path in kept), default=0)


def text_seen(ann: Person, here: set[str]) -> str:
    kept = [path for path in ann.runs.glob("*/seen.stdout") if path.parent.name not in here]
    return max((path.read_text("utf-8", "ignore") for path in kept), default="", key=len)


@pytest.mark.parametrize(
    "workstation", ["killed", *(pytest.param(each, marks=in_bulk) for each in AGAIN)]
)
@pytest.mark.exhaustive(covers=["armload/boards/virtual", "armload/deploy", "armload/runs"])
def test_a_cut_in_the_power_is_recorded_and_nothing_needs_a_hand(
    people: tuple[Person, Person], workstation: str
) -> None:
    ann, _ = people
    words = benches(400)  # so many that it is still running when it is held
    here = {path.name for path in ann.runs.glob("*")}
    wanted = random.randint(3, 12)
    with ExitStack() as stack:
        stack.callback(HeldEngine(ann, steps=wanted).goes_on)
        process = ann.start(*words, "--new")
        wait_until(
            lambda: steps_seen(ann, here) >= wanted and text_seen(ann, here) != "",
            process,
            within_s=300,
        )
        seen, text = steps_seen(ann, here), text_seen(ann, here)
        if workstation == "killed":
            process.kill()
            process.communicate()
        power_cut(ann)
        stack.pop_all()  # with its power; whoever waits for the board switches it on
    if workstation == "awake":
        out, err = process.communicate(timeout=300)
        assert process.returncode == 9, err
        cut = json.loads(out)
    else:
        checked(json.loads(ann.types(*words).stdout), 400)
        new = known(ann) - here
        found = [json.loads((ann.runs / each / "run.json").read_text()) for each in new]
        (cut,) = [run for run in found if run["exit"]["kind"] != "done"]
    assert len(cut["steps"]) >= seen, "what this machine has seen is kept"
    assert cut["text"].startswith(text)
    assert (cut["exit"]["kind"], cut["exit"]["status"]) == ("restart", None)
    assert "restarted" in cut["exit"]["meaning"]
    assert not cut["verdict"]["valid"]
    assert [step["step"] for step in cut["steps"]] == list(range(len(cut["steps"])))
    board_is_clean(ann)
    pulled = json.loads(ann.types("pull", "--board", "mine", "--json").stdout)["runs"]
    assert cut["id"] not in pulled, "it is home already"


@pytest.mark.parametrize("stage", [pytest.param("connecting", marks=in_bulk), "running"])
@pytest.mark.exhaustive(covers=["armload/boards/virtual", "armload/deploy", "armload/runs"])
def test_a_second_ctrl_c_leaves_at_once_even_when_the_board_is_silent(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    (pid_file,) = (ann.folder / "cache" / "machines").glob("mine-*/qemu.pid")
    qemu = int(pid_file.read_text())
    with held_engine(ann) as engine:
        process = ann.start(*benches(73))
        try:
            if stage == "connecting":
                os.kill(qemu, signal.SIGSTOP)
                time.sleep(1.5)
            else:
                engine.waited_for(process)
                os.kill(qemu, signal.SIGSTOP)
            process.send_signal(signal.SIGINT)
            if stage == "running":
                said_by(process, "Stopping the run")
                time.sleep(0.5)
                assert process.poll() is None, "it waits for a board that says nothing"
                process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
            assert process.returncode == 130
            assert "Traceback" not in err
        finally:
            os.kill(qemu, signal.SIGCONT)
    checked(json.loads(ann.types(*benches(73)).stdout), 73)
    board_is_clean(ann)
