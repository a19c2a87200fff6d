"""Metadata of GGUF files, and errors of malformed ones."""

from __future__ import annotations

import hashlib
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFEndian, GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.models.find import RANDOM, resolve
from armload.models.gguf import read_model, read_model_summary
from armload.models.gguf_values import KEPT_ARRAY_ITEMS, Array
from armload.models.header import read_header
from tests.outside_data import STORIES, needs_stories
from tests.split import in_two_parts


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ARMLOAD_CACHE", str(folder))
    return folder


def written(
    path: Path,
    *,
    layers: int = 2,
    kv_heads: int | list[int] = 2,
    tied: bool = False,
    experts: tuple[int, int] | None = None,
    endianess: GGUFEndian = GGUFEndian.LITTLE,
    tokens: int = 0,
) -> Path:
    writer = GGUFWriter(path, "llama", endianess=endianess)
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(kv_heads)
    if tokens:
        writer.add_token_list([f"token {number}" for number in range(tokens)])
        writer.add_token_scores([0.0] * tokens)
    if experts:
        writer.add_expert_count(experts[0])
        writer.add_expert_used_count(experts[1])
    if experts and experts[0]:
        writer.add_tensor("blk.0.ffn_up_exps.weight", np.ones((experts[0], 8, 32), np.float32))
    writer.add_tensor("token_embd.weight", np.ones((10, 32), np.float16))
    writer.add_tensor("blk.0.attn_q.weight", np.ones((32, 32), np.float32))
    writer.add_tensor("blk.1.attn_q.weight", np.ones((32, 32), np.float32))
    if not tied:
        writer.add_tensor("output.weight", np.ones((10, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@needs_stories
def test_facts_of_a_real_model() -> None:
    model = read_model(STORIES)
    assert model.sha256 == hashlib.sha256(STORIES.read_bytes()).hexdigest()
    assert model.size_bytes == STORIES.stat().st_size
    assert (model.architecture, model.quantisation, model.layers) == ("llama", "F32", 5)
    assert (model.vocabulary, model.context_length) == (512, 512)
    assert model.context_memory.bytes_per_token == 2 * 5 * 4 * 8 * 2
    embedding_bytes, row_bytes = 512 * 64 * 4, 64 * 4
    assert model.bytes_per_token == model.parameters * 4 - embedding_bytes + row_bytes


def test_an_embedding_that_is_also_the_output_is_read_whole(tmp_path: Path) -> None:
    layers, matrix, row = 2 * 32 * 32 * 4, 10 * 32 * 2, 32 * 2
    apart = read_model(written(tmp_path / "apart.gguf"))
    tied = read_model(written(tmp_path / "tied.gguf", tied=True))
    assert apart.bytes_per_token == layers + matrix + row
    assert tied.bytes_per_token == layers + matrix


def test_only_the_used_experts_are_read(tmp_path: Path) -> None:
    without = read_model(written(tmp_path / "a.gguf")).bytes_per_token
    eight = read_model(written(tmp_path / "b.gguf", experts=(8, 2)))
    assert eight.bytes_per_token - without == 2 * 8 * 32 * 4
    assert (eight.expert_bytes, eight.expert_bytes_per_token) == (8 * 8 * 32 * 4, 2 * 8 * 32 * 4)


@pytest.mark.parametrize("experts", [(0, 8), (4, 8), (8, 0)])
def test_a_count_of_experts_on_which_llama_cpp_aborts_is_refused(
    tmp_path: Path, experts: tuple[int, int]
) -> None:
    path = written(tmp_path / "m.gguf", experts=experts)
    with pytest.raises(DataError, match=f"count is {experts[1]}, but .* is {experts[0]}: "):
        read_model(path)


def test_kv_heads_may_differ_from_layer_to_layer(tmp_path: Path) -> None:
    model = read_model(written(tmp_path / "m.gguf", kv_heads=[3, 0]))
    assert model.context_memory.bytes_per_token == (3 + 0) * (8 + 8) * 2


def test_a_big_vocabulary_is_counted_and_not_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", tokens=KEPT_ARRAY_ITEMS + 1)
    tracemalloc.start()
    try:
        metadata = read_header(path).metadata
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert metadata["tokenizer.ggml.tokens"] == Array(length=KEPT_ARRAY_ITEMS + 1)
    assert metadata["tokenizer.ggml.scores"] == Array(length=KEPT_ARRAY_ITEMS + 1)
    assert most_bytes < path.stat().st_size / 4


def test_a_checksum_is_computed_once_and_again_when_the_file_changes(
    tmp_path: Path, cache: Path
) -> None:
    path = written(tmp_path / "m.gguf")
    first = read_model(path).sha256
    (remembered,) = (cache / "hashes").iterdir()
    remembered.write_text(f"{'f' * 64}\n{'e' * 64}\n")
    assert read_model(path).sha256 == "f" * 64
    remembered.write_text("f" * 64)  # cut short
    assert read_model(path).sha256 == first
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    changed = read_model(path).sha256
    assert changed == hashlib.sha256(content).hexdigest() != first


def _refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_model(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy
    return caught.value.message


def test_a_missing_file_and_a_folder_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no model"):
        read_model(tmp_path / "none.gguf")
    with pytest.raises(UsageError, match="is a folder"):
        read_model(tmp_path)


@pytest.mark.parametrize("content", [b"", b"GG", b"version https://git-lfs.github.com", b"\0" * 99])
def test_what_is_no_gguf_is_named_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert "not a GGUF file" in _refused(path)


def test_a_big_endian_file_is_named_so(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", endianess=GGUFEndian.BIG)
    assert "big-endian" in _refused(path)


def test_an_unknown_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 77, 0, 0))
    assert "version 77" in _refused(path)


def test_a_file_cut_short_says_how_many_bytes_are_missing_before_any_checksum(
    tmp_path: Path, cache: Path
) -> None:
    path = written(tmp_path / "m.gguf")
    os.truncate(path, path.stat().st_size - 100)
    assert "100 (100 B)" in _refused(path)
    assert not (cache / "hashes").exists()


@pytest.mark.parametrize("tensors_keys", [(1 << 60, 0), (0, 1 << 60), (10**6, 0)])
def test_nonsense_counts_are_refused_at_once(tensors_keys: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *tensors_keys) + bytes(1000))
    assert "it claims" in _refused(path)


def test_a_vocabulary_alone_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "not a language model" in _refused(path)


def test_a_model_without_layers_is_refused_as_llama_cpp_refuses_it(tmp_path: Path) -> None:
    assert "has no layers" in _refused(written(tmp_path / "none.gguf", layers=0))


def test_a_model_in_parts_is_read_as_the_file_that_it_was(tmp_path: Path) -> None:
    whole = written(tmp_path / "m.gguf", tokens=20)
    first = in_two_parts(whole, tmp_path)
    model, one = read_model(first), read_model(whole)
    facts = {"path", "sha256", "size_bytes", "parts"}
    assert model.model_dump(exclude=facts) == one.model_dump(exclude=facts)
    assert [part.path.name for part in model.parts] == [
        "parts-00001-of-00002.gguf",
        "parts-00002-of-00002.gguf",
    ]
    for part in model.parts:
        assert part.sha256 == hashlib.sha256(part.path.read_bytes()).hexdigest()
    assert model.size_bytes == sum(part.path.stat().st_size for part in model.parts)
    summary = read_model_summary(first)
    assert summary.missing_bytes == 0
    assert sum(section.size_bytes for section in summary.sections) == model.size_bytes


def test_a_part_that_is_missing_renamed_truncated_or_not_the_first_is_named(
    tmp_path: Path,
) -> None:
    first = in_two_parts(written(tmp_path / "m.gguf"), tmp_path)
    second = tmp_path / "parts-00002-of-00002.gguf"
    assert f"{second}: this file is one of 2 parts" in _refused(second)
    content = second.read_bytes()
    second.write_bytes(content[:-100])
    with pytest.raises(DataError, match=f"^{second}: the file is truncated"):
        read_model(first)
    second.rename(tmp_path / "other.gguf")
    assert f"there is no {second.name} beside it" in _refused(first)
    assert "are found by its name" in _refused(first.rename(tmp_path / "renamed.gguf"))


@settings(
    max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damage_to_a_header_gives_anything_but_a_data_error(
    data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    whole = written(path, experts=(4, 1), kv_heads=[1, 2], tokens=20).read_bytes()
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, max(0, min(len(damaged), 1500) - 1)))
        damaged[at : at + 1] = data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(damaged)
    refusal = ""
    try:
        header = read_header(path)
        read_model(path)
    except DataError as error:
        refusal = error.message
    if refusal:
        assert str(path) in refusal
    else:
        end = max((each.offset_bytes + each.size_bytes for each in header.tensors), default=0)
        assert end <= len(damaged)


def test_a_path_resolves_to_itself_and_a_missing_one_says_what_can_be_given(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "m.gguf")
    assert resolve(str(path), Silent()) == path
    with pytest.raises(UsageError) as caught:
        resolve(str(tmp_path / "none.gguf"), Silent())
    assert "hf:ORG/REPO/FILE.gguf" in caught.value.remedy


@pytest.mark.parametrize(
    "reference",
    ["hf:", "hf:tiny.gguf", "hf:org/tiny.gguf", "hf:org/repo/file.bin", "hf:org/repo/../x.gguf"],
)
def test_a_malformed_name_of_a_hub_model_is_a_usage_error(reference: str) -> None:
    with pytest.raises(UsageError, match="is not a model on the Hugging Face Hub"):
        resolve(reference, Silent())


def test_the_model_of_random_weights_is_made_once(cache: Path) -> None:
    first = resolve(RANDOM, Silent())
    made_ns = first.stat().st_mtime_ns
    assert resolve(RANDOM, Silent()) == first
    assert first.stat().st_mtime_ns == made_ns
    model = read_model(first)
    assert 35e6 < model.bytes_per_token < 60e6
