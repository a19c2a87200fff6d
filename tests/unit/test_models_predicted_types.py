"""What a model would become, from its header: held against the models that synthesis makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from armload.boards.board import load_board
from armload.engines.plan import Plan
from armload.models.gguf import read_outline
from armload.models.quant_mix import predict_quantised, quantised_name
from armload.models.shape import load_shape
from armload.models.synth import header_like
from armload.runs.predicting import predict_from_facts
from tests.unit.shapes import with_few_words


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


@pytest.mark.parametrize("shape", ["llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b"])
def test_tensors_are_those_of_the_published_type(shape: str, tmp_path: Path) -> None:
    like = with_few_words(shape)
    header_like(like, tmp_path / "f16.gguf", file_type="F16")
    base = read_outline(tmp_path / "f16.gguf")
    for file_type in ("Q2_K", "Q4_K_M", "Q5_0", "Q8_0"):
        header_like(like, tmp_path / "wanted.gguf", file_type=file_type)
        model, header = read_outline(tmp_path / "wanted.gguf")
        found = predict_quantised(*base, file_type)
        assert found is not None
        types = {tensor.name: (tensor.type_name, tensor.size_bytes) for tensor in found[1].tensors}
        assert types == {
            tensor.name: (tensor.type_name, tensor.size_bytes) for tensor in header.tensors
        }
        assert found[0].bytes_per_token == model.bytes_per_token
        assert found[0].quantisation == model.quantisation
        assert abs(found[0].size_bytes - model.size_bytes) <= 64


def test_a_type_or_architecture_without_known_rules_is_not_predicted(tmp_path: Path) -> None:
    header_like(load_shape("stories260k"), tmp_path / "f16.gguf", file_type="F16")
    model, header = read_outline(tmp_path / "f16.gguf")
    assert predict_quantised(model, header, "IQ2_XXS") is None
    assert (
        predict_quantised(model.model_copy(update={"architecture": "falcon"}), header, "Q2_K")
        is None
    )


@pytest.mark.parametrize("lacking", ["head_count_kv", "feed_forward_length"])
def test_a_model_whose_first_layer_lacks_a_part_is_predicted(lacking: str, tmp_path: Path) -> None:
    model, header = read_outline(unusual_model(tmp_path / "m.gguf", **{lacking: [0]}))
    found = predict_quantised(model, header, "Q8_0")
    assert found is not None
    assert 0 < found[0].size_bytes < model.size_bytes


@pytest.mark.parametrize(
    "changed",
    [
        {"head_count_kv": 0},
        {"head_count_kv": [0]},
        {"head_count": 0, "head_count_kv": 2, "tensor": "time_mix"},
        {"feed_forward_length": 0},
        {"feed_forward_length": [0]},
        {"feed_forward_length": 0, "experts": 4},
        {"tensor": "attn_q_norm"},
    ],
)
def test_a_model_of_odd_sizes_is_predicted_without_a_board(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    model, _ = read_outline(unusual_model(tmp_path / "m.gguf", **changed))
    board = load_board("dayu200")
    assert predict_from_facts(board.facts, board.target, model, Plan()).verdict == "fits"


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("llama-3.2-1b-f16.gguf", "llama-3.2-1b-Q2_K.gguf"),
        ("Llama-3.2-1B-BF16.gguf", "Llama-3.2-1B-Q2_K.gguf"),
        ("model_fp32.gguf", "model-Q2_K.gguf"),
        ("word-problems-Q8_0.gguf", "word-problems-Q2_K.gguf"),
        ("qwen2.5-32.gguf", "qwen2.5-32-Q2_K.gguf"),
        ("plain", "plain-Q2_K.gguf"),
    ],
)
def test_the_name_has_one_type(base: str, name: str) -> None:
    assert quantised_name(Path(base), "Q2_K") == name


def test_a_name_says_that_the_importance_was_computed() -> None:
    name = quantised_name(Path("m-f16.gguf"), "Q2_K", has_importance=True)
    assert name == "m-Q2_K-imatrix.gguf"
