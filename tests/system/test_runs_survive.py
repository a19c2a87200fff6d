"""Runs that nothing can lose: killed laptops, a cut in the power, Ctrl-C twice."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest

from tests.person import Person
from tests.system.people import (
    ENGINE_RUNS,
    benches,
    board_is_clean,
    checked,
    power_cut,
    said_by,
    waits_until,
)

pytestmark = [pytest.mark.machine, pytest.mark.build]


OFTEN = int(os.environ.get("ARMLOAD_TEST_FAULTS", "1"))
"""How many times the faults that take a whole machine are tried; 20 before a release."""

STAGES = ("present", "copying", "launching", "running", "ended")


@pytest.mark.parametrize("stage", STAGES)
def test_a_laptop_killed_in_any_stage_goes_on_with_the_same_command(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    # Each stage is another request; only a large model is seen while it is copied.
    tokens = {"copying": 3, "running": 250, "ended": 150}.get(stage, STAGES.index(stage) + 20)
    words = benches(tokens, model="demo" if stage == "copying" else "")
    before = set(json.loads(ann.types("show", "--json").stdout))
    runs_before = set(ann.on_board("ls /data/local/tmp/armload/runs 2>/dev/null || true").split())
    if stage == "copying":
        ann.on_board("rm -rf /data/local/tmp/armload/models")
    process = ann.start(*words)

    def new_on_board() -> bool:
        runs = ann.on_board("ls /data/local/tmp/armload/runs 2>/dev/null || true").split()
        return bool(set(runs) - runs_before)

    def copying() -> bool:
        return ".part" in ann.on_board("ls /data/local/tmp/armload/models/* 2>/dev/null || true")

    if stage == "present":
        time.sleep(0.6)
    elif stage == "copying":
        waits_until(copying, process)
    elif stage == "launching":
        waits_until(new_on_board, process)
    else:
        waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
    process.kill()
    process.communicate()
    if stage == "ended":
        while ann.on_board(ENGINE_RUNS):
            time.sleep(0.1)
    again = ann.types(*words)
    run = json.loads(again.stdout)
    checked(run, tokens)
    if stage in ("running", "ended"):
        assert "taking over" in again.stderr
    assert set(json.loads(ann.types("show", "--json").stdout)) - before == {run["id"]}
    runs = set(ann.on_board("ls /data/local/tmp/armload/runs").split())
    assert runs - runs_before == {run["id"]}
    board_is_clean(ann)
    assert json.loads(ann.types("pull", "--board", "mine", "--json").stdout) == []


def test_new_starts_another_run_beside_the_one_that_was_left(people: tuple[Person, Person]) -> None:
    ann, _ = people
    words = benches(180)
    process = ann.start(*words)
    waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
    process.kill()
    process.communicate()
    fresh = ann.types(*words, "--new")
    checked(json.loads(fresh.stdout), 180)
    assert "taking over" not in fresh.stderr
    (left,) = json.loads(ann.types("pull", "--board", "mine", "--json").stdout)
    assert left != json.loads(fresh.stdout)["id"]


def steps_seen(ann: Person, known: set[str]) -> int:
    """Return how many steps of a run that is not known yet its follower has kept."""
    kept = [path for path in ann.runs.glob("*/seen.jsonl") if path.parent.name not in known]
    # The first line of a trace is its header.
    return max((path.read_bytes().count(b"\n") - 1 for path in kept), default=0)


@pytest.mark.parametrize("laptop", ["awake", "killed", *["awake", "killed"] * (OFTEN - 1)])
def test_a_cut_in_the_power_is_recorded_and_nothing_needs_a_hand(
    people: tuple[Person, Person], laptop: str
) -> None:
    ann, _ = people
    # A tiny model has ended within a second on a quick machine, before the laptop looks once.
    words = benches(60, model="demo")
    known = {path.name for path in ann.runs.glob("*")}
    process = ann.start(*words, "--new")
    wanted = random.randint(3, 12)
    waits_until(lambda: steps_seen(ann, known) >= wanted, process)
    time.sleep(random.uniform(0, 0.3))
    seen = steps_seen(ann, known)
    if laptop == "killed":
        process.kill()
        process.communicate()
    power_cut(ann)
    if laptop == "awake":
        out, err = process.communicate(timeout=300)
        assert process.returncode == 9, err
        cut = json.loads(out)
    else:
        checked(json.loads(ann.types(*words).stdout), 60)
        new = set(json.loads(ann.types("show", "--json").stdout)) - known
        found = [json.loads((ann.runs / each / "run.json").read_text()) for each in new]
        (cut,) = [run for run in found if run["exit"]["kind"] != "done"]
    assert len(cut["tokens"]) >= seen, "what the laptop has seen is kept"
    assert (cut["exit"]["kind"], cut["exit"]["status"]) == ("restart", None)
    assert "restarted" in cut["exit"]["meaning"]
    assert not cut["verdict"]["valid"]
    assert [step["step"] for step in cut["tokens"]] == list(range(len(cut["tokens"])))
    board_is_clean(ann)
    pulled = json.loads(ann.types("pull", "--board", "mine", "--json").stdout)
    assert cut["id"] not in pulled, "it is home already"


@pytest.mark.parametrize("stage", ["connecting", "running"])
def test_a_second_ctrl_c_leaves_at_once_even_when_the_board_is_silent(
    people: tuple[Person, Person], stage: str
) -> None:
    ann, _ = people
    (pid_file,) = (ann.folder / "cache" / "machines").glob("mine-*/qemu.pid")
    qemu = int(pid_file.read_text())
    process = ann.start(*benches(190))
    try:
        if stage == "connecting":
            os.kill(qemu, signal.SIGSTOP)
            time.sleep(1.5)
        else:
            waits_until(lambda: ann.on_board(ENGINE_RUNS) != "", process)
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
    checked(json.loads(ann.types(*benches(190)).stdout), 190)
    board_is_clean(ann)
