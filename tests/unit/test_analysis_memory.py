"""A model that does not fit into memory is said to, with figures, before it runs."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from armload.analysis.memory import doubt_about_memory
from armload.boards.board import Board
from armload.boards.rates import Rates
from armload.engines.completion import memory_need
from armload.engines.engine import MemoryNeed
from armload.engines.plan import Plan
from tests.unit.runs import BEFORE
from tests.unit.samples import model

BOARD = Board.model_validate(
    {
        "name": "my-board",
        "target": "rk3568",
        "reach": {"kind": "ssh", "host": "x"},
        "workdir": PurePosixPath("/data/armload"),
        "facts": {"storage_read_bytes_per_s": "165 MB"},
    }
)


def need(plan: Plan, size_bytes: int, kv_bytes_per_token: int = 1000) -> MemoryNeed:
    weights = model(Path("/m/large.gguf"), context_length=100_000).model_copy(
        update={
            "size_bytes": size_bytes,
            "bytes_per_token": 3_000_000_000,
            "kv_bytes_per_token": kv_bytes_per_token,
        }
    )
    return memory_need(plan, weights)


def test_a_model_that_fits_is_no_matter() -> None:
    assert doubt_about_memory(need(Plan(), 1_000_000_000), BOARD, BEFORE, Rates()) == ""


def test_a_model_larger_than_memory_reads_storage() -> None:
    doubt = doubt_about_memory(need(Plan(), 3_200_000_000), BOARD, BEFORE, Rates())
    assert "large.gguf (3.2 GB)" in doubt
    assert "1.9 GB of memory free on my-board" in doubt
    assert "1.4 GB larger" in doubt
    assert "18.2 s each" in doubt
    measured = Rates(storage_read_bytes_per_s=300_000_000)
    doubt = doubt_about_memory(need(Plan(), 3_200_000_000), BOARD, BEFORE, measured)
    assert "10.0 s each" in doubt


def test_a_control_group_s_limit_is_named_in_the_warning() -> None:
    inside = BEFORE.model_copy(
        update={"memory_available_bytes": 440_000_000, "memory_limit_bytes": 471_859_200}
    )
    doubt = doubt_about_memory(need(Plan(), 529_000_000), BOARD, inside, Rates())
    assert "440.0 MB of memory free on my-board (a control group is limited to 471.9 MB)" in doubt
    context = Plan(context_tokens=50_000)
    killed = doubt_about_memory(need(context, 1_000_000, 50_000), BOARD, inside, Rates())
    assert "(a control group is limited to 471.9 MB), but the context alone" in killed


def test_a_context_larger_than_memory_will_be_killed() -> None:
    doubt = doubt_about_memory(
        need(Plan(context_tokens=50_000), 1_000_000, kv_bytes_per_token=50_000),
        BOARD,
        BEFORE,
        Rates(),
    )
    assert "kill the run" in doubt
    assert "--context" in doubt
