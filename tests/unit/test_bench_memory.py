"""A model that does not fit into memory is said to, with figures, before it runs."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from armload.bench.memory import doubt_about_memory
from armload.bench.plan import Plan
from armload.boards.board import Board
from armload.boards.rates import Rates
from armload.models.model import Model
from tests.unit.runs import BEFORE

BOARD = Board.model_validate(
    {
        "name": "my-board",
        "target": "rk3568",
        "reach": {"kind": "ssh", "host": "x"},
        "workdir": PurePosixPath("/data/armload"),
        "facts": {"storage_read_bytes_per_s": "165 MB"},
    }
)


def model(size_bytes: int, kv_bytes_per_token: int = 1000) -> Model:
    return Model(
        path=Path("/m/large.gguf"),
        sha256="0" * 64,
        size_bytes=size_bytes,
        architecture="llama",
        quantisation="Q4_0",
        parameters=1,
        layers=1,
        context_length=100_000,
        vocabulary=1,
        bytes_per_token=3_000_000_000,
        kv_bytes_per_token=kv_bytes_per_token,
    )


def test_a_model_that_fits_is_no_matter() -> None:
    assert doubt_about_memory(Plan(), model(1_000_000_000), BOARD, BEFORE, Rates()) == ""


def test_a_model_larger_than_memory_reads_storage() -> None:
    doubt = doubt_about_memory(Plan(), model(3_200_000_000), BOARD, BEFORE, Rates())
    assert "large.gguf (3.2 GB)" in doubt
    assert "1.9 GB of memory free on my-board" in doubt
    assert "1.4 GB larger" in doubt
    assert "18.2 s each" in doubt
    measured = Rates(storage_read_bytes_per_s=300_000_000)
    doubt = doubt_about_memory(Plan(), model(3_200_000_000), BOARD, BEFORE, measured)
    assert "10.0 s each" in doubt


def test_a_context_larger_than_memory_will_be_killed() -> None:
    doubt = doubt_about_memory(
        Plan(context_tokens=50_000),
        model(1_000_000, kv_bytes_per_token=50_000),
        BOARD,
        BEFORE,
        Rates(),
    )
    assert "end the run" in doubt
    assert "--context" in doubt
