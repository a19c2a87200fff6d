"""GGUF files that llama.cpp cannot run, or not for what armload does: refused, with the remedy."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from armload.build.source import known_architectures
from armload.core.errors import DataError
from armload.core.progress import Silent
from armload.models.find import header_of, model_called
from armload.models.gguf import read_model, read_model_summary, read_outline
from armload.models.model import check_generates
from armload.models.tensor_types import KNOWN_TYPES
from tests.command_line import run
from tests.split import in_two_parts

Keys = Mapping[str, int | str | list[int]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))


def written(
    path: Path,
    *,
    architecture: str = "llama",
    keys: Keys | None = None,
    tensors: tuple[str, ...] = ("blk.0.attn_q", "blk.1.attn_q"),
) -> Path:
    """Write a tiny model; ``keys`` are those of its architecture, unless they begin with a dot."""
    writer = GGUFWriter(path, architecture)
    usual: Keys = {"block_count": 2, "context_length": 64, "embedding_length": 32}
    heads: Keys = {"attention.head_count": 4, "attention.head_count_kv": 2}
    for key, value in {**usual, **heads, **(keys or {})}.items():
        name = key[1:] if key.startswith(".") else f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, GGUFValueType.UINT32)
    for name in ("token_embd", *tensors):
        shape = (4, 8, 32) if "_exps" in name else (32, 32)
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_usual_one_is_taken(tmp_path: Path) -> None:
    assert model_called(str(written(tmp_path / "m.gguf")), Silent()).layers == 2


BAD_HEADERS: Mapping[str, tuple[Keys, tuple[str, ...], str]] = {
    "too few layers": ({"block_count": 3}, (), "block_count is 3, .* tensors of 2 layers"),
    "too many layers": ({"block_count": 1}, (), "block_count is 1, .* tensors of 2 layers"),
    "a gap": ({}, ("blk.0.attn_q", "blk.7.attn_q"), "block_count is 2"),
    "no layers": ({"block_count": 0}, (), "block_count is 0: this model has no layers"),
    "layers without number": ({"block_count": "many"}, (), "block_count has no usable value"),
    "no heads": ({"attention.head_count": 0}, (), "head_count is 0, but"),
    "no heads anywhere": ({"attention.head_count": [0, 0]}, (), "head_count is 0, but"),
    "heads of too few layers": (
        {"attention.head_count_kv": [2]},
        (),
        "no usable value for layer 1",
    ),
    "other experts": (
        {"expert_count": 8, "expert_used_count": 2},
        ("blk.0.attn_q", "blk.1.ffn_up_exps"),
        "expert_count is 8, but .* has 4 experts",
    ),
}


@pytest.mark.parametrize(("keys", "tensors", "said"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_that_disagrees_with_its_tensors_is_damaged(
    tmp_path: Path, keys: Keys, tensors: tuple[str, ...], said: str
) -> None:
    usual = ("blk.0.attn_q", "blk.1.attn_q")
    path = written(tmp_path / "m.gguf", keys=keys, tensors=tensors or usual)
    for read in (read_model_summary, read_model, read_outline):
        with pytest.raises(DataError, match=said) as caught:
            read(path)
        assert str(path) in caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.remedy


@pytest.mark.parametrize("name", ["lla\nma", "\x1b[31mllama", "../llama", "lla ma", "", "é" * 9])
def test_an_architecture_with_odd_characters_is_shown_escaped(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "m.gguf", architecture=name or "-")
    with pytest.raises(
        DataError, match=r"general\.architecture is .*, which is not the name"
    ) as caught:
        read_outline(path)
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "verb", [["model.inspect"], ["fit", "-b", "dayu200", "-m"], ["bench", "-m"]]
)
def test_every_verb_says_so_in_one_line(tmp_path: Path, verb: list[str]) -> None:
    path = written(tmp_path / "m.gguf", keys={"attention.head_count": 0})
    done = run("armload", *verb, str(path))
    assert done.returncode == 3
    assert "head_count is 0" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("architecture", "keys", "said"),
    [
        ("bert", {}, "computes embeddings"),
        ("t5encoder", {}, "is an encoder"),
        ("qwen3", {"pooling_type": 3}, "computes embeddings"),
        ("qwen3", {"pooling_type": 4}, "ranks texts"),
        ("dream", {}, "by diffusion"),
        ("eagle3", {}, "only drafts for another model"),
    ],
)
def test_a_model_that_does_not_generate_is_refused_before_its_checksum_is_taken(
    tmp_path: Path, architecture: str, keys: Keys, said: str
) -> None:
    path = written(tmp_path / "m.gguf", architecture=architecture, keys=keys)
    with pytest.raises(DataError, match=f"does not generate text: it .*{said}"):
        model_called(str(path), Silent())
    assert not (tmp_path / "cache" / "hashes").exists()
    assert read_model_summary(path).purpose, "model.inspect shows it all the same"
    with pytest.raises(DataError, match=said):
        check_generates(read_outline(header_of(str(path), Silent()))[0])


def test_no_pooling_is_no_embedding_model(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", architecture="qwen3", keys={"pooling_type": 0})
    assert model_called(str(path), Silent()).purpose == ""


@pytest.mark.parametrize(
    ("architecture", "keys", "said"),
    [
        ("clip", {}, "the projector for images"),
        ("llama", {".general.type": "mmproj"}, "the projector for images"),
        ("llama", {".general.type": "adapter"}, "an adapter"),
        ("llama", {".general.type": "imatrix"}, "an importance matrix"),
    ],
)
def test_what_belongs_to_a_model_is_no_model(
    tmp_path: Path, architecture: str, keys: Keys, said: str
) -> None:
    path = written(tmp_path / "m.gguf", architecture=architecture, keys=keys)
    with pytest.raises(DataError, match=f"not a language model: it is {said}"):
        read_outline(path)


@pytest.mark.parametrize(
    ("number", "said", "remedy"),
    [
        (31, "Q4_0_4_4, which was made for an older llama.cpp", "Use the Q4_0 file"),
        (33, "Q4_0_8_8, which was made for an older llama.cpp", "Use the Q4_0 file"),
        (38, "IQ4_NL_8_8, which was made for an older llama.cpp", "Use the IQ4_NL file"),
        (4, "only Ollama has used, for MXFP4", "hf:ggml-org/gpt-oss-20b-GGUF"),
        (36, "only bitnet.cpp", "TQ2_0"),
        (46, "only llama-cpp-turboquant", "Q4_K_M"),
        (99, "only ik_llama.cpp", "Q4_K_M"),
        (101, "only ROCmFPX", "Q4_K_M"),
        (137, "only ik_llama.cpp", "Q4_K_M"),
        (142, "only PrismML's llama.cpp", "Q4_K_M"),
        (399, "only ik_llama.cpp", "Q4_K_M"),
        (43, "llama-cpp-turboquant", "Q4_K_M"),
        (5000, "which llama.cpp does not have", "newer llama.cpp or a fork"),
        (0xFFFFFFFF, "which llama.cpp does not have", "damaged"),
    ],
)
def test_a_tensor_type_that_llama_cpp_lacks_is_named_with_the_remedy(
    tmp_path: Path, number: int, said: str, remedy: str
) -> None:
    path = written(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    name = b"blk.0.attn_q.weight"
    at = content.index(name) + len(name) + 4 + 2 * 8  # after the dimensions
    content[at : at + 4] = struct.pack("<I", number)
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"has type {number}, .*{said}|{said}") as caught:
        read_outline(path)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("number", KNOWN_TYPES)
def test_every_type_of_the_pinned_source_is_read(tmp_path: Path, number: int) -> None:
    kind = KNOWN_TYPES[number]
    path = written(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    name = b"blk.1.attn_q.weight"  # the last, behind which a larger one has room
    at = content.index(name) + len(name) + 4
    shape = (256, 4)
    content[at : at + 16] = struct.pack("<2Q", *shape)
    content[at + 16 : at + 20] = struct.pack("<I", number)
    path.write_bytes(content + bytes(16_384))
    (tensor,) = (each for each in read_outline(path)[1].tensors if each.name == name.decode())
    assert tensor.type_name == kind.name
    assert tensor.size_bytes == 256 * 4 // kind.block_elements * kind.block_bytes


def test_a_piece_of_a_cut_file_says_how_the_pieces_are_joined(tmp_path: Path) -> None:
    for name, said in {
        "m.Q8_0.gguf.part1of2": "cat m.Q8_0.gguf.part1of2 m.Q8_0.gguf.part2of2 > m.Q8_0.gguf",
        "m.gguf-split-a": "cat m.gguf-split-* > m.gguf",
    }.items():
        path = written(tmp_path / "m.gguf").rename(tmp_path / name)
        with pytest.raises(DataError, match="only one piece of a GGUF file") as caught:
            read_model(path)
        assert said in caught.value.remedy


def test_parts_that_were_joined_with_cat_need_llama_gguf_split(tmp_path: Path) -> None:
    first = in_two_parts(written(tmp_path / "m.gguf"), tmp_path)
    second = tmp_path / "parts-00002-of-00002.gguf"
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    assert len(GGUFReader(joined).tensors) == len(GGUFReader(first).tensors)
    for read in (read_model_summary, read_model, read_outline):
        with pytest.raises(DataError, match="joined with cat") as caught:
            read(joined)
        assert "llama-gguf-split --merge" in caught.value.remedy


def test_the_architectures_that_a_source_knows_are_read_from_it(tmp_path: Path) -> None:
    assert known_architectures(tmp_path) == ()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "llama-arch.cpp").write_text(
        '#include "llama-arch.h"\n'
        "static const std::map<llm_arch, const char *> LLM_ARCH_NAMES = {\n"
        '    { LLM_ARCH_LLAMA,   "llama"       }, // a comment\n'
        '    { LLM_ARCH_T5_ENC,  "t5-enc.2"    },\n'
        '    { LLM_ARCH_UNKNOWN, "(unknown)"   },\n'
        "};\n"
        "static const std::map<llm_kv, const char *> LLM_KV_NAMES = {\n"
        '    { LLM_KV_GENERAL_TYPE, "general.type" },\n'
        "};\n"
    )
    assert known_architectures(tmp_path) == ("llama", "t5-enc.2")
