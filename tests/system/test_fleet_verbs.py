"""Predictions, evaluations and searches on boards behind gateways, beside the same without them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.labs import Lab, runs_of
from tests.outside_data import STORIES, needs_stories
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(
        covers=["armload/fleet", "armload/runs", "armload/evaluation", "armload/tuning"]
    ),
    needs_stories,
]
GATEWAYS = {"hall": ("one", "two"), "cellar": ("three",)}
MODEL = ("--model", str(STORIES))
AWAY = """
target: rk3568
reach: {kind: ssh, host: 127.0.0.1, port: 1}
facts: {memory: 2 GB, memory_bytes_per_s: 3 GB, storage_read_bytes_per_s: 160 MB}
labels: [lab]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"), GATEWAYS)
    made.start()
    yield made
    made.stop()


def through(lab: Lab) -> tuple[str, str]:
    return ("--scheduler", lab.address)


def journal_of(lab: Lab, pattern: str) -> list[dict[str, Any]]:
    paths = sorted(lab.ann.folder.glob(pattern))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def nothing_is_left(lab: Lab) -> None:
    for gateway in lab.gateways.values():
        assert not list(gateway.runs.glob("*/run.json"))
        assert not list(gateway.folder.glob("loads/*/load.json"))


def lasting_notes(prediction: dict[str, Any]) -> list[str]:
    """Return the notes that do not depend on what else runs on this machine."""
    kinds = [each["kind"] for each in prediction["notes"]]
    return [kind for kind in kinds if kind != "operations disturbed"]


def test_models_are_predicted_on_boards_behind_gateways_without_being_sent(lab: Lab) -> None:
    words = ("fit", "--board", "@lab", *MODEL, "--json")
    found = json.loads(lab.ann.types(*words, *through(lab)).stdout)["boards"]
    here = json.loads(lab.ann.types(*words).stdout)["boards"]
    assert sorted(each["board"] for each in found) == ["one", "three", "two"]
    by_name = {each["board"]: each["models"][0]["prediction"] for each in here}
    for each in found:
        prediction, other = each["models"][0]["prediction"], by_name[each["board"]]
        assert prediction["verdict"] == "fits"
        assert prediction["memory"]["is_exact"]
        for key in ("verdict", "compute", "bottleneck"):
            assert prediction[key] == other[key]
        assert lasting_notes(prediction) == lasting_notes(other)
        for part in ("weights_bytes", "kv_bytes"):
            assert prediction["memory"][part] == other["memory"][part]
    received = list(lab.gateways["hall"].folder.glob(f"cache/received/*/{STORIES.name}"))
    assert [path.stat().st_size < STORIES.stat().st_size for path in received] == [True]


def test_a_board_that_its_gateway_cannot_reach_is_predicted_from_its_file(lab: Lab) -> None:
    paths = [
        person.folder / "boards" / "three.yaml" for person in (lab.ann, lab.gateways["cellar"])
    ]
    text = paths[0].read_text()
    try:
        for path in paths:
            path.write_text(AWAY)
        words = ("fit", "--board", "three", *MODEL, "--json")
        done, here = lab.ann.types(*words, *through(lab)), lab.ann.types(*words)
        assert "Predicting from the facts in boards/three.yaml instead." in done.stderr
        assert json.loads(done.stdout) == json.loads(here.stdout)
        listed = ("fit", "--board", "one", "--json")
        assert json.loads(lab.ann.types(*listed, *through(lab)).stdout)["models"]
    finally:
        for path in paths:
            path.write_text(text)


def answers(lab: Lab, evaluation: str) -> dict[str, str]:
    lines = journal_of(lab, f"evaluations/{evaluation}/answers-*.jsonl")
    assert max(Counter(line["id"] for line in lines).values()) == 1
    return {line["id"]: line["text"] for line in lines}


def asked(*words: str, limit: int = 12, budget: int = 24) -> tuple[str, ...]:
    common = ("--template", "none", "--limit", str(limit), "--budget", str(budget), "-t", "1")
    return ("eval", "--board", "@lab", *MODEL, *common, "--json", *words)


def test_questions_are_shared_between_boards_behind_gateways(lab: Lab) -> None:
    done = json.loads(lab.ann.types(*asked(*through(lab))).stdout)
    sources = journal_of(lab, f"evaluations/{done['evaluation']}/sources.jsonl")
    assert {source["board"] for source in sources} == {"one", "two", "three"}
    here = json.loads(lab.ann.types(*asked("--new")).stdout)
    assert answers(lab, done["evaluation"]) == answers(lab, here["evaluation"])
    assert len(answers(lab, done["evaluation"])) == 12
    nothing_is_left(lab)


