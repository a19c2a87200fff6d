"""The plan file that a search of settings ends with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from armload.analysis.load.records import Objectives
from armload.bench.options import read_options
from armload.cli.verbs.serve import read_serving_file
from armload.core.errors import UsageError
from armload.engines.service_plan import ServingPlan
from armload.serving.planning import serving_plan, serving_plan_of
from armload.tuning.record import SearchResult
from armload.tuning.request import TunedLoad, work_of
from armload.tuning.settings import check_path, default_path, write_plan
from armload.tuning.space import Choice, Setting
from armload.tuning.wanted import Objective
from tests.unit.tunings import BEST, SPACE, tuned


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def result_of(winner: Setting) -> SearchResult:
    return SearchResult(
        winner=winner, cost=0.5, ended="", trials=9, took_s=1, sentence="2.00 times as fast."
    )


def test_bench_and_serve_take_the_plan_file_and_its_head_says_where_it_is_from() -> None:
    path = default_path("kitchen", "a model.gguf")
    assert path.name == "tuned-kitchen-a_model.yaml"
    chosen = Setting(choices={"threads": 3, "kv_type": "q8_0", "flash_attention": "on"})
    kept = tuned()
    write_plan(path, kept.tuning, result_of(chosen))
    options = read_options(path)
    (plan,) = options.plans()
    assert (options.board, options.models) == (("kitchen",), ("m.gguf",))
    assert (plan.threads, plan.kv_type, plan.flash_attention) == (3, "q8_0", "on")
    assert (plan.n_predict, plan.prompt) == (64, "Once")
    assert serving_plan_of(options, "f").threads == 3
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert "on board kitchen" in head[0]
    assert "2.00 times as fast" in head[1]
    assert kept.tuning.id in head[-1]


def work(objective: Objective) -> dict[str, Choice]:
    if objective == "total-time":
        return TunedLoad(rate=6.0, duration_s=250.0, data=Path("asked.jsonl")).described()
    if objective == "rate":
        return TunedLoad(requests=40, objectives=Objectives(ttft_s=2.0)).described()
    options = work_of(objective, prompt="", prompt_tokens=96, n_predict=None)
    return {name: getattr(options, name)[0] for name in options.model_fields_set}


@pytest.mark.parametrize("objective", ["decode", "prefill", "ttft", "total-time", "rate"])
def test_a_plan_file_of_every_objective_is_taken_by_bench_and_by_serve(
    objective: Objective,
) -> None:
    is_served = objective in ("total-time", "rate")
    more: dict[str, Choice] = {"slots": 2, "context": 512} if is_served else {}
    path = Path("plan.yaml")
    kept = tuned(objective=objective, work=work(objective))
    write_plan(path, kept.tuning, result_of(Setting(choices={"threads": 3, **more})))
    (plan,) = read_options(path).plans()
    assert plan.threads == 3
    assert plan.prompt_tokens == (None if is_served else 96)
    service = serving_plan(ServingPlan(), read_serving_file(path).fields)
    assert service is not None
    assert (service.threads, service.slots) == (3, 2 if is_served else 4)


@pytest.mark.parametrize(
    ("objective", "load"),
    [
        ("total-time", "# Load: rate 6.0, duration 250.0, data asked.jsonl."),
        ("rate", "# Load: requests 40, prompt-tokens 128, slo ttft=2s."),
    ],
)
def test_what_a_service_was_asked_is_in_the_head_of_its_plan_file(
    objective: Objective, load: str
) -> None:
    path = Path("plan.yaml")
    kept = tuned(objective=objective, work=work(objective))
    write_plan(path, kept.tuning, result_of(BEST))
    assert load in path.read_text().splitlines()


def test_the_defaults_are_a_plan_without_settings() -> None:
    path = Path("plan.yaml")
    write_plan(path, tuned().tuning, result_of(SPACE.defaults))
    assert set(yaml.safe_load(path.read_text())) == {"board", "model", "n_predict", "prompt"}


def test_a_file_that_no_search_wrote_is_not_replaced() -> None:
    path = Path("plan.yaml")
    check_path(path)
    write_plan(path, tuned().tuning, result_of(BEST))
    check_path(path)
    path.write_text("threads: 2\n")
    with pytest.raises(UsageError, match=r"plan\.yaml already exists"):
        check_path(path)
