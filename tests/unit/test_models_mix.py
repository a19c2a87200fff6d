"""Which tensors a model has, and of which types: held against published files.

The facts here are the published models', not the shape files'.
"""

from __future__ import annotations

from collections import Counter

import pytest

from armload.models.blocks import bytes_per_row
from armload.models.quant_mix import mixed_types
from armload.models.shape import Shape, load_shape
from armload.models.tensors import constants, matrices

NO_WORDS = range(1)

PUBLISHED_BYTES = {
    "llama-3.1-8b": {
        "Q2_K": 3179136416,
        "Q3_K_S": 3664504224,
        "Q3_K_M": 4018922912,
        "Q3_K_L": 4321961376,
        "Q4_0": 4661216672,
        "Q4_K_S": 4692673952,
        "Q4_K_M": 4920739232,
        "Q5_K_S": 5599298976,
        "Q5_K_M": 5732992416,
        "Q6_K": 6596011424,
        "Q8_0": 8540775840,
        "F32": 32128885888,
    },
    "llama-3.2-1b": {
        "Q3_K_L": 732524672,
        "Q4_0": 770928768,
        "Q4_K_S": 775647360,
        "Q4_K_M": 807694464,
        "Q5_K_S": 892563584,
        "Q5_K_M": 911503488,
        "Q6_K": 1021800576,
        "Q8_0": 1321083008,
        "F16": 2479595360,
    },
    "llama-3.2-3b": {
        "Q2_K": 1363935680,
        "Q3_K_S": 1542848960,
        "Q3_K_M": 1687159232,
        "Q4_K_S": 1928200640,
        "Q4_K_M": 2019377600,
        "Q5_K_S": 2269512128,
        "Q5_K_M": 2322153920,
        "Q6_K": 2643853760,
        "Q8_0": 3421898816,
        "F16": 6433687616,
    },
    "qwen2.5-0.5b": {"Q4_K_M": 397808192},
    "qwen2.5-1.5b": {"Q4_K_M": 986048768},
    "qwen2.5-7b": {
        "Q2_K": 3015940032,
        "Q3_K_M": 3808391104,
        "Q4_0": 4431390720,
        "Q4_K_M": 4683073536,
        "Q5_K_M": 5444831232,
        "Q6_K": 6254198784,
        "Q8_0": 8098525184,
        "F16": 15237853184,
    },
    "qwen3-0.6b": {
        "Q2_K": 296238784,
        "Q3_K_S": 323075776,
        "Q3_K_M": 347127488,
        "Q4_K_S": 383270592,
        "Q4_K_M": 396705472,
        "Q5_K_S": 436616896,
        "Q5_K_M": 444415680,
        "Q6_K": 495107776,
        "Q8_0": 639447744,
    },
}
"""Files on the Hugging Face hub, of bartowski, unsloth and Qwen."""

PUBLISHED_WITH_TWO_TABLES_BYTES = {
    "qwen2.5-0.5b": {
        "Q2_K": 415182688,
        "Q3_K_M": 432041824,
        "Q4_0": 428730208,
        "Q4_K_M": 491400032,
        "Q5_0": 490475360,
        "Q5_K_M": 522186592,
        "Q6_K": 650379104,
        "Q8_0": 675710816,
        "F16": 1266425696,
    },
    "qwen2.5-1.5b": {
        "Q2_K": 752880160,
        "Q3_K_M": 924455968,
        "Q4_0": 1066227232,
        "Q4_K_M": 1117320736,
        "Q5_0": 1259173408,
        "Q5_K_M": 1285494304,
        "Q6_K": 1464178720,
        "Q8_0": 1894532128,
    },
}
"""Qwen's own uploads, which hold the output matrix beside the embedding that it equals."""


def tensor_types(shape: Shape, file_type: str) -> dict[str, str]:
    vectors = {each.name: "F32" for each in constants(shape)}
    return vectors | mixed_types(shape, matrices(shape, NO_WORDS), file_type)


def _tensor_bytes(shape: Shape, file_type: str) -> int:
    planned = matrices(shape, NO_WORDS)
    types = mixed_types(shape, planned, file_type)
    weights = sum(each.rows * bytes_per_row(types[each.name], each.columns) for each in planned)
    return weights + sum(4 * len(each.values) for each in constants(shape))


def _check_published(shape: Shape, published_bytes: dict[str, int]) -> None:
    headers = {
        size_bytes - _tensor_bytes(shape, file_type)
        for file_type, size_bytes in published_bytes.items()
    }
    # What differs are keys about the quantisation.
    assert max(headers) - min(headers) < 500
    assert 5_900_000 < min(headers) < 7_900_000


@pytest.mark.parametrize("name", PUBLISHED_BYTES)
def test_published_files_of_all_types_have_our_tensors_bytes_and_one_header(name: str) -> None:
    _check_published(load_shape(name), PUBLISHED_BYTES[name])


