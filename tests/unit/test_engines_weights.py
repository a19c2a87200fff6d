"""The memory that streaming programs leave free, as both sides compute it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.boards.rates import Rates
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


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (Rates(), {}),
        (Rates(storage_read_bytes_per_s=2, storage_way="direct"), {}),
        (
            Rates(storage_read_bytes_per_s=2, storage_way="cache dropped"),
            {"ARMLOAD_READS": "buffered"},
        ),
    ],
)
def test_weights_are_read_in_the_way_that_was_measured_to_be_faster(
    rates: Rates, expected: dict[str, str]
) -> None:
    plan = Plan(weights="streamed")
    streams = {"ARMLOAD_WEIGHTS": "streamed"}
    assert weights.environment(plan, rates, streamed=True) == streams | expected
    assert weights.environment(plan, rates, streamed=False) == {}
