"""The memory that streaming programs leave free, as both sides compute it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.engines import weights
from armload.engines.plan import Plan

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


def test_a_program_chooses_by_itself_in_which_way_it_reads() -> None:
    plan = Plan(weights="streamed")
    assert weights.environment(plan, streamed=True) == {"ARMLOAD_WEIGHTS": "streamed"}
    assert weights.environment(plan, streamed=False) == {}
