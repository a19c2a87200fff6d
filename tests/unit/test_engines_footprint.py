"""What llama.cpp says that it would allocate."""

from __future__ import annotations

import pytest

from armload.engines.engine import MemoryNeed
from armload.engines.footprint import RUNNING_BYTES, Footprint, read_footprint

LINE = (
    'ARMLOAD_FOOTPRINT {"buffers":['
    '{"type":"CPU","weights_bytes":800,"context_bytes":70,"compute_bytes":600},'
    '{"type":"CPU_REPACK","weights_bytes":500,"context_bytes":0,"compute_bytes":5}],'
    '"touched_compute_bytes":40,"work_bytes":3,"output_bytes":2,"own_bytes":10,'
    '"context_tokens":256,"sequences":2}'
)


def test_every_type_of_buffer_counts() -> None:
    found = read_footprint(f"noise\n{LINE}\n")
    assert isinstance(found, Footprint)
    assert found.context_bytes == 70
    assert found.reserved_bytes == 605
    assert found.repacked_bytes == 500
    assert found.program_bytes == 10 + 40 + 3 + 2 + 500 + RUNNING_BYTES


@pytest.mark.parametrize("output", ["", "Segmentation fault", "ARMLOAD_FOOTPRINT {", f"x{LINE}"])
def test_a_program_that_dies_has_said_nothing(output: str) -> None:
    assert read_footprint(output) is None


def test_the_programs_own_figures_replace_the_estimate() -> None:
    footprint = read_footprint(LINE)
    assert isinstance(footprint, Footprint)
    need = MemoryNeed(
        name="m",
        weights_bytes=900,
        kv_bytes=1,
        program_bytes=1,
        context_tokens=256,
        bytes_per_token=800,
    )
    exact = need.exactly(footprint, more_bytes=1000)
    assert (exact.kv_bytes, exact.program_bytes, exact.reserved_bytes) == (
        70,
        1555 + RUNNING_BYTES,
        605,
    )
    assert exact.is_exact
    assert not need.is_exact
