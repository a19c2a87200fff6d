"""The memory of weights that llama.cpp copies into another layout, without asking its program."""

from __future__ import annotations

import pytest

from armload.build.target import load_target
from armload.engines.completion import memory_need, memory_need_on
from armload.engines.plan import Plan
from armload.models.model import Model
from armload.models.outline import outline_called, outlined

GB = 1_000_000_000
PLAN = Plan(prompt_tokens=128)


def model(name: str) -> Model:
    family, _, file_type = name.partition(":")
    return outlined(outline_called(family), file_type)[0]


def copied_bytes(name: str, target: str, *, available: int = 8 * GB, plan: Plan = PLAN) -> int:
    found = memory_need_on(load_target(target), available, plan, model(name))
    return found.program_bytes - memory_need(plan, model(name)).program_bytes


@pytest.mark.parametrize(
    ("name", "said"),
    [("qwen2.5-0.5b:Q4_0", 744_200_000), ("smollm2-135m:Q4_1", 172_000_000)],
)
def test_the_estimate_is_close_to_what_llama_cpp_says_on_a_cortex_a55(name: str, said: int) -> None:
    found = memory_need_on(load_target("rk3568"), 8 * GB, PLAN, model(name))
    assert said < found.wanted_bytes < 1.04 * said


def test_types_are_copied_for_which_the_target_has_kernels() -> None:
    assert copied_bytes("qwen2.5-0.5b:Q4_0", "rpi3") == 0, "it has no dot product"
    output = copied_bytes("smollm2-135m:Q4_1", "rk3568")
    assert 0 < output < model("smollm2-135m:Q4_1").size_bytes / 3, "its output matrix alone"


def test_an_embedding_that_is_not_the_output_matrix_is_not_copied() -> None:
    apart = model("llama-3.1-8b:Q8_0")
    assert copied_bytes("llama-3.1-8b:Q8_0", "rk3568", available=64 * GB) < 0.95 * apart.size_bytes


def test_nothing_is_copied_where_the_run_does_not_repack() -> None:
    name = "qwen2.5-0.5b:Q4_0"
    assert copied_bytes(name, "rk3568", available=model(name).size_bytes * 2) == 0
    for changed in ({"extra": ("--no-repack",)}, {"weights": "streamed"}, {"resident_bytes": 10}):
        assert copied_bytes(name, "rk3568", plan=PLAN.model_copy(update=changed)) == 0
