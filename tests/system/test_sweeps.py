"""Sweeps as a person runs them: in turn, from where they stopped, with failures as results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.confidence_sequence import FEWEST_FIGURES
from armload.core.values import counted
from tests.outside_data import STORIES, needs_stories
from tests.person import Person
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    needs_stories,
]


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    person = Person(tmp_path / "ann")
    person.add_emulated("loop")
    return person


def words(*more: str) -> tuple[str, ...]:
    return ("bench", "--board", "loop", "--model", str(STORIES), "--json", *more)


def journal(person: Person) -> list[dict[str, Any]]:
    (path,) = (person.folder / "sweeps").glob("*/journal.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def runs(person: Person) -> dict[str, dict[str, Any]]:
    found = {}
    for path in person.runs.glob("*/run.json"):
        run = json.loads(path.read_text())
        found[run["id"]] = run
    return found


def killed_after(person: Person, done: int, *words: str) -> list[dict[str, Any]]:
    """Kill a command when so many runs are done; return the journal."""
    process = person.start(*words)
    sweeps = person.folder / "sweeps"
    wait_until(
        lambda: bool(list(sweeps.glob("*/journal.jsonl"))) and len(journal(person)) >= done,
        process,
        within_s=300,
    )
    process.kill()
    process.communicate()
    return journal(person)


@pytest.mark.exhaustive(covers=["armload/bench", "armload/runs"])
def test_every_combination_is_run_so_often_in_rounds(ann: Person) -> None:
    shown = ann.types(
        *words("-n", "4", "-t", "1,2", "--prompt-tokens", "8,32"),
        *("--repeats", "1", "--warmups", "1"),
    )
    cells = json.loads(shown.stdout)["cells"]
    assert [(cell["plan"]["prompt_tokens"], cell["plan"]["threads"]) for cell in cells] == [
        (8, 1),
        (8, 2),
        (32, 1),
        (32, 2),
    ]
    assert all(len(cell["runs"]) == cell["ended"] == 1 for cell in cells)
    kept = runs(ann)
    assert len(kept) == 8
    for run in kept.values():
        plan = cells[run["place"]["cell"]]["plan"]
        read = sum(step["prompt_tokens"] for step in run["steps"])
        assert read == plan["prompt_tokens"]
        assert run["trace"]["threads"] == plan["threads"]
    done = [kept[entry["run"]]["place"] for entry in journal(ann)]
    assert [place["round"] for place in done] == [0] * 4 + [1] * 4
    assert all(place["warm_up"] == (place["round"] == 0) for place in done)
    assert "8/8" in shown.stderr


@pytest.mark.exhaustive(covers=["armload/bench", "armload/runs"])
def test_a_sweep_whose_workstation_was_killed_goes_on_where_it_stopped(ann: Person) -> None:
    sweep = words("-n", "64", "-t", "1,2", "--repeats", "3")
    before = killed_after(ann, 2, *sweep)
    shown = ann.types(*sweep)
    assert f"with {counted(len(before), 'run')} already done. To start over" in shown.stderr
    assert journal(ann)[: len(before)] == before
    places = [(entry["cell"], entry["round"]) for entry in journal(ann)]
    assert sorted(places) == [(cell, number) for cell in range(2) for number in range(3)]
    assert {entry["run"] for entry in journal(ann)} == set(runs(ann)), "no run is lost or doubled"
    assert json.loads(ann.types("pull", "--board", "loop", "--json").stdout)["runs"] == []


@pytest.mark.exhaustive(covers=["armload/analysis/repeats.py", "armload/bench", "armload/runs"])
def test_repeats_of_one_combination_go_on_until_its_median_is_known_or_told_why_not(
    ann: Person,
) -> None:
    # 31 timed tokens never suffice alone; any six undisturbed runs do.
    single = words("-n", "32", "-t", "1", "--precision", "95%", "--precision-time", "9999")
    before = killed_after(ann, 1, *single)
    shown = json.loads(ann.types(*single).stdout)
    combined = shown["combined"]
    assert journal(ann)[: len(before)] == before, "the interrupted command's runs count"
    assert [entry["run"] for entry in journal(ann)] == combined["runs"]
    assert set(combined["runs"]) == set(runs(ann)), "no run is lost or doubled"
    assert shown["id"] in combined["runs"]
    (cell,) = json.loads(ann.types("show", combined["sweep"], "--json").stdout)["cells"]
    assert cell["runs"] == combined["runs"]
    if combined["reached"]:
        assert combined["counted"] >= FEWEST_FIGURES
        assert combined["known_within"] <= combined["precision"] == 0.95
        assert combined["p50_low_s"] <= combined["p50_s"] <= combined["p50_high_s"]
        assert shown["verdict"]["valid"]
        assert cell["valid"] == combined["counted"]
    else:
        assert "3 runs in a row were disturbed." in combined["stopped"]
        # The one that is shown is in the middle of those that count, which lack tokens at most.
        lacks = {finding["name"] for finding in shown["verdict"]["findings"]}
        assert (lacks <= {"imprecise"}) == (combined["counted"] > 0)


def test_a_cell_that_fails_is_a_result_and_the_others_go_on(ann: Person) -> None:
    shown = ann.types(
        *words("-n", "8", "--engine-args", "--no-such-option", "--engine-args", "--no-warmup")
    )
    failed, good = json.loads(shown.stdout)["cells"]
    assert (failed["ended"], good["ended"]) == (0, 1)
    assert failed["runs"], "the failed run is kept"
    assert failed["decode_tps"] is None


@pytest.mark.exhaustive(covers=["armload/bench", "armload/runs"])
def test_a_run_beyond_its_time_is_a_result(ann: Person) -> None:
    shown = ann.types(
        "bench",
        *("--board", "loop", "--model", "random", "--json"),
        *("-n", "1900,2", "-t", "1", "--time-limit", "15"),
    )
    slow, quick = json.loads(shown.stdout)["cells"]
    assert (slow["ended"], quick["ended"]) == (0, 1)
    (run,) = slow["runs"]
    assert runs(ann)[run]["exit"]["kind"] == "time limit"
    assert runs(ann)[run]["steps"], "the partial run is kept"


def test_a_sweep_in_which_nothing_works_fails_and_keeps_why(ann: Person) -> None:
    shown = ann.types(*words("-n", "4,8", "--engine-args", "--no-such-option"), status=9)
    assert "no run of the sweep completed" in shown.stderr
    assert len(runs(ann)) == 2


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        (("-t", f"1,{4 * (os.cpu_count() or 1)}"), 2, "cores"),
        (("--context", "256,9999", "-n", "8"), 2, "trained for 512"),
        (("-n", "8,abc"), 2, "--n-predict: must be a whole number, but is 'abc'"),
        (("--plan", "plan.yaml"), 3, "plan.yaml, line 2: there is no key 'thread'"),
        (("--plan", "none.yaml"), 2, "no plan file"),
    ],
)
def test_a_sweep_of_which_a_part_makes_no_sense_runs_nothing(
    more: tuple[str, ...], status: int, said: str, ann: Person
) -> None:
    (ann.folder / "plan.yaml").write_text("repeats: 2\nthread: 1\n")
    shown = ann.types(*words(*more), status=status)
    assert said in shown.stderr
    assert not ann.runs.exists()
    assert not (ann.folder / "sweeps").exists()


def test_a_plan_file_is_a_sweep_and_what_is_typed_goes_before_it(ann: Person) -> None:
    (ann.folder / "plan.yaml").write_text(
        f"board: loop\nmodel: {STORIES}\nn_predict: 4\nflash_attention: [on, off]\n"
        "kv_type: f32\nrepeats: 3\n"
    )
    shown = ann.types("bench", "--plan", "plan.yaml", "--repeats", "1", "--json")
    cells = json.loads(shown.stdout)["cells"]
    said = [(cell["plan"]["n_predict"], cell["plan"]["flash_attention"]) for cell in cells]
    assert said == [(4, "on"), (4, "off")]
    kept = runs(ann)
    assert len(kept) == 2
    for run in kept.values():
        line = " ".join(run["command"])
        assert f"-fa {run['plan']['flash_attention']}" in line
        assert "-ctk f32 -ctv f32" in line
