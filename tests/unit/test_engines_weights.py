"""The memory that streaming programs leave free, as both sides compute it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.engines import weights
from armload.engines.plan import Plan

STREAM = Path(__file__).parents[2] / "toolchains" / "native" / "armload_stream.c"


@pytest.mark.parametrize(
    "name",
    [
        *("LEAST_WINDOW_BYTES", "MOST_WINDOW_BYTES", "WINDOW_SHARE"),
        *("LEAST_RESERVE_BYTES", "RESERVE_SHARE"),
    ],
)
def test_predictions_reserve_what_the_program_reserves(name: str) -> None:
    found = re.search(rf"\b{name} *= (\d+)(?: << (\d+))?,", STREAM.read_text(encoding="utf-8"))
    assert found is not None
    number, shift = (int(each or 0) for each in found.groups())
    assert getattr(weights, name) == number << shift


def test_a_program_chooses_by_itself_in_which_way_it_reads() -> None:
    plan = Plan(weights="streamed")
    assert weights.environment(plan, streamed=True) == {"ARMLOAD_WEIGHTS": "streamed"}
    assert weights.environment(plan, streamed=False) == {}
