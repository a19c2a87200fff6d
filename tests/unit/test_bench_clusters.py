"""How many boards to buy: one with llama.cpp beside several with distributed-llama."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from armload.analysis.distributed_forecast import exchange, node_times
from armload.bench.clusters import counted_hardware, node_counts
from armload.bench.fitting import BoardsFit, fit_hardware
from armload.boards.hardware import load_hardware
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.engines.spread import LinkRates
from armload.models.distributed_llama import DistributedModel, distributed_model
from armload.models.find import header_of
from armload.models.gguf import read_outline
from armload.runs.request import Request
from tests.outside_data import shared

PI = "raspberry-pi-5-8gb"
LLAMA = "like:llama-3.1-8b:Q4_0"
BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "clusters.py"


def compared(*names: str, model: str = LLAMA, plan: Plan | None = None) -> BoardsFit:
    plan = plan or Plan(prompt_tokens=128)
    return fit_hardware(Request(board="away"), names, (model,), plan, Silent())


def divided(model: str) -> DistributedModel:
    path = header_of(model, Silent())
    return distributed_model(path, read_outline(path)[1], ())


def speeds(found: BoardsFit) -> dict[str, float]:
    return {
        each.board: 1 / time.value
        for each in found.boards
        if (time := each.models[0].prediction.token_s)
    }


@pytest.mark.parametrize("name", [f"4x {PI}", f"4x-{PI}", f"4X{PI}"])
def test_a_number_before_a_name_is_a_number_of_boards(name: str) -> None:
    assert counted_hardware(name) == (4, PI)


def test_a_name_alone_has_no_number() -> None:
    assert counted_hardware(PI) == (0, PI)


def test_numbers_that_can_share_a_model_are_compared_up_to_the_one_that_is_named() -> None:
    assert [node_counts(each) for each in (1, 3, 4)] == [[1], [1, 2, 3], [1, 2, 4]]


def test_what_two_nodes_exchange_is_what_was_measured() -> None:
    """By the program itself: 34 rounds, 78 kB sent and 326 kB received for a token of a 1B."""
    found = exchange(divided("like:llama-3.2-1b:Q4_0"), 2)
    assert found.rounds == 34
    assert round(found.sent_bytes, -3) == 78_000
    assert round(found.received_bytes, -3) == 326_000


def test_each_round_takes_the_exchange_that_was_measured_with_the_slowest_node() -> None:
    found = exchange(divided("like:llama-3.2-1b:Q4_0"), 4)
    idle = LinkRates(board="b", round_trip_s=0.001, to_bytes_per_s=1e12, from_bytes_per_s=1e12)
    busy = idle.model_copy(update={"board": "c", "exchange_s": 0.004})
    assert found.time_s([idle]) == pytest.approx(34 * 0.0005, rel=0.01)
    assert found.time_s([idle, busy]) == pytest.approx(34 * 0.004, rel=0.01)


def test_one_node_exchanges_nothing_and_more_nodes_compute_less_and_exchange_more() -> None:
    model, facts = divided(LLAMA), load_hardware(PI).specs
    one, two, four = (node_times(model, each, facts, depth=64, threads=None) for each in (1, 2, 4))
    assert one is not None
    assert two is not None
    assert four is not None
    assert one.exchanging.value == 0
    assert one.computing.value > 1.9 * two.computing.value > 3.6 * four.computing.value
    assert 0 < two.exchanging.value < four.exchanging.value


def test_numbers_of_boards_are_compared_with_one_board_and_the_gain_is_said() -> None:
    found = compared(f"4x-{PI}")
    fast = speeds(found)
    assert set(fast) == {PI, *(f"{count}x-{PI}" for count in (2, 4))}
    assert fast[PI] < fast[f"2x-{PI}"] < fast[f"4x-{PI}"]
    assert [each.engine for each in found.boards] == ["dllama", "dllama", "llama.cpp", "dllama"]
    assert "the first board needs" in refusals(found)[f"1x-{PI}"]
    assert "on one board with llama.cpp; with distributed-llama, " in found.recommendation
    times = fast[f"4x-{PI}"] / fast[PI]
    assert f" on 4 ({times:.3g} times)." in found.recommendation


def test_what_is_assumed_of_the_network_is_said() -> None:
    notes = [note.sentence for note in compared(f"2x-{PI}").boards[0].models[0].prediction.notes]
    assert any("1 Gbit/s with a round trip of 0.2 ms" in each for each in notes)


def refusals(found: BoardsFit) -> dict[str, str]:
    return {
        each.board: its.division.refused
        for each in found.boards
        if (its := each.models[0].prediction).verdict == "cannot run" and its.division
    }


def test_numbers_that_cannot_share_the_model_are_refused_with_the_reason() -> None:
    for count, why in (
        (3, "the number of boards must be a power of two."),
        (16, "it has only 8 key-value heads."),
    ):
        assert refusals(compared(f"{count}x-{PI}"))[f"{count}x-{PI}"] == why


def test_a_board_too_small_for_the_first_node_is_refused() -> None:
    found = refusals(compared("4x-raspberry-pi-5-4gb"))
    assert set(found) == {f"{count}x-raspberry-pi-5-4gb" for count in (1, 2)}
    assert "the first board needs " in found["1x-raspberry-pi-5-4gb"]


def test_a_model_that_distributed_llama_cannot_run_is_an_error() -> None:
    with pytest.raises(UsageError, match="Q4_K matrices") as caught:
        compared(f"2x-{PI}", model="like:llama-3.1-8b:Q4_K_M")
    assert "--type Q4_0" in caught.value.remedy


def test_a_model_can_be_predicted_as_it_would_be_quantised() -> None:
    plan, kind = Plan(prompt_tokens=128), ("Q4_0",)
    names = ("like:llama-3.1-8b:F16",)
    found = fit_hardware(
        Request(board="away"), [f"2x-{PI}"], names, plan, Silent(), file_types=kind
    )
    assert speeds(found) == pytest.approx(speeds(compared(f"2x-{PI}")))


@pytest.mark.parametrize(
    ("plan", "option"),
    [(Plan(prompt_tokens=128, kv_type="q8_0"), "--kv-type"), (Plan(device="gpu"), "--device gpu")],
)
def test_options_of_llama_cpp_alone_are_refused(plan: Plan, option: str) -> None:
    with pytest.raises(UsageError, match=f"has no {option}"):
        compared(f"2x-{PI}", plan=plan)


def test_numbers_need_a_model_and_one_kind_of_hardware() -> None:
    with pytest.raises(UsageError, match="name the models"):
        fit_hardware(Request(board="away"), [f"2x-{PI}"], (), Plan(), Silent())
    with pytest.raises(UsageError, match="one kind of hardware"):
        compared("2x-all")


def test_published_speeds_of_clusters_are_forecast_as_well_as_the_documentation_says() -> None:
    words = [sys.executable, str(BENCHMARK), str(shared("clusters.csv")), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    assert found["rows"] == 13
    assert found["median_error"] < 0.27
    assert found["median_of_sources"] < 0.21
    assert found["recent_median_error"] < 0.1
    assert found["worst_error"] < 0.8
