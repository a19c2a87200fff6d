"""Speeds that others have published are forecast from facts, without their source in the fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from armload.analysis.kernels import KERNELS
from armload.analysis.roofline import (
    FITTED,
    Times,
    TokenWork,
    forecast,
    from_facts,
    threads_on,
)
from armload.boards.hardware import load_hardware
from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.models.outline import outline_called, outlined

PUBLISHED = Path(__file__).parent.parent.parent / "benchmarks" / "published.py"
GB = 1_000_000_000

LLAMA_3_8B_Q4_K_M = TokenWork(type_name="Q4_K", weights=7.5e9, size_bytes=4.6e9, layers=32)


def published(*words: str) -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, str(PUBLISHED), *words], capture_output=True, text=True, check=True
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def tps(times: Times | None) -> float:
    assert times is not None
    return 1 / times.token_s.value


def test_rows_of_a_source_that_was_left_out_are_forecast_within_the_bars() -> None:
    uses = published("--json")
    found = uses["fit"]
    assert found["rows"] >= 70
    assert found["sources"] >= 10
    assert found["median_error"] <= 0.12
    assert found["within_30_percent"] >= 0.9
    assert 0.72 <= found["in_80_percent_interval"] <= 0.9
    assert 0.72 <= found["in_80_percent_interval_by_source"] <= 0.9
    assert found["prefill_median_error"] <= 0.25
    assert found["prefill_in_80_percent_interval"] >= 0.72
    assert uses["mixture"]["median_error"] <= 0.2


def test_rows_beyond_the_memory_are_forecast_where_the_storage_is_known(tmp_path: Path) -> None:
    row = "{0},blog.jeanbruenn.info,Raspberry Pi 5,BCM2712,4,2400,4,,llama.cpp,2025-11,Qwen2.5 7B"
    row += ",7.62,Q4_K_M,4.683,4,,,,{1},{2}"
    columns, _, _ = PUBLISHED.with_suffix(".csv").read_text(encoding="utf-8").partition("\n")
    # The rates are hdparm's; the weights were in swap. Nothing is known of the last one's storage.
    rows = [("X1", 0.10, "416 MB/s"), ("X2", 0.16, "NVMe 779.55 MB/s"), ("X3", 0.10, "")]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([columns.strip(), *(row.format(*each) for each in rows)]))
    found = published("--rows", str(path), "--json")
    assert found.keys() == {"storage"}
    assert found["storage"]["rows"] == 2
    assert found["storage"]["median_error"] <= 1 / 3, "a factor of 1.5"


def test_the_constants_are_those_that_all_rows_give() -> None:
    refitted = published("--fit")
    for name, value in FITTED.model_dump().items():
        assert refitted[name] == pytest.approx(value, rel=0.02, abs=0.005), name


@pytest.mark.parametrize(
    ("name", "threads", "least", "most"),
    [
        ("raspberry-pi-5-8gb", 4, 1.8, 2.4),  # 10 GB/s whatever the type
        ("orange-pi-5-16gb", 4, 4.4, 6.0),  # 25 GB/s
        ("raspberry-pi-4-8gb", 4, 0.6, 0.9),  # 3.5 GB/s
    ],
)
def test_boards_that_many_have_decode_as_is_known_of_them(
    name: str, threads: int, least: float, most: float
) -> None:
    found = forecast(LLAMA_3_8B_Q4_K_M, load_hardware(name).specs, threads=threads)
    assert least < tps(found) < most


def test_all_cores_of_a_mixed_chip_are_slower_than_its_fast_ones() -> None:
    specs = load_hardware("orange-pi-5-16gb").specs
    usual, big, every = (
        tps(forecast(LLAMA_3_8B_Q4_K_M, specs, threads=threads)) for threads in (None, 4, 8)
    )
    assert usual == big
    assert every < big


def test_threads_beyond_the_fast_cluster_keep_the_pace_of_the_slowest_core_used() -> None:
    fast, slow = CpuCluster(cores=4, name="Cortex-A76"), CpuCluster(cores=4, name="Cortex-A55")
    assert threads_on((slow, fast), None) == (fast, 4)
    assert threads_on((slow, fast), 3) == (fast, 3)
    assert threads_on((slow, fast), 6) == (slow, 6)
    assert threads_on((slow, fast), 12) == (slow, 8)
    assert threads_on((), 4) is None


def test_a_slow_core_reads_no_more_than_its_pipeline_loads() -> None:
    core = CpuCluster(cores=4, name="Cortex-A55", max_mhz=2000)
    slow, fast = (
        forecast(
            LLAMA_3_8B_Q4_K_M,
            DeclaredSpecs(clusters=(core,), memory_core_bytes_per_s=rate * GB),
            threads=1,
        )
        for rate in (8, 80)
    )
    assert slow == fast
    assert tps(fast) < 2 * 3.8 / 4.6


def test_one_core_reads_no_more_than_all_cores_together() -> None:
    core = CpuCluster(cores=4, name="Cortex-A76", max_mhz=2400)
    facts = DeclaredSpecs(clusters=(core,), memory_bytes_per_s=10 * GB)
    optimistic = facts.model_copy(update={"memory_core_bytes_per_s": 20 * GB})
    same = facts.model_copy(update={"memory_core_bytes_per_s": 10 * GB})
    one, other = (forecast(LLAMA_3_8B_Q4_K_M, each, threads=1) for each in (optimistic, same))
    assert one == other


def test_many_threads_of_a_server_wait_for_its_memory_more_than_for_each_other() -> None:
    specs = load_hardware("aws-graviton4").specs
    found = forecast(LLAMA_3_8B_Q4_K_M, specs, threads=64)
    assert found is not None
    assert found.is_memory_bound
    reading_s = LLAMA_3_8B_Q4_K_M.size_bytes / (specs.memory_bytes_per_s or 0)
    assert found.token_s.value < 1.6 * reading_s


def test_embeddings_of_which_a_token_reads_a_row_cost_no_instructions() -> None:
    model, header = outlined(outline_called("gemma-4-e2b"), "Q4_0")
    table = next(each for each in header.tensors if each.name == "per_layer_token_embd.weight")
    assert table.size_bytes > model.bytes_per_token
    work = TokenWork.of(model)
    assert work.type_name == "Q4_0" != table.type_name
    assert work.weights == model.active_parameters
    of_table, own = (KERNELS[each].bits for each in (table.type_name, "Q4_0"))
    assert own < 8 * work.size_bytes / work.weights < of_table


def test_one_thread_is_limited_by_its_core_and_more_threads_by_the_memory() -> None:
    specs = load_hardware("raspberry-pi-5-8gb").specs
    one, four = (forecast(LLAMA_3_8B_Q4_K_M, specs, threads=threads) for threads in (1, 4))
    assert one is not None
    assert four is not None
    assert one.is_memory_bound is False
    assert four.is_memory_bound is True
    assert one.token_s.value > four.token_s.value


def test_cores_that_nobody_knows_have_a_wider_interval() -> None:
    known = DeclaredSpecs(
        memory_bytes_per_s=40 * GB,
        clusters=(CpuCluster(cores=4, name="Cortex-A76", max_mhz=2400),),
    )
    other = known.model_copy(
        update={"clusters": (CpuCluster(cores=4, name="implementer 0x99 part 0x001"),)}
    )
    found, unknown = (forecast(LLAMA_3_8B_Q4_K_M, each) for each in (known, other))
    assert found is not None
    assert unknown is not None
    width, wider = (each.token_s.high / each.token_s.low for each in (found, unknown))
    assert wider > 1.5 * width


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        (DeclaredSpecs(memory_bytes_per_s=10 * GB), "all cores"),
        (DeclaredSpecs(memory_copy_bytes_per_s=10 * GB), "one core"),
        (DeclaredSpecs(memory_peak_bytes_per_s=10 * GB), "peak"),
    ],
)
def test_a_memory_alone_is_enough(facts: DeclaredSpecs, limit: str) -> None:
    found = forecast(LLAMA_3_8B_Q4_K_M, facts)
    assert found is not None
    assert found.limit == limit
    assert found.prompt_token_s is None
    assert found.is_memory_bound is None


def test_nothing_is_forecast_of_a_board_of_which_nothing_is_known() -> None:
    assert forecast(LLAMA_3_8B_Q4_K_M, DeclaredSpecs()) is None


def test_times_of_the_cores_alone_are_said_to_be_so() -> None:
    model, _ = outlined(outline_called("qwen2.5-0.5b"), "Q8_0")
    cores = DeclaredSpecs(clusters=(CpuCluster(cores=1, name="Cortex-A55", max_mhz=2000),))
    alone = from_facts(model, cores)
    both = from_facts(model, cores.model_copy(update={"memory_bytes_per_s": 5 * GB}))
    assert alone is not None
    assert both is not None
    assert ("cores only" in alone.notes, "cores only" in both.notes) == (True, False)
    assert both.token_s.value > alone.token_s.value


def test_a_measured_rate_overrides_what_a_core_copies() -> None:
    specs = load_hardware("rock-5b-8gb").specs
    measured = specs.model_copy(update={"memory_bytes_per_s": 15 * GB})
    found = forecast(LLAMA_3_8B_Q4_K_M, measured)
    assert found is not None
    assert found.limit == "all cores"
    assert found.token_s.value == pytest.approx(4.6 / (15 * FITTED.of_measured), rel=0.02)


def test_larger_tensors_of_a_mixture_cost_instructions_of_their_own() -> None:
    plain = TokenWork(type_name="Q4_K", weights=1e9, size_bytes=1e9 * 4.5 / 8, layers=16)
    mixed = plain.model_copy(update={"size_bytes": 1e9 * 5.0 / 8})
    assert plain.larger_share() == 0
    assert mixed.larger_share() == pytest.approx(0.5 / (KERNELS["Q6_K"].bits - 4.5))
