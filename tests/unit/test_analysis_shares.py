"""Dividing a model between the members of a group."""

from __future__ import annotations

import pytest

from armload.analysis.shares import LayerSizes, MemberResources, layer_sizes, spread
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Silent
from armload.engines.engine import MemoryNeed
from armload.engines.spread import Spread
from armload.models.find import RANDOM, resolve
from armload.models.model import read_headers

MIB = 1 << 20
SIZES = LayerSizes(
    input_bytes=60 * MIB,
    layer_bytes=(100 * MIB,) * 16,
    output_bytes=80 * MIB,
    largest_bytes=80 * MIB,
)
NEED = MemoryNeed(
    name="model.gguf",
    weights_bytes=1740 * MIB,
    kv_bytes=160 * MIB,
    program_bytes=40 * MIB,
    context_tokens=2048,
    bytes_per_token=1680 * MIB,
)


def member(board: str, free_mib: int, rate: int | None = None) -> MemberResources:
    return MemberResources(board=board, free_bytes=free_mib * MIB, memory_bytes_per_s=rate)


def layers(found: Spread) -> list[int]:
    return [share.layers for share in found.shares]


def test_a_model_is_divided_by_memory_where_no_member_is_faster() -> None:
    members = [member("a", 1300), member("b", 1300), member("c", 700)]
    found = spread(members, SIZES, NEED, "layer")
    # Of a, input and buffers take a layer's memory; of c, tensors in transit and the output two.
    assert layers(found) == [7, 7, 2]
    assert sum(share.weights_bytes for share in found.shares) == 1680 * MIB
    for each, share in zip(members, found.shares, strict=True):
        assert share.weights_bytes < share.memory_bytes <= each.free_bytes


def test_nearly_equal_speeds_decide_nothing_and_unknown_ones_neither() -> None:
    for rates in ((10, 11, 10), (10, 100, None)):
        members = [member(name, 1300, rate) for name, rate in zip("abc", rates, strict=True)]
        assert layers(spread(members, SIZES, NEED, "layer")) == [6, 5, 5]


def test_the_fastest_member_gets_what_fits_and_each_other_one_a_layer_at_least() -> None:
    members = [member("a", 1300, 10), member("b", 1300, 40), member("c", 1300, 20)]
    assert layers(spread(members, SIZES, NEED, "layer")) == [1, 10, 5]
    members = [member("a", 4000, 40), member("b", 1300, 10), member("c", 1300, 20)]
    assert layers(spread(members, SIZES, NEED, "layer")) == [14, 1, 1]


def test_no_share_exceeds_a_member_down_to_the_last_layer_that_fits() -> None:
    free = 40 + 60 + 5 * 110
    members = [member("a", free), member("b", free + 20 + 100)]
    small = SIZES.model_copy(update={"layer_bytes": (100 * MIB,) * 10})
    need = NEED.model_copy(update={"kv_bytes": 100 * MIB})
    assert layers(spread(members, small, need, "layer")) == [5, 5]
    with pytest.raises(BoardError, match=r"exceeds what is free: a 680\.5 MB, b 807\.4 MB"):
        spread([member("a", free - 1), members[1]], small, need, "layer")


def test_a_member_without_memory_for_one_layer_is_named() -> None:
    with pytest.raises(
        BoardError, match=r"^c: one layer of model.gguf takes .* are free"
    ) as caught:
        spread([member("a", 4000), member("b", 4000), member("c", 200)], SIZES, NEED, "layer")
    assert "another group" in caught.value.remedy


def test_more_members_than_layers_are_refused() -> None:
    members = [member(str(number), 4000) for number in range(17)]
    with pytest.raises(UsageError, match="has 16 layers, fewer than the group has members"):
        spread(members, SIZES, NEED, "layer")


def test_parts_of_every_layer_follow_the_speed() -> None:
    members = [member("a", 4000, 30), member("b", 4000, 10)]
    found = spread(members, SIZES, NEED, "tensor")
    assert layers(found) == [16, 16]
    assert found.shares[0].weights_bytes == 3 * found.shares[1].weights_bytes
    with pytest.raises(BoardError, match=r"^b: its 43% of model.gguf"):
        spread([member("a", 4000, 13), member("b", 800, 10)], SIZES, NEED, "tensor")


def test_the_output_follows_the_last_layer_in_llama_cpps_count() -> None:
    found = spread([member("a", 1300), member("b", 1300), member("c", 700)], SIZES, NEED, "layer")
    words = found.words(["127.0.0.1:2", "127.0.0.1:3"])
    assert " ".join(words) == "--rpc 127.0.0.1:2,127.0.0.1:3 -sm layer -ngl 10 -ts 7,3"
    found = spread([member("a", 4000, 30), member("b", 4000, 10)], SIZES, NEED, "tensor")
    words = found.words(["127.0.0.1:1", "127.0.0.1:2"])
    assert " ".join(words) == "--rpc 127.0.0.1:1,127.0.0.1:2 -sm tensor -ngl 17 -ts 750,250"


def test_the_sizes_of_a_models_parts_are_those_of_its_tensors() -> None:
    random_model = resolve(RANDOM, Silent())
    header, _ = read_headers(random_model)
    sizes = layer_sizes(random_model)
    tied = not any(tensor.name == "output.weight" for tensor in header.tensors)
    every = sum(tensor.size_bytes for tensor in header.tensors)
    assert len(sizes.layer_bytes) == header.metadata["llama.block_count"]
    assert sizes.input_bytes + sum(sizes.layer_bytes) + sizes.output_bytes == every + (
        sizes.input_bytes if tied else 0
    )
    assert sizes.largest_bytes == max(tensor.size_bytes for tensor in header.tensors)
