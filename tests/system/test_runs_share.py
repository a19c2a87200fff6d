"""A board that several people use: one at a time, shown, released, cleaned."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from pathlib import Path

import pytest

from armload.core.files import sha256_of
from tests.faults import Relay, TwoOfThree
from tests.outside_data import shared
from tests.person import Person
from tests.system.people import (
    MODELS,
    add_by_ssh,
    benches,
    board_is_clean,
    checked,
    held_engine,
    said_by,
    switched_on,
)

pytestmark = [pytest.mark.machine, pytest.mark.build]

PADDING_BYTES = 20_000_000


@pytest.mark.exhaustive(covers=["armload/deploy", "armload/runs", "deploy"])
def test_of_two_workstations_one_runs_and_the_other_waits_and_then_runs(
    people: tuple[Person, Person],
) -> None:
    ann, bob = people
    with held_engine(ann) as engine:
        first_come = ann.start(*benches(30))
        engine.waited_for(first_come)
        second_come = bob.start(*benches(30))
        said_by(second_come, "is in use by")
    both = (first_come, second_come)
    done = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], done
    runs = [json.loads(out) for out, _ in done]
    for run in runs:
        checked(run, 30)
    first, second = sorted(runs, key=lambda run: int(run["trace"]["start_ns"]))
    assert first["id"] == runs[0]["id"]
    assert first["steps"][-1]["end_ns"] < second["trace"]["start_ns"]
    board_is_clean(ann)


@pytest.mark.exhaustive(covers=["armload/boards", "armload/deploy", "deploy"])
def test_a_bench_survives_a_server_that_refuses_two_of_three_connections(
    people: tuple[Person, Person],
) -> None:
    ann, bob = people
    shown = switched_on(ann)
    with closing(Relay(shown["port"], refuses=TwoOfThree())) as relay:
        add_by_ssh(bob, "far", shown, port=relay.port)
        words = ("--model", str(shared("stories260K.gguf")), "-n", "16")
        run = bob.benches(*words, board="far")
        checked(run, 16)
        bob.types("deploy", "--board", "far", "--model", words[1])
        pulled = json.loads(bob.types("pull", "--board", "far", "--json").stdout)["runs"]
        assert run["id"] not in pulled, "it is home already"
        assert relay.connections >= 12
    board_is_clean(ann)


@pytest.mark.exhaustive(covers=["armload/deploy", "deploy"])
def test_a_board_in_use_is_shown_and_released_only_by_force(people: tuple[Person, Person]) -> None:
    ann, bob = people
    with held_engine(ann) as engine:
        process = ann.start(*benches(100))
        engine.waited_for(process)
        refused = bob.types(*benches(8, "--wait", "1"), status=10)
        assert "is in use by" in refused.stderr
        assert "--wait" in refused.stderr
        probed = json.loads(bob.types("board.probe", "--board", "mine", "--json").stdout)
        (user,) = probed["in_use_by"]
        assert user["run"].endswith(tuple("0123456789abcdef"))
        assert "in use by" in bob.types("board.probe", "--board", "mine").stdout
        bob.types("board.release", "--board", "mine", status=10)
        own = ann.types("board.release", "--board", "mine", status=10)
        assert re.search(r"your run \S+ is still running", own.stderr)
        assert "--force" in own.stderr
        everything = ("board.clean", "--board", "mine", "--all", "--older-than", "0")
        refused = bob.types(*everything, "--yes", "--json", "--wait", "0", status=10)
        assert json.loads(refused.stdout)["error"]["kind"] == "busy"
        assert "Released" in bob.types("board.release", "--board", "mine", "--force").stdout
    out, _ = process.communicate(timeout=300)
    run = json.loads(out)
    checked(run, 100)
    assert not run["verdict"]["valid"], "somebody else could have used the board meanwhile"


@pytest.mark.exhaustive(covers=["armload/deploy", "armload/runs"])
def test_a_board_is_cleaned_of_what_is_home_and_of_nothing_that_runs(
    people: tuple[Person, Person],
) -> None:
    ann, _ = people
    checked(json.loads(ann.types(*benches(8)).stdout), 8)  # is home, so there is what can go
    with held_engine(ann) as engine:
        left = ann.start(*benches(31))
        engine.waited_for(left)
        left.kill()
        left.communicate()
        waiting = ann.start("board.clean", "--board", "mine", "--yes", "--json", "--wait", "300")
        said_by(waiting, "is in use by")
    out, _ = waiting.communicate(timeout=300)
    cleaned = json.loads(out)
    assert {entry["state"] for entry in cleaned["removed"]} == {"collected"}
    assert cleaned["freed_bytes"] > 0
    (kept,) = [entry for entry in cleaned["kept"] if entry["kind"] == "run"]
    assert kept["state"] == "uncollected"
    assert {entry["kind"] for entry in cleaned["kept"]} == {"run", "program", "model"}
    refused = ann.types("board.clean", "--board", "mine", "--all", status=2)
    assert "Nothing was removed: confirmation is needed, and there is no terminal" in refused.stderr
    checked(json.loads(ann.types(*benches(31)).stdout), 31)
    everything = ("board.clean", "--board", "mine", "--all", "--older-than", "0", "--yes", "--json")
    assert json.loads(ann.types(*everything).stdout)["kept"] == []
    assert ann.on_board("ls /data/local/tmp/armload/models").strip() == ""


@pytest.mark.exhaustive(covers=["armload/deploy", "deploy"])
@pytest.mark.parametrize("second_comes", ["at once", "while it is copied"])
def test_two_people_who_put_the_same_file_there_both_succeed_and_it_is_sent_once(
    people: tuple[Person, Person], tmp_path: Path, second_comes: str
) -> None:
    ann, bob = people
    stories = shared("stories260K.gguf")
    model = tmp_path / "large.gguf"
    model.write_bytes(stories.read_bytes() + os.urandom(PADDING_BYTES))
    ann.types("deploy", "--board", "mine", "--model", str(stories))  # with the engine
    words = ("deploy", "--board", "far", "--model", str(model), "--json")
    shown = switched_on(ann)
    with closing(Relay(shown["port"], bytes_per_s=4e6)) as relay:
        for person in people:
            add_by_ssh(person, "far", shown, port=relay.port)
        first = ann.start(*words)
        if second_comes == "while it is copied":
            ann.waits_on_board(f"ls {MODELS}/*/.armload/large.gguf.part >/dev/null 2>&1", first)
        second = bob.start(*words)
        said = [process.communicate(timeout=600) for process in (first, second)]
        assert [process.returncode for process in (first, second)] == [0, 0], said
        assert sorted(json.loads(out)["sent"] for out, _ in said) == [False, True]
        assert relay.passed_bytes < 1.5 * PADDING_BYTES
    listed = ann.on_board(f"cd $(dirname {MODELS}/*/large.gguf); ls -A; sha256sum large.gguf")
    assert listed.split() == [".armload", "large.gguf", sha256_of(model), "large.gguf"]
    assert ann.on_board("ls -A /data/local/tmp/armload/lease").strip() == ""
    ann.on_board(f"rm -r $(dirname {MODELS}/*/large.gguf)")
    ann.waits_on_board("! grep -l '[l]arge.gguf' /proc/[0-9]*/cmdline 2>/dev/null")
