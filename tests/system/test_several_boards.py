"""Several boards as a person uses them: repeated on each, shared, and one of them away."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.outside_data import STORIES, needs_stories
from tests.person import Person
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    needs_stories,
]

BOARDS = ("one", "two")
MODEL = ("--model", str(STORIES), "-t", "1")
AWAY = "labels: [lab]\ntarget: rk3568\nreach: {kind: ssh, host: 127.0.0.1, port: 1}\n"


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("ann"))
    for name in BOARDS:
        person.add_emulated(name)
        path = person.folder / "boards" / f"{name}.yaml"
        path.write_text(f"{path.read_text()}labels: [lab]\n")
    return person


def runs(person: Person) -> dict[str, dict[str, Any]]:
    kept = (json.loads(path.read_text()) for path in person.runs.glob("*/run.json"))
    return {run["id"]: run for run in kept}


def journal(person: Person, sweep: str) -> list[dict[str, Any]]:
    path = person.folder / "sweeps" / sweep / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.exhaustive(covers=["armload/bench", "armload/cli", "armload/fleet", "armload/runs"])
def test_each_board_runs_the_whole_sweep_and_their_cells_stand_together(ann: Person) -> None:
    done = ann.types("bench", "--board", "@lab", *MODEL, "-n", "4,8", "--repeats", "1")
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[1:2] != []]
    assert [row[:2] for row in rows if row[1] in BOARDS] == [
        ["4", "one"],
        ["4", "two"],
        ["8", "one"],
        ["8", "two"],
    ]
    for name in BOARDS:
        assert re.search(rf"^{name}: 2/2 .* n [48]: ", done.stderr, re.MULTILINE)
    assert sorted(run["board"]["name"] for run in runs(ann).values()) == ["one"] * 2 + ["two"] * 2
    assert all(run["board"]["labels"] == ["lab"] for run in runs(ann).values())


@pytest.mark.exhaustive(covers=["armload/bench", "armload/fleet", "armload/runs"])
def test_a_divided_sweep_has_every_run_once_and_is_shown_as_one(ann: Person) -> None:
    before = set(runs(ann))
    words = ("bench", "--board", "o*,two", "--share", *MODEL, "-n", "4,6", "--repeats", "2")
    swept = json.loads(ann.types(*words, "--json").stdout)
    assert swept["boards"] == list(BOARDS)
    entries = journal(ann, swept["sweep"])
    places = sorted((entry["cell"], entry["round"]) for entry in entries)
    assert places == [(cell, number) for cell in range(2) for number in range(2)]
    made = {name: run for name, run in runs(ann).items() if name not in before}
    assert {entry["run"] for entry in entries} == set(made)
    assert {run["board"]["name"] for run in made.values()} == set(BOARDS)
    shown = json.loads(ann.types("show", swept["sweep"], "--json").stdout)
    assert shown == swept
    assert sum(len(cell["runs"]) for cell in swept["cells"]) == 4
    for cell in swept["cells"]:
        assert {made[run]["board"]["name"] for run in cell["runs"]} == {cell["board"]}


def test_boards_that_are_not_equal_do_not_share_a_sweep(ann: Person) -> None:
    ann.add_board("other", "extends: qemu-user\ntarget: armv8-generic\n")
    words = ("bench", "--board", "one,other", "--share", *MODEL, "-n", "4,6")
    refused = ann.types(*words, status=2)
    assert "one and other differ in target: rk3568 / armv8-generic." in refused.stderr
    single = ann.types("bench", "--board", "@lab", "--share", *MODEL, "-n", "4", status=2)
    assert "--share cannot be combined with --warmups or a single run" in single.stderr


@pytest.mark.exhaustive(covers=["armload/bench", "armload/cli", "armload/fleet", "armload/runs"])
def test_a_board_that_is_away_does_not_stop_the_others(ann: Person) -> None:
    ann.add_board("away", AWAY)
    try:
        words = ("bench", "--board", "@lab", *MODEL, "-n", "4", "--repeats", "1", "--json")
        done = ann.types(*words, status=6)
        told = {each["board"]: each for each in json.loads(done.stdout)["boards"]}
        assert told["away"]["swept"] is None
        assert told["away"]["error"]["kind"] == "connection"
        for name in BOARDS:
            assert told[name]["error"] is None
            assert told[name]["swept"]["cells"][0]["ended"] == 1
        assert "1 of 3 boards failed: away." in done.stderr
        pulled = json.loads(ann.types("pull", "--board", "@lab", "--json", status=6).stdout)
        assert [each["board"] for each in pulled if each["error"]] == ["away"]
    finally:
        (ann.folder / "boards" / "away.yaml").unlink()


def test_what_a_board_in_use_cannot_do_is_done_by_the_other(ann: Person) -> None:
    holds = ann.start("watch", "--board", "two", "--", "sleep", "600")
    try:
        wait_until(lambda: _is_in_use(ann, "two"), holds, within_s=120)
        words = ("bench", "--board", "@lab", "--share", "--wait", "0", *MODEL, "-n", "5,7")
        done = ann.types(*words, "--json", status=10)
        swept = json.loads(done.stdout)
        assert [cell["board"] for cell in swept["cells"]] == ["one", "one"]
        assert "two is in use by" in done.stderr
        assert "1 of 2 boards failed: two." in done.stderr
    finally:
        holds.send_signal(signal.SIGINT)
        holds.communicate(timeout=60)


def _is_in_use(person: Person, board: str) -> bool:
    lease = person.folder / f"{board}-board" / "lease"
    return lease.is_dir() and any(lease.iterdir())


@pytest.mark.exhaustive(covers=["armload/bench", "armload/cli", "armload/fleet", "armload/runs"])
def test_ctrl_c_stops_all_boards_keeps_what_they_did_and_the_same_command_goes_on(
    ann: Person,
) -> None:
    before = set(runs(ann))
    words = ("bench", "--board", "@lab", *MODEL, "-n", "300,301")
    process = ann.start(*words)
    folders = [ann.folder / f"{name}-board" / "runs" for name in BOARDS]

    def all_run() -> bool:
        return all(
            any(
                not (path.parent / "exit").exists() and path.read_bytes().count(b"\n") > 30
                for path in folder.glob("*/trace.jsonl")
            )
            for folder in folders
        )

    wait_until(all_run, process, within_s=300)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.count("Interrupted.") == 1
    for name in BOARDS:
        assert f"{name}: The partial run is kept: armload show" in said, said
        assert not _is_in_use(ann, name)
    partial = [run for name, run in runs(ann).items() if name not in before]
    stopped = [run for run in partial if run["exit"]["status"] != 0]
    assert sorted(run["board"]["name"] for run in stopped) == sorted(BOARDS)
    assert all(run["steps"] for run in stopped)
    done = json.loads(ann.types(*words, "--json").stdout)
    for each in done["boards"]:
        places = [(e["cell"], e["round"]) for e in journal(ann, each["swept"]["sweep"])]
        assert sorted(places) == [(0, 0), (1, 0)]


@pytest.mark.exhaustive(covers=["armload/bench", "armload/fleet", "armload/runs"])
def test_models_are_predicted_for_all_boards_in_one_table(ann: Person) -> None:
    away = AWAY.replace("[lab]", "[dark]")
    for name, memory in (("small", "2 GiB"), ("large", "8 GiB")):
        ann.add_board(name, f"{away}facts: {{memory: {memory}, memory_bytes_per_s: 4 GB}}\n")
    words = ("fit", "--board", "@dark", "--model", "like:llama-3.2-3b:Q4_0")
    found = json.loads(ann.types(*words, "--json").stdout)
    fits = [(each["board"], each["models"][0]["prediction"]) for each in found["boards"]]
    verdicts = [(board, prediction["verdict"]) for board, prediction in fits]
    assert verdicts == [("large", "fits"), ("small", "streams")]
    assert found["recommendation"].startswith("Fastest for like:llama-3.2-3b:Q4_0: large")
    refused = ann.types("fit", "--board", "@dark", status=2)
    assert "To compare several boards, name the models." in refused.stderr


@pytest.mark.exhaustive(covers=["armload/fleet", "armload/runs", "armload/tuning"])
def test_each_board_is_tuned_for_itself(ann: Person) -> None:
    words = ("tune", "--board", "@lab", "--model", str(STORIES), "--max-trials", "1", "-n", "4")
    found = json.loads(ann.types(*words, "--json").stdout)
    assert [each["board"] for each in found] == list(BOARDS)
    plans = [Path(each["tuning"]["result"]["plan"]) for each in found]
    assert [path.name for path in plans] == [f"tuned-{name}-stories260K.yaml" for name in BOARDS]
    assert all((ann.folder / path).is_file() for path in plans)
    refused = ann.types(*words, "--output", "x.yaml", status=2)
    assert "--output cannot be combined with several boards" in refused.stderr


@pytest.mark.machine
@pytest.mark.exhaustive(covers=["armload/fleet", "armload/bench", "armload/runs"])
def test_a_sweep_over_two_virtual_boards_survives_that_one_is_killed(tmp_path: Path) -> None:
    person = Person(tmp_path / "person")
    person.add_board("other", "extends: single-core\n")
    boards = ("mine", "other")
    words = ("bench", "--board", "mine,other", "--share", *MODEL, "-n", "60,62,64")
    try:
        process = person.start(*words, "--repeats", "2", "--json")
        wait_until(lambda: len(runs(person)) >= 1, process, within_s=600)
        (pid,) = person.folder.glob("cache/machines/other-*/qemu.pid")
        psutil.Process(int(pid.read_text())).kill()
        out, err = process.communicate(timeout=800)
        assert process.returncode in (0, 6), err
        swept = json.loads(out)
        places = sorted((e["cell"], e["round"]) for e in journal(person, swept["sweep"]))
        assert places == [(cell, number) for cell in range(3) for number in range(2)]
        kept = runs(person)
        whole = [kept[e["run"]] for e in journal(person, swept["sweep"]) if e["run"]]
        texts: dict[int, set[str]] = {}
        for run in whole:
            if run["exit"]["status"] == 0:
                texts.setdefault(run["place"]["cell"], set()).add(run["text"])
        assert sorted(texts) == [0, 1, 2]
        assert all(len(same) == 1 for same in texts.values())
    finally:
        for board in boards:
            person.types("board.down", "--board", board, "--yes")
