"""GGUF models in distributed-llama's format: what is written, and what is refused."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from armload.conversion import distributed
from armload.conversion.distributed import converted_files
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.models.distributed_llama import REST_MARK, Stored
from armload.models.gguf import read_model
from armload.models.header import tensor_bytes
from armload.models.shape import RopeScaling, SentencePieces, Shape
from armload.models.synth import synthesise, synthesise_like
from armload.models.token_pieces import header_with_words, token_pieces

SMALL = Shape(
    layers=2,
    width=64,
    feed_forward=128,
    heads=4,
    kv_heads=2,
    vocabulary=2048,
    context_length=256,
    tokenizer=SentencePieces(add_end=False),
)
SCALING = RopeScaling(
    factor=8, low_frequency_factor=1, high_frequency_factor=4, trained_context=8192
)
SHAPES = {
    "llama": SMALL,
    "scaled": SMALL.model_copy(
        update={"tied": True, "rope_base": 500000.0, "rope_scaling": SCALING}
    ),
    "qwen3": SMALL.model_copy(
        update={"architecture": "qwen3", "head_width": 32, "norm_epsilon": 1e-6}
    ),
    "qwen3moe": SMALL.model_copy(
        update={
            "architecture": "qwen3moe",
            "norm_epsilon": 1e-6,
            "experts": 4,
            "experts_used": 2,
            "expert_feed_forward": 32,
        }
    ),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))


def _made(shape: Shape, folder: Path, quantisation: str = "Q4_0") -> Path:
    path = folder / "model.gguf"
    synthesise(shape, path, quantisation=quantisation, seed=1, progress=Silent())
    return path


def _stored_at(stored: list[Stored], name: str) -> int:
    return sum(each.size_bytes for each in stored[: [one.name for one in stored].index(name)])


@pytest.mark.parametrize("name", SHAPES)
def test_every_block_of_the_matrices_is_copied_to_the_byte(name: str, tmp_path: Path) -> None:
    path = _made(SHAPES[name], tmp_path)
    converted = converted_files(read_model(path), Silent())
    content, tensors = converted.weights.local.read_bytes(), GGUFReader(path).tensors
    magic, size_bytes = struct.unpack_from("<ii", content)
    assert (magic, len(content)) == (0xA00ABCD, converted.facts.file_bytes)
    stored, at = list(converted.facts.tensors()), size_bytes
    sources = {tensor.name: tensor for tensor in tensors}
    for each in stored:
        found = content[at : at + each.size_bytes]
        source = sources[each.name]
        data = source.data if each.expert is None else source.data[each.expert]
        if each.type_name == "F32":
            wanted = dequantize(data, source.tensor_type).astype("<f4").tobytes()
        else:
            wanted = data.tobytes()
        assert found == wanted, each
        at += each.size_bytes
    assert at == len(content)
    assert hashlib.sha256(content).hexdigest() == converted.weights.sha256


def test_the_scaling_of_llama_3_follows_from_its_divisors(tmp_path: Path) -> None:
    converted = converted_files(read_model(_made(SHAPES["scaled"], tmp_path)), Silent())
    header = converted.weights.local.read_bytes()[
        : struct.unpack_from("<ii", converted.facts.header())[1]
    ]
    pairs = dict(struct.iter_unpack("<ii", header[8:]))
    assert [pairs[key] for key in (12, 14, 15, 16, 17, 18)] == [500000, 8, 1, 4, 8192, 2]


def test_an_output_matrix_of_another_type_is_the_sum_of_two(tmp_path: Path) -> None:
    path = tmp_path / "mixed.gguf"
    wide = SMALL.model_copy(update={"width": 256, "feed_forward": 256})
    synthesise_like(wide, path, file_type="Q4_0", seed=1, progress=Silent())
    converted = converted_files(read_model(path), Silent())
    assert converted.facts.output_type == "Q6_K"
    source = next(each for each in GGUFReader(path).tensors if each.name == "output.weight")
    exact = dequantize(source.data, source.tensor_type).reshape(-1)
    content = converted.weights.local.read_bytes()
    assert len(content) == converted.facts.file_bytes
    assert content.endswith(REST_MARK)
    size = tensor_bytes("Q4_0", (256 * 2048,))
    both = np.frombuffer(content[: -len(REST_MARK)][-2 * size :], dtype=np.uint8)
    first, rest = dequantize(both.reshape(-1, 18), GGMLQuantizationType.Q4_0).reshape(2, -1)
    error = np.abs(first - exact).max()
    assert 0 < np.abs(first + rest - exact).max() < error / 8


def test_an_output_matrix_of_the_common_type_stays_one(tmp_path: Path) -> None:
    converted = converted_files(read_model(_made(SHAPES["qwen3"], tmp_path)), Silent())
    assert not converted.facts.has_rest
    assert not converted.weights.local.read_bytes().endswith(REST_MARK)


def test_chunks_give_the_same_file_as_whole_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = read_model(_made(SHAPES["qwen3moe"], tmp_path))
    whole = converted_files(model, Silent()).weights.sha256
    monkeypatch.setattr(distributed, "_CHUNK_ELEMENTS", 96)
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "another"))
    assert converted_files(model, Silent()).weights.sha256 == whole


def test_a_model_is_converted_once_and_again_where_its_file_was_changed(tmp_path: Path) -> None:
    model = read_model(_made(SMALL, tmp_path))
    first = converted_files(model, Silent())
    written = first.weights.local.stat().st_mtime_ns
    assert converted_files(model, Silent()).weights.local.stat().st_mtime_ns == written
    first.weights.local.write_bytes(b"x")
    assert converted_files(model, Silent()).weights.sha256 == first.weights.sha256
    assert first.weights.local.stat().st_size == first.facts.file_bytes


def test_an_interrupted_conversion_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = read_model(_made(SMALL, tmp_path))

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(distributed._Weights, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        converted_files(model, Silent())
    assert not list((tmp_path / "cache").rglob("part"))
    assert not list((tmp_path / "cache").rglob("*.m"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"architecture": "qwen2"}, "architecture qwen2"),
        ({"norm_epsilon": 1e-4}, "epsilon"),
        ({"rope_base": 10000.5}, "whole number"),
        (
            {
                "rope_base": 500000.0,
                "rope_scaling": SCALING.model_copy(update={"trained_context": 4096}),
            },
            "Llama 3",
        ),
    ],
)
def test_what_it_cannot_compute_is_refused_with_the_reason(
    change: dict[str, object], why: str, tmp_path: Path
) -> None:
    model = read_model(_made(SMALL.model_copy(update=change), tmp_path))
    with pytest.raises(UsageError, match=why) as caught:
        converted_files(model, Silent())
    assert "--engine llama.cpp" in str(caught.value.remedy)


def test_other_types_are_refused_and_the_remedy_depends_on_what_the_model_has(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="F16") as caught:
        converted_files(read_model(_made(SMALL, tmp_path, "F16")), Silent())
    assert "--type Q4_0" in caught.value.remedy
    with pytest.raises(UsageError, match="Q8_0") as caught:
        converted_files(read_model(_made(SMALL, tmp_path, "Q8_0")), Silent())
    assert "--allow-requantize" in caught.value.remedy


def test_nodes_that_cannot_share_a_model_are_refused_with_numbers_that_can(tmp_path: Path) -> None:
    facts = converted_files(read_model(_made(SMALL, tmp_path)), Silent()).facts
    facts.check_nodes(2)
    for nodes, why in ((3, "power of two"), (4, "2 key-value heads")):
        with pytest.raises(UsageError, match=why) as caught:
            facts.check_nodes(nodes)
        assert "1 or 2" in caught.value.remedy


def test_each_node_needs_less_memory_the_more_there_are(tmp_path: Path) -> None:
    facts = converted_files(read_model(_made(SMALL, tmp_path)), Silent()).facts
    (alone,) = facts.memory(1, 64, 32)
    root, worker = facts.memory(2, 64, 32)
    assert alone.total_bytes > root.total_bytes > worker.total_bytes
    assert root.weights_bytes - worker.weights_bytes == 4 * 2048 * 64
    assert alone.kv_bytes == 2 * root.kv_bytes == 2 * 4 * 2 * 2 * 16 * 64


def test_a_tokenizer_that_its_text_cannot_be_written_with_is_refused(tmp_path: Path) -> None:
    path = _made(SMALL, tmp_path)
    key = b"tokenizer.ggml.model"
    before, after = path.read_bytes().split(key, maxsplit=1)
    assert after[12:17] == b"llama"
    path.write_bytes(before + key + after[:12] + b"plamo" + after[17:])
    with pytest.raises(UsageError, match=r"cannot write text with .* \(plamo\)") as caught:
        converted_files(read_model(path), Silent())
    assert caught.value.remedy == "Use --engine llama.cpp."
    assert not list((tmp_path / "cache").rglob("*.m"))


def test_tokens_are_the_bytes_that_a_text_shows(tmp_path: Path) -> None:
    path = _made(SMALL, tmp_path)
    pieces = token_pieces(path, header_with_words(path), 2050)
    assert len(pieces) == 2050
    assert pieces[:3] == (b"", b"", b"")
    assert b" the" in pieces
    assert b"\x0a" in pieces
    assert pieces[-2:] == (b"", b"")
