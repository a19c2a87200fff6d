"""What a group is expected to take: its members, and what crosses the links between them."""

from __future__ import annotations

import pytest

from armload.analysis.board_resources import Rate
from armload.analysis.compute import Compute
from armload.analysis.group_forecast import (
    CACHED_FROM_BYTES,
    Exchanges,
    GroupTimes,
    chosen_between,
    crossings,
    exchanges,
    group_times,
    load_time,
)
from armload.analysis.shares import LayerSizes
from armload.engines.prediction import Expected
from armload.engines.spread import LinkRates, Share, Split, Spread

MB = 1_000_000
SIZES = LayerSizes(
    input_bytes=30 * MB,
    layer_bytes=(20 * MB,) * 10,
    output_bytes=20 * MB,
    largest_bytes=30 * MB,
    divided_tensors=(*(8 * MB, 12 * MB) * 10, 20 * MB),
    width=1000,
    vocabulary=32_000,
)


def compute(token_s: float) -> Compute:
    return Compute(
        token_s=Expected.within(token_s, 0.1),
        prompt_token_s=Expected.within(token_s / 4, 0.1),
        load_s=Expected.within(1.0, 0.5),
        source="operations",
    )


def spread(
    split: Split, *weights_mb: int, round_trip_s: float = 0.001, rate: float = 1e8
) -> Spread:
    names = "abcd"[: len(weights_mb)]
    return Spread(
        split=split,
        shares=tuple(
            Share(board=name, layers=3, weights_bytes=each * MB, memory_bytes=each * MB)
            for name, each in zip(names, weights_mb, strict=True)
        ),
        links=tuple(
            LinkRates(
                board=name, round_trip_s=round_trip_s, to_bytes_per_s=rate, from_bytes_per_s=rate
            )
            for name in names[1:]
        ),
    )


def times(found: Spread, *token_s: float, prompt_tokens: int = 10) -> GroupTimes:
    return group_times(
        *(found, SIZES, [compute(each) for each in token_s]), prompt_tokens=prompt_tokens, depth=50
    )


def test_a_sum_over_members_goes_by_pairs_and_takes_in_those_beyond_a_power_of_two() -> None:
    assert exchanges(2) == [Exchanges(gets=1, sets=1, adds=1)] * 2
    assert exchanges(4) == [Exchanges(gets=2, sets=2, adds=2)] * 4
    assert exchanges(3) == [
        Exchanges(gets=2, sets=2, adds=2),
        Exchanges(gets=1, sets=1, adds=1),
        Exchanges(gets=1, sets=1, adds=0),
    ]


def test_whole_layers_take_what_each_member_computes_and_a_round_trip_to_each_other_one() -> None:
    found = times(spread("layer", 110, 110, round_trip_s=0.5), 0.2, 0.4)
    assert found.token_s.value == pytest.approx(0.1 + 0.2 + 0.5, rel=0.01)
    kinds = [(part.kind, part.board) for part in found.forecast.parts]
    assert kinds == [("member", "a"), ("member", "b"), ("link", "b")]
    assert found.forecast.longest.name == "the connection to b"
    near = times(spread("layer", 110, 110, round_trip_s=0.0001), 0.2, 0.4)
    assert near.forecast.longest.name == "b"
    assert near.token_s.low < near.token_s.value < near.token_s.high


def test_of_the_last_member_logits_come_back_and_of_those_between_activations() -> None:
    between, last = crossings("layer", SIZES, [0.4, 0.3, 0.3], tokens=1, depth=0)
    assert between.from_bytes == 4 * SIZES.width
    assert last.from_bytes == 4 * SIZES.vocabulary
    assert between.round_trips == last.round_trips == 1


def test_parts_of_every_layer_are_computed_at_once_and_wait_twice_per_layer() -> None:
    found = times(spread("tensor", 110, 110, round_trip_s=0.01), 0.2, 0.4)
    own, other = crossings("tensor", SIZES, [0.5, 0.5], tokens=1, depth=0)
    assert own.round_trips == other.round_trips == 2 * len(SIZES.layer_bytes) + 1
    links = {part.board: part.token_s for part in found.forecast.parts if part.kind == "link"}
    assert links["b"] > 21 * 0.01
    assert links["a"] < 0.05
    assert found.token_s.value == pytest.approx(0.2 + sum(links.values()))


def test_bytes_of_a_token_are_those_that_two_models_sent() -> None:
    stories = SIZES.model_copy(update={"layer_bytes": (1,) * 5, "width": 64, "vocabulary": 512})
    smollm2 = SIZES.model_copy(
        update={"layer_bytes": (1,) * 30, "width": 576, "vocabulary": 49_152}
    )
    cases: tuple[tuple[LayerSizes, Split, int], ...] = (
        (stories, "layer", 3580),
        (stories, "tensor", 676_510),
        (smollm2, "tensor", 19_733_032),
    )
    for sizes, split, to_bytes in cases:
        found = crossings(split, sizes, [0.5, 0.5], tokens=1, depth=12)[-1]
        assert found.to_bytes == pytest.approx(to_bytes, rel=0.03)
    assert crossings("layer", smollm2, [0.5, 0.5], tokens=1, depth=12)[0].from_bytes == 196_608


def test_graphs_that_add_partial_sums_grow_with_the_square_of_the_layers() -> None:
    half = SIZES.model_copy(update={"layer_bytes": SIZES.layer_bytes[:5]})
    few, many = (
        crossings("tensor", sizes, [0.5, 0.5], tokens=1, depth=0)[1].to_bytes
        for sizes in (half, SIZES)
    )
    assert 3 < many / few < 4


def test_a_prompt_sends_its_activations_for_each_micro_batch() -> None:
    slow = spread("layer", 110, 110, round_trip_s=0.0001, rate=1e6)
    one, many = (times(slow, 0.004, 0.004, prompt_tokens=each).prompt_s.value for each in (1, 1024))
    sent_s = 1024 * 2 * 4 * SIZES.width / 1e6
    assert many > one + 0.9 * sent_s


def test_loading_reads_the_file_and_sends_each_part_unless_a_member_has_kept_it() -> None:
    found = spread("layer", 110, 110, rate=1e7)
    storages = [Rate(bytes_per_s=20 * MB, kind="measured")] * 2
    first, later = (
        load_time(found, SIZES, compute(0.1), storages, 250 * MB, is_kept=is_kept)
        for is_kept in (False, True)
    )
    assert first.value == pytest.approx(1 + 250 / 20 + 110 / 10)
    large = sum(size for size in SIZES.divided_tensors if size > CACHED_FROM_BYTES)
    share = large / sum(SIZES.divided_tensors)
    assert later.value == pytest.approx(1 + 250 / 20 + 110 * (1 - share) / 10 + 110 * share / 20)
    assert first.low < 1 + 110 / 10


def test_the_choice_says_both_times_or_why_there_is_one() -> None:
    said = chosen_between("layer", {"layer": 0.1, "tensor": 2.5}, {})
    times = "about 100 ms per token, compared with 2.50 s with tensor"
    assert said == f"--split auto takes layer: {times}."
    said = chosen_between("layer", {"layer": 0.1}, {"tensor": "it requires flash attention."})
    why = "tensor is not possible: it requires flash attention"
    assert said == f"--split auto takes layer; {why}."
    assert "speed is unknown" in chosen_between("layer", {}, {})
