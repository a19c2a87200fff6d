"""The memory that streaming programs leave free, as both sides compute it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.engines import weights
from armload.engines.engine import MemoryNeed
from armload.engines.plan import Plan
from tests.unit.samples import conditions

NATIVE = Path(__file__).parents[2] / "toolchains" / "native"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("armload_stream.c", "LEAST_WINDOW_BYTES"),
        ("armload_stream.c", "MOST_WINDOW_BYTES"),
        ("armload_stream.c", "WINDOW_SHARE"),
        ("armload_reserve.c", "LEAST_RESERVE_BYTES"),
        ("armload_reserve.c", "RESERVE_SHARE"),
    ],
)
def test_predictions_reserve_what_the_program_reserves(file: str, name: str) -> None:
    code = (NATIVE / file).read_text(encoding="utf-8")
    found = re.search(rf"\b{name} *= (\d+)(?: << (\d+))?,", code)
    assert found is not None
    number, shift = (int(each or 0) for each in found.groups())
    assert getattr(weights, name) == number << shift


def test_weights_that_lie_in_memory_already_are_not_streamed(tmp_path: Path) -> None:
    program = tmp_path / "llama-completion"
    program.write_bytes(f"\0{weights.MODE_VARIABLE}\0".encode())
    need = MemoryNeed(
        name="m",
        weights_bytes=3_000_000_000,
        kv_bytes=0,
        program_bytes=10_000_000,
        context_tokens=256,
        bytes_per_token=1,
    )
    plan, now = Plan(), conditions()
    assert weights.are_streamed(plan, program, need, now)
    in_memory = now.model_copy(update={"workdir_in_memory": True})
    assert not weights.are_streamed(plan, program, need, in_memory)


def test_a_program_chooses_by_itself_in_which_way_it_reads() -> None:
    plan = Plan(weights="streamed")
    assert weights.environment(plan, streamed=True) == {"ARMLOAD_WEIGHTS": "streamed"}
    assert weights.environment(plan, streamed=False) == {}
