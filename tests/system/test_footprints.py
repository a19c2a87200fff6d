"""A program says to the byte what it would allocate, with nothing but a model's header."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.build.builder import build
from armload.build.target import load_target
from tests.footprints import architectures, compared

pytestmark = pytest.mark.build

FEWER_SEQUENCES = "minimax-01-moe"
"""llama.cpp's simulation reserves its graph for all sequences, and loading it for one, which takes
more."""


@pytest.fixture(scope="module")
def programs() -> tuple[Path, Path]:
    """llama-completion and llama-server for this machine."""
    names = ("llama-completion", "llama-server")
    completion, server = build(load_target("host"), programs=names)
    return completion.path, server.path


@pytest.mark.exhaustive(
    covers=[
        "toolchains/native/armload_footprint.cpp",
        "toolchains/overlay",
        "toolchains/sources/llama-cpp.yaml",
        "armload/models/whole_header.py",
        "armload/engines/footprint.py",
        "tests/footprints.py",
    ]
)
def test_every_architecture_is_simulated_to_the_byte(
    programs: tuple[Path, Path], tmp_path: Path
) -> None:
    models = architectures(tmp_path)
    assert len(models) >= 125
    for each in (found for model in models for found in compared(*programs, model)):
        simulated, allocated = each.simulated, each.allocated
        case = (each.model, each.context, each.sequences)
        assert simulated.context_bytes == allocated.context_bytes, case
        assert simulated.output_bytes == allocated.output_bytes, case
        assert simulated.work_bytes == allocated.work_bytes, case
        if each.model == FEWER_SEQUENCES and each.sequences > 1:
            assert simulated.reserved_bytes < allocated.reserved_bytes, case
        else:
            assert simulated.reserved_bytes == allocated.reserved_bytes, case
