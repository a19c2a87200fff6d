"""Slices have the shapes and types of the model's layers, and are small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from armload.analysis.compute import SliceTimes, from_slices
from armload.boards.board import load_board
from armload.core.errors import ArmloadError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.find import header_of, resolve
from armload.models.gguf import read_model, read_outline
from armload.models.header import read_header
from armload.models.slices import LEAST_BYTES, Slices, slice_model, slices_of
from armload.models.vocabulary import smallest_vocabulary
from armload.runs.predicting import predict_from_facts
from tests.recurrent import hybrid_model, recurrent_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))


def _slices(reference: str) -> Slices:
    return slices_of(*read_outline(header_of(reference, Silent())))


def test_only_the_header_of_a_made_model_is_written(tmp_path: Path) -> None:
    path = header_of("like:llama-3.1-8b:Q2_K", Silent())
    assert path.stat().st_size < 20_000_000
    model, _ = read_outline(path)
    assert model.size_bytes > 3_000_000_000
    assert model.bytes_per_token > 2_900_000_000


def test_a_header_says_the_same_as_the_whole_file() -> None:
    header, _ = read_outline(header_of("like:stories260k:Q8_0", Silent()))
    whole = read_model(resolve("like:stories260k:Q8_0", Silent()))
    assert header.path != whole.path
    assert abs(header.size_bytes - whole.size_bytes) < 32  # the end of the last tensor is padded
    kept = {"path", "sha256", "size_bytes"}
    assert header.model_dump(exclude=kept) == whole.model_dump(exclude=kept)


def test_a_slice_has_the_types_and_shapes_of_a_layer() -> None:
    planned = _slices("like:llama-3.1-8b:Q2_K")
    model, header = read_outline(header_of("like:llama-3.1-8b:Q2_K", Silent()))
    assert planned.is_exact
    assert planned.layers.shape.layers == 1
    made = read_header(slice_model(planned.layers, Silent()))
    originals = {tensor.name: tensor for tensor in header.tensors}
    of_layer = [tensor for tensor in made.tensors if tensor.name.startswith("blk.0.")]
    assert of_layer
    for tensor in of_layer:
        original = originals[tensor.name]
        assert (tensor.shape, tensor.type_name) == (original.shape, original.type_name)
    output = next(tensor for tensor in made.tensors if tensor.name == "output.weight")
    assert output.type_name == originals["output.weight"].type_name
    assert output.shape == (4096, planned.rows)
    assert made.whole_bytes < 0.05 * model.size_bytes


def test_layers_of_two_kinds_are_both_in_the_slice() -> None:
    planned = _slices("like:llama-3.1-8b:Q4_K_M")
    kinds = {planned.layers.types[f"blk.{layer}.ffn_down.weight"] for layer in range(2)}
    assert kinds == {"Q4_K", "Q6_K"}


def test_small_layers_are_repeated_until_they_exceed_the_caches() -> None:
    planned = _slices("like:qwen2.5-0.5b:Q8_0")
    assert planned.layers.shape.layers > 1
    assert planned.layers.layer_bytes >= LEAST_BYTES
    assert planned.thin.layer_bytes < 0.02 * planned.layers.layer_bytes


def test_a_model_that_takes_equal_times_per_byte_is_predicted_exactly() -> None:
    planned = _slices("like:llama-3.1-8b:Q2_K")
    rate, engine_s = 1e9, 0.0

    def times(layer_bytes: int, size_bytes: int) -> SliceTimes:
        embedding = 4096 * planned.rows * 84 // 256
        token_s = (size_bytes - embedding) / rate + engine_s
        return SliceTimes(
            token_s=token_s, prompt_s=32 * token_s, prompt_tokens=64, load_s=token_s + 0.1
        )

    thin, layers = planned.thin, planned.layers
    found = from_slices(
        planned,
        times(layers.layer_bytes, layers.size_bytes),
        times(thin.layer_bytes, thin.size_bytes),
    )
    model, _ = read_outline(header_of("like:llama-3.1-8b:Q2_K", Silent()))
    assert found.token_s.value == pytest.approx(model.bytes_per_token / rate, rel=0.01)
    assert found.token_s.low < found.token_s.value < found.token_s.high
    assert found.prompt_s(1) == found.token_s
    assert found.prompt_s(6400).value == pytest.approx(
        6400 / 2 * planned.layer_bytes / rate, rel=0.01
    )


def test_a_type_without_random_weights_is_named() -> None:
    model, header = read_outline(header_of("like:llama-3.1-8b:Q2_K", Silent()))
    other = replace(
        header,
        tensors=tuple(
            replace(tensor, type_name="IQ2_XS") if tensor.type_name == "Q2_K" else tensor
            for tensor in header.tensors
        ),
    )
    with pytest.raises(ArmloadError, match="IQ2_XS"):
        slices_of(model, other)


def unusual_model(path: Path, **changed: Any) -> Path:
    """Write a model of one layer whose header has other sizes than Llama's."""
    sizes: dict[str, Any] = {"feed_forward_length": 64, "head_count": 2, "head_count_kv": 2}
    sizes |= {"tensor": "attn_q", "experts": 0, "tokens": 300} | changed
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(sizes["feed_forward_length"])
    writer.add_head_count(sizes["head_count"])
    writer.add_head_count_kv(sizes["head_count_kv"])
    writer.add_expert_count(2 * sizes["experts"])
    writer.add_expert_used_count(sizes["experts"])
    writer.add_token_list([f"<{number}>" for number in range(sizes["tokens"])])
    for name in ("token_embd", f"blk.0.{sizes['tensor']}", "output_norm"):
        shape = (32,) if name.endswith("norm") else (300, 32)
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"head_count_kv": 0}, "1 of 1 layers without attention"),
        ({"head_count_kv": [0]}, "1 of 1 layers without attention"),
        (
            {"head_count": 0, "head_count_kv": 2, "tensor": "time_mix"},
            "its layers have no (heads|matrices)",
        ),
        ({"feed_forward_length": 0}, "its layers have no feed_forward"),
        ({"feed_forward_length": [0]}, "its layers have no feed_forward"),
        ({"feed_forward_length": 0, "experts": 4}, "its layers have no feed_forward"),
        ({"tensor": "attn_q_norm"}, "its layers have no matrices"),
    ],
)
def test_a_model_without_slices_is_answered_with_the_reason(
    changed: dict[str, Any], why: str, tmp_path: Path
) -> None:
    model, header = read_outline(unusual_model(tmp_path / "m.gguf", **changed))
    with pytest.raises(ArmloadError, match=why):
        slices_of(model, header)
    assert predict_from_facts(load_board("dayu200").facts, model, Plan()).verdict == "fits"


@pytest.mark.parametrize("tokens", [0, 100_000])
def test_a_vocabulary_that_is_not_as_long_as_the_output_is_sliced_too(
    tokens: int, tmp_path: Path
) -> None:
    planned = slices_of(*read_outline(unusual_model(tmp_path / "m.gguf", tokens=tokens)))
    assert planned.rows >= smallest_vocabulary()


def test_a_hybrid_model_is_read_and_has_no_slices(tmp_path: Path) -> None:
    tokens = resolve("like:stories260k:Q8_0", Silent())
    for write in (recurrent_model, hybrid_model):
        model, header = read_outline(write(tokens, tmp_path / f"{write.__name__}.gguf"))
        with pytest.raises(ArmloadError, match="of 2 layers without attention"):
            slices_of(model, header)