@pytest.mark.parametrize("name", PUBLISHED_WITH_TWO_TABLES_BYTES)
def test_published_files_with_an_output_of_their_own_have_our_tensors_bytes(name: str) -> None:
    shape = load_shape(name).model_copy(update={"tied": False})
    _check_published(shape, PUBLISHED_WITH_TWO_TABLES_BYTES[name])


def test_types_are_counted_as_engines_counted_those_of_published_files() -> None:
    llama = load_shape("llama-3.1-8b")
    assert Counter(tensor_types(llama, "Q4_K_M").values()) == {"F32": 66, "Q4_K": 193, "Q6_K": 33}
    # Qwen's own upload has the output twice.
    qwen = load_shape("qwen2.5-0.5b").model_copy(update={"tied": False})
    assert Counter(tensor_types(qwen, "Q4_K_M").values()) == {
        "F32": 121,
        "Q5_0": 133,
        "Q8_0": 13,
        "Q4_K": 12,
        "Q6_K": 12,
    }


def test_an_8b_models_tensors_have_the_published_names_sizes_andtensor_types() -> None:
    shape = load_shape("llama-3.1-8b")
    types = tensor_types(shape, "Q4_K_M")
    sizes = {each.name: (each.columns, each.rows) for each in matrices(shape, NO_WORDS)}
    vectors = {each.name: len(each.values) for each in constants(shape)}
    assert len(types) == 292
    assert (sizes["token_embd.weight"], types["token_embd.weight"]) == ((4096, 128256), "Q4_K")
    assert (sizes["output.weight"], types["output.weight"]) == ((4096, 128256), "Q6_K")
    assert vectors["output_norm.weight"] == 4096
    assert vectors["rope_freqs.weight"] == 64
    first = {name.removeprefix("blk.0."): name for name in types if name.startswith("blk.0.")}
    assert {short: (sizes.get(name), types[name]) for short, name in first.items()} == {
        "attn_norm.weight": (None, "F32"),
        "ffn_norm.weight": (None, "F32"),
        "attn_k.weight": ((4096, 1024), "Q4_K"),
        "attn_output.weight": ((4096, 4096), "Q4_K"),
        "attn_q.weight": ((4096, 4096), "Q4_K"),
        "attn_v.weight": ((4096, 1024), "Q6_K"),
        "ffn_down.weight": ((14336, 4096), "Q6_K"),
        "ffn_gate.weight": ((4096, 14336), "Q4_K"),
        "ffn_up.weight": ((4096, 14336), "Q4_K"),
    }
    assert types["blk.4.ffn_down.weight"] == "Q4_K"


def test_families_differ_in_biases_norms_and_output() -> None:
    def of_layer_1(name: str) -> set[str]:
        names = tensor_types(load_shape(name), "F16")
        return {each.removeprefix("blk.1.") for each in names if each.startswith("blk.1.")}

    usual = of_layer_1("llama-3.2-1b")
    biases = {"attn_q.bias", "attn_k.bias", "attn_v.bias"}
    assert of_layer_1("qwen2.5-7b") == usual | biases
    assert of_layer_1("qwen3-0.6b") == usual | {"attn_q_norm.weight", "attn_k_norm.weight"}
    tied = {
        name
        for name in PUBLISHED_BYTES
        if "output.weight" not in tensor_types(load_shape(name), "F16")
    }
    assert tied == {"llama-3.2-1b", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b"}


@pytest.mark.parametrize(
    ("file_type", "usual", "tiny"),
    [
        ("Q2_K", "Q4_0", "F16"),
        ("Q3_K_S", "Q4_0", "F16"),
        ("Q4_K_S", "Q5_0", "F16"),
        ("Q5_K_S", "Q5_1", "F16"),
        ("Q6_K", "Q8_0", "F16"),
        ("Q8_0", "Q8_0", "F16"),
    ],
)
def test_rows_that_no_block_divides_get_the_type_that_llama_quantize_falls_back_to(
    file_type: str, usual: str, tiny: str
) -> None:
    shape = load_shape("stories260k").model_copy(update={"width": 96, "feed_forward": 172})
    types = tensor_types(shape, file_type)
    assert types["blk.4.ffn_up.weight"] == usual
    assert types["blk.4.ffn_down.weight"] == tiny
    assert types["output.weight"] == "Q8_0"


def test_frequencies_are_divided_as_llama_3_says() -> None:
    (found,) = (
        each.values
        for each in constants(load_shape("llama-3.2-1b"))
        if each.name == "rope_freqs.weight"
    )
    assert len(found) == 32
    assert found[0] == 1.0
    assert found[-1] == 32.0
    assert list(found) == sorted(found)
    assert any(1 < each < 32 for each in found)