def test_an_evaluation_whose_command_and_worker_are_killed_is_resumed(lab: Lab) -> None:
    size = {"limit": 36, "budget": 64}
    words = asked(*through(lab), **size)
    process = lab.ann.start(*words)
    boards = [
        lab.gateways[name].folder / f"{board}-board"
        for name, board in (("hall", "one"), ("cellar", "three"))
    ]

    def all_answer() -> bool:
        return all(
            any(
                path.stat().st_size and not (path.parent / "exit").exists()
                for path in board.glob("runs/*/stdout")
            )
            for board in boards
        )

    wait_until(all_answer, process, within_s=300)
    lab.kill("hall")
    lab.start_gateway("hall")
    process.kill()
    process.communicate()
    done = lab.ann.types(*words)
    assert "Resuming" in done.stderr
    resumed = answers(lab, json.loads(done.stdout)["evaluation"])
    here = json.loads(lab.ann.types(*asked("--new", **size)).stdout)
    assert resumed == answers(lab, here["evaluation"])
    nothing_is_left(lab)


def test_logits_that_come_through_a_gateway_are_those_that_come_directly(lab: Lab) -> None:
    prompts = lab.ann.folder / "prompts.txt"
    prompts.write_text("Once upon a time\nThe sea was\n")
    words = ("eval", "--task", "logits", "--data", str(prompts), "--board", "three", *MODEL)
    direct = json.loads(lab.ann.types(*words, "-t", "1", "--json").stdout)["run"]
    checked = ("--reference", direct, "--fail-unless-close", "--new", "--json")
    found = json.loads(lab.ann.types(*words, "-t", "1", *through(lab), *checked).stdout)
    assert found["run"] != direct
    assert found["agreement"]["close"] == found["prompts"] == 2
    nothing_is_left(lab)


def tuning(lab: Lab, *words: str) -> tuple[str, ...]:
    return ("tune", "--board", "three", *through(lab), *MODEL, "--json", *words)


def narrowed(lab: Lab, **options: object) -> str:
    path = lab.ann.folder / "space.yaml"
    path.write_text(yaml.safe_dump(options))
    return str(path)


def test_a_search_through_a_gateway_is_resumed_and_tries_everything_once(lab: Lab) -> None:
    space = narrowed(
        lab, threads=[1], flash_attention=["on", "off"], speculate="none", kv_type="f16"
    )
    words = tuning(lab, "--space", space, "-n", "48", "--max-trials", "4", "--output", "best.yaml")
    pattern = "tunings/*/journal.jsonl"
    process = lab.ann.start(*words)
    wait_until(lambda: len(journal_of(lab, pattern)) >= 2, process, within_s=300)
    process.kill()
    process.communicate()
    lab.kill("cellar")
    lab.start_gateway("cellar")
    done = lab.ann.types(*words)
    assert "Resuming" in done.stderr
    assert "Trial 3," in done.stderr
    trials = journal_of(lab, pattern)
    assert [each["trial"]["number"] for each in trials] == list(range(len(trials)))
    evidence = [run for each in trials for run in each["outcome"]["evidence"]]
    assert len(evidence) == len(set(evidence)) == len(trials) <= 4
    assert set(evidence) <= runs_of(lab.ann).keys()
    compared = journal_of(lab, "tunings/*/confirmation.jsonl")
    assert len({run for each in compared for run in each["evidence"]}) == len(compared)
    assert (lab.ann.folder / "best.yaml").is_file()
    nothing_is_left(lab)


def test_a_service_is_tuned_through_a_gateway(lab: Lab) -> None:
    data = lab.ann.folder / "requests.jsonl"
    requests = [{"prompt": f"Once upon a time {name}", "max_tokens": 8} for name in "abcdef"]
    data.write_text("".join(f"{json.dumps(each)}\n" for each in requests))
    space = narrowed(
        lab,
        slots=[1, 2],
        context=[256],
        threads=[1],
        micro_batch=512,
        kv_type="f16",
        flash_attention="on",
    )
    words = ("--for", "total-time", "--rate", "8", "--requests", "6", "--data", str(data))
    more = ("--space", space, "--max-trials", "3", "--output", "served.yaml")
    found = json.loads(lab.ann.types(*tuning(lab, *words, *more)).stdout)
    assert {each["outcome"]["status"] for each in found["trials"]} == {"measured"}
    for trial in found["trials"]:
        (load,) = trial["outcome"]["evidence"]
        kept = json.loads((lab.ann.folder / "loads" / load / "load.json").read_text())
        assert kept["run"] in runs_of(lab.ann)
    nothing_is_left(lab)
