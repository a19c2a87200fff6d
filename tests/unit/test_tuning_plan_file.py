"""The plan file that a search of settings ends with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from armload.bench.options import read_options
from armload.core.errors import UsageError
from armload.serving.planning import serving_plan_of
from armload.tuning.plan_file import check_path, default_path, write_plan
from armload.tuning.record import Result
from armload.tuning.space import Setting
from tests.unit.tunings import BEST, SPACE, tuned


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def result_of(winner: Setting) -> Result:
    return Result(
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
    assert (options.board, options.models) == ("kitchen", ("m.gguf",))
    assert (plan.threads, plan.kv_type, plan.flash_attention) == (3, "q8_0", "on")
    assert (plan.n_predict, plan.prompt) == (64, "Once")
    assert serving_plan_of(options, "f").threads == 3
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert "on board kitchen" in head[0]
    assert "2.00 times as fast" in head[1]
    assert kept.tuning.id in head[-1]


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
    with pytest.raises(UsageError, match=r"plan\.yaml exists already"):
        check_path(path)
