"""A plan file as the settings of a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.bench.options import read_options
from armload.cli.verbs.serve import ServeOptions, read_serving_file
from armload.core.errors import UsageError
from armload.engines.service_plan import ServingPlan
from armload.serving.planning import serving_plan, serving_plan_of, without_effect

PLAN = """
board: kitchen
model: m.gguf
threads: 3
cpus: 4-7
context: 1024
slots: 2
kv_type: q8_0
resident: 400 MB
flash_attention: on
engine_args: --no-repack
speculate: ngram
governor: performance
n_predict: 64
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "tuned.yaml"
    path.write_text(PLAN)
    return path


def test_a_service_takes_what_it_has_of_a_plan_file(plan_file: Path) -> None:
    options = read_options(plan_file)
    plan = serving_plan_of(options, str(plan_file))
    assert (plan.slots, plan.threads, plan.cpus, plan.context_tokens) == (2, 3, "4-7", 1024)
    assert (plan.kv_type, plan.resident_bytes, plan.flash_attention) == ("q8_0", 400_000_000, "on")
    assert plan.micro_batch_tokens == 512
    assert (plan.extra, plan.speculate) == (("--no-repack",), "ngram")
    assert without_effect(options) == ["governor"]


def test_what_is_typed_overrides_the_file_and_leaves_the_rest(
    plan_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = read_serving_file(plan_file)
    assert (file.board, file.model) == ("kitchen", "m.gguf")
    assert "do not apply to a service: governor" in capfd.readouterr().err
    plan = serving_plan(
        ServeOptions.typed({"slots": "4", "threads": ""}).part(ServingPlan), file.fields
    )
    assert plan is not None
    assert (plan.slots, plan.threads) == (4, 3)


def test_a_service_has_one_value_of_each_option(plan_file: Path) -> None:
    plan_file.write_text("slots: [1, 2]\n")
    with pytest.raises(UsageError, match=r"tuned\.yaml: slots lists 1, 2, but a service has one"):
        read_serving_file(plan_file)
    plan_file.write_text("model: [a.gguf, b.gguf]\n")
    with pytest.raises(UsageError, match=r"model lists a\.gguf, b\.gguf"):
        read_serving_file(plan_file)
