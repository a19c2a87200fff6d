"""A token's time is the sum of its operations."""

from __future__ import annotations

import pytest

from armload.analysis.compute import (
    DISTURBED_TIMES,
    WHOLE_ENCODER,
    WHOLE_TOKEN,
    Compute,
    encoder_from_operations,
    from_operations,
)
from armload.core.errors import DataError
from armload.engines.operations import Graph, Operation, Operations, Timed
from armload.engines.prediction import Expected

MATRIX, ATTENTION, DEEP, BATCH, BATCH_ATTENTION, BATCH_DEEP, NORM = range(7)

FOUND = Operations(
    load_s=0.2,
    timed_bytes=1000,
    graphs=(
        Graph(tokens=1, depth=256, counts=((MATRIX, 10), (ATTENTION, 10), (NORM, 20))),
        Graph(tokens=64, depth=256, counts=((BATCH, 9), (BATCH_ATTENTION, 10), (MATRIX, 1))),
        Graph(tokens=1, depth=4096, counts=((MATRIX, 10), (DEEP, 10), (NORM, 20))),
        Graph(tokens=64, depth=4096, counts=((BATCH, 9), (BATCH_DEEP, 10), (MATRIX, 1))),
    ),
    operations=(
        Operation(key="matrix", weights_bytes=1000, moved_bytes=10),
        Operation(key="attention", weights_bytes=0, moved_bytes=100),
        Operation(key="deep", weights_bytes=0, moved_bytes=1600),
        Operation(key="batch", weights_bytes=1000, moved_bytes=640),
        Operation(key="batch attention", weights_bytes=0, moved_bytes=700),
        Operation(key="batch deep", weights_bytes=0, moved_bytes=2200),
        Operation(key="norm", weights_bytes=1, moved_bytes=1),
    ),
)
TIMES_S = {
    "matrix": 0.010,
    "attention": 0.001,
    "deep": 0.016,
    "batch": 0.064,
    "batch attention": 0.0064,
    "batch deep": 0.1024,
    "norm": 0.0,
}
TIMES = {key: Timed(number=0, time_s=time_s) for key, time_s in TIMES_S.items()}
GROWTH_S = 10 * (0.016 - 0.001) / (4096 - 256)


def _computed(depth: float, *, memory: int | None = None, **times: Timed) -> Compute:
    return from_operations(FOUND, TIMES | times, depth=depth, memory_bytes_per_s=memory)


@pytest.mark.parametrize("depth", [256, 1000, 4096, 8192])
def test_attention_grows_with_the_tokens_in_the_cache(depth: int) -> None:
    token_s = _computed(depth).token_s
    assert token_s.value == pytest.approx(WHOLE_TOKEN * (0.11 + (depth - 256) * GROWTH_S))
    assert token_s.low < token_s.value < token_s.high


def test_a_token_is_never_faster_than_its_weights_come_from_memory() -> None:
    assert _computed(256, memory=1_000_000).token_s.value == pytest.approx(WHOLE_TOKEN * 0.11)
    assert _computed(256, memory=10_000).token_s.value == pytest.approx(10_020 / 10_000)


def test_weights_that_fit_into_the_caches_need_no_memory() -> None:
    small = FOUND.model_copy(update={"timed_bytes": 10_020})
    found = from_operations(small, TIMES, depth=256, memory_bytes_per_s=10_000)
    assert found.token_s.value == pytest.approx(WHOLE_TOKEN * 0.11)


def test_a_prompt_takes_its_tokens_and_the_growing_attention_without_the_output() -> None:
    found = _computed(256)
    at_start_s = (9 * 0.064 + 10 * 0.0064) / 64
    growth_s = 10 * (0.1024 - 0.0064) / 64 / (4096 - 256)
    assert found.prompt_token_s.value == pytest.approx(at_start_s - 256 * growth_s)
    assert found.prompt_growth_s == pytest.approx(growth_s)
    prompt_s = found.prompt_s(2048).value
    assert prompt_s == pytest.approx(2048 * (at_start_s + (1024 - 256) * growth_s))
    assert found.prompt_s(1) == found.token_s


def test_loading_includes_laying_out_the_weights_and_the_first_token() -> None:
    laid_out = Timed(number=0, time_s=TIMES_S["matrix"], load_s=0.03)
    assert _computed(256, matrix=laid_out).load_s.value == pytest.approx(
        0.2 + 10 * 0.03 + WHOLE_TOKEN * 0.11
    )


