"""A search for settings as a person runs it: on a real engine, killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from armload.core.progress import Silent
from armload.engines.scorer import SCORER
from armload.models.find import model_called
from armload.runs.reach import CONNECTED
from armload.runs.request import Request
from armload.tuning.checks import DivergenceCheck
from armload.tuning.space import Setting
from tests.outside_data import STORIES, needs_stories
from tests.person import Person
from tests.system.serving import in_place_of, serving
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    needs_stories,
]

# Its heads are wide enough for a quantised KV cache, whose blocks hold 32 values.
PROBLEMS = "word-problems:Q8_0"

# Normalising with that leaves one direction: the model writes one word again and again.
TRAP = "--override-kv llama.attention.layer_norm_rms_epsilon=float:1000"


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    person = Person(tmp_path / "ann")
    person.add_emulated("loop")
    return person


def space(person: Person, **options: object) -> str:
    path = person.folder / "space.yaml"
    path.write_text(yaml.safe_dump(options))
    return str(path)


def words(*more: str, model: str = str(STORIES)) -> tuple[str, ...]:
    return ("tune", "--board", "loop", "--model", model, "--json", *more)


def journal(person: Person) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in (person.folder / "tunings").glob("*/journal.jsonl")
        for line in path.read_text().splitlines()
    ]


def killed_after(person: Person, done: int, *words: str) -> list[dict[str, Any]]:
    process = person.start(*words)
    wait_until(lambda: len(journal(person)) >= done, process, within_s=300)
    process.kill()
    process.communicate()
    return journal(person)


def test_a_killed_search_goes_on_garbage_never_wins_and_its_plan_runs(ann: Person) -> None:
    narrowed = space(
        ann,
        threads=[1],
        kv_type="f16",
        flash_attention="on",
        engine_args=["--no-repack", TRAP],
        speculate="none",
    )
    search = words(
        *("--space", narrowed, "--prompt", "Once upon a time", "-n", "48"),
        *("--max-trials", "4", "--output", "best.yaml"),
    )
    before = killed_after(ann, 2, *search)
    found = json.loads(ann.types(*search).stdout)
    assert found["trials"][: len(before)] == before
    assert len(list((ann.folder / "tunings").iterdir())) == 1
    trapped = [
        each["outcome"]
        for each in found["trials"]
        if each["trial"]["setting"]["choices"]["engine_args"] == TRAP
    ]
    assert trapped
    for outcome in trapped:
        assert outcome["status"] == "violates"
        assert "ends in a loop" in outcome["reason"]
    assert found["result"]["winner"]["choices"]["engine_args"] != TRAP
    assert json.loads(ann.types("show", trapped[0]["evidence"][0], "--json").stdout)["verdict"][
        "reasons"
    ]

    plan = yaml.safe_load((ann.folder / "best.yaml").read_text())
    assert plan["board"] == "loop"
    run = json.loads(ann.types("bench", "--plan", "best.yaml", "--repeats", "1", "--json").stdout)
    assert run["plan"]["threads"] == plan.get("threads")
    assert run["plan"]["prompt"] == "Once upon a time"
    assert list(run["plan"]["extra"]) == plan.get("engine_args", "").split()


@pytest.mark.exhaustive(covers=["armload/tuning"])
def test_a_cache_type_that_changes_the_distributions_is_kept_out_by_max_kld(ann: Person) -> None:
    narrowed = space(
        ann, threads=[1], kv_type=["q4_0"], flash_attention="on", engine_args="", speculate="none"
    )
    search = words("--space", narrowed, "-n", "32", "--max-trials", "12", model=PROBLEMS)
    found = json.loads(ann.types(*search, "--max-kld", "0.0000001").stdout)
    assert found["result"]["winner"]["choices"]["kv_type"] is None
    lenient = json.loads(ann.types(*search, "--max-kld", "10", "--output", "other.yaml").stdout)
    assert all(each["outcome"]["status"] == "measured" for each in lenient["trials"])

    # Whether it is fast enough to be checked is chance in a search.
    quantised = Setting(choices={"kv_type": "q4_0", "flash_attention": "on"})
    defaults = Setting(choices={"kv_type": None, "flash_attention": None})
    with in_place_of(ann), CONNECTED.open(Request(board="loop"), (SCORER,), Silent()) as board:
        for most, violates in ((1e-7, True), (10.0, False)):
            model = model_called(PROBLEMS, Silent())
            check = DivergenceCheck(board, model, defaults, ["Once upon a time"], most, Silent())
            quality, reason = check(quantised, None)
            assert quality.kl_mean is not None
            assert 1e-7 < quality.kl_mean < 10
            assert ("The KL divergence from the defaults is" in reason) == violates


@pytest.mark.exhaustive(covers=["armload/tuning", "armload/serving"])
@pytest.mark.parametrize("objective", ["total-time", "rate"])
def test_a_service_is_tuned_by_loads_on_it(ann: Person, objective: str) -> None:
    narrowed = space(
        ann,
        slots=[1, 2],
        context=[256],
        threads=[1],
        micro_batch=512,
        kv_type="f16",
        flash_attention="on",
    )
    of_objective = ("--slo", "ttft=60s") if objective == "rate" else ("--rate", "8")
    found = json.loads(
        ann.types(
            *words("--for", objective, "--space", narrowed, "--max-trials", "3", *of_objective),
            *("--requests", "6", "--prompt-tokens", "8", "--n-predict", "8"),
            *("--output", "served.yaml"),
        ).stdout
    )
    assert {each["outcome"]["status"] for each in found["trials"]} == {"measured"}
    assert all("-load-" in each["outcome"]["evidence"][0] for each in found["trials"])
    assert all(each["max_rss_bytes"] for each in found["trials"])
    plan = yaml.safe_load((ann.folder / "served.yaml").read_text())
    winner = found["result"]["winner"]["choices"]
    assert plan.get("slots") == winner["slots"]
    with serving(ann, "--plan", "served.yaml", "--threads", "1", board="loop") as service:
        assert service.about["plan"]["slots"] == plan.get("slots", 4)
        assert service.about["plan"]["context_tokens"] == plan.get("context", 512)
        service.complete("Once upon a time", 2)