def test_what_was_timed_beside_other_programs_may_be_much_faster_and_that_is_said() -> None:
    busy = Timed(number=0, time_s=0.03, is_settled=False)
    found, alone = _computed(256, matrix=busy), _computed(256)
    assert (found.notes, alone.notes) == (("operations disturbed",), ())
    assert found.token_s.value == pytest.approx(WHOLE_TOKEN * 0.31)
    assert 0.01 < found.token_s.low < 0.1 < 1.1 * alone.token_s.low
    hardly = _computed(256, attention=Timed(number=0, time_s=0.001, is_settled=False))
    assert hardly.notes == ()


def test_disturbed_operations_take_no_less_than_reading_the_weights() -> None:
    busy = {key: each.model_copy(update={"is_settled": False}) for key, each in TIMES.items()}

    def computed(memory: int | None, *, is_settled: bool = True) -> Expected:
        return from_operations(
            *(FOUND, busy),
            depth=256,
            memory_bytes_per_s=memory,
            memory_is_settled=is_settled,
        ).token_s

    usual = _computed(256).token_s
    assert computed(None) == usual.model_copy(update={"low": usual.low / DISTURBED_TIMES})
    bounded, others = computed(200_000), computed(200_000, is_settled=False)
    assert (bounded.value, others.value) == (usual.value, usual.value)
    assert bounded.low == pytest.approx(10_020 / 200_000 / 1.2)
    assert others.low == pytest.approx(10_020 / 200_000 / DISTURBED_TIMES)
    assert computed(10_000) == _computed(256, memory=10_000).token_s, "memory alone limits it"
    assert computed(10_000, is_settled=False).value == usual.value, "others made the rate too low"


def test_the_interval_holds_the_speeds_that_the_board_had_while_it_was_timed() -> None:
    varied = Timed(number=0, time_s=0.010, range_s=(0.006, 0.016))
    steady = Timed(number=0, time_s=0.010, range_s=(0.0099, 0.0101))
    found, usual = _computed(256, matrix=varied).token_s, _computed(256).token_s
    assert _computed(256, matrix=steady).token_s == usual
    assert found.value == pytest.approx(usual.value)
    assert found.low == pytest.approx(WHOLE_TOKEN * 0.07)
    assert found.high == pytest.approx(WHOLE_TOKEN * 0.17)
    assert found.low < usual.low < usual.high < found.high


def test_what_was_not_timed_takes_as_long_for_each_byte() -> None:
    times = {key: timed for key, timed in TIMES.items() if key not in ("norm", "attention")}
    found = from_operations(FOUND, times, depth=256, memory_bytes_per_s=None)
    assert found.token_s.value > 0.1
    assert found.token_s.value == pytest.approx(WHOLE_TOKEN * 0.1 * (10_100 + 1000 + 40) / 10_100)


def test_a_speed_is_not_made_up_from_a_few_operations() -> None:
    times = {"attention": TIMES["attention"], "matrix": Timed(number=0, signal=4)}
    with pytest.raises(DataError, match="only 9% of the model's computation was timed"):
        from_operations(FOUND, times, depth=256, memory_bytes_per_s=None)


def test_a_prompt_takes_as_long_as_its_tokens_where_time_was_short() -> None:
    times = {key: timed for key, timed in TIMES.items() if "batch" not in key}
    found = from_operations(FOUND, times, depth=256, memory_bytes_per_s=None)
    assert found.token_s.value == pytest.approx(WHOLE_TOKEN * 0.11)
    assert found.prompt_s(512).value == pytest.approx(512 * 0.11)


def test_an_encoder_takes_its_graphs_as_often_as_the_image_has_parts() -> None:
    tiles, overview = FOUND.graphs[1], FOUND.graphs[3]
    found = FOUND.model_copy(update={"graphs": (tiles, overview)})
    taken = encoder_from_operations(found, TIMES, [4, 1])
    tile_s, overview_s = (9 * 0.064 + 10 * each + 0.010 for each in (0.0064, 0.1024))
    assert taken is not None
    assert taken.value == pytest.approx(WHOLE_ENCODER * (4 * tile_s + overview_s))
    assert taken.low < taken.value < taken.high
    # What was not timed may be most of it: products move few bytes.
    without = {key: each for key, each in TIMES.items() if key != "batch deep"}
    assert encoder_from_operations(found, without, [4, 1]) is None
