"""What a model consists of, read from real files of several architectures."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from rich.console import Console

from armload.core.errors import DataError
from armload.core.progress import Silent
from armload.models.gguf import read_model, read_model_summary
from armload.models.model import Model
from armload.models.model_summary import ModelSummary
from armload.models.synth import synthesise_like
from armload.report.model_summary import summary_table
from tests.command_line import run
from tests.unit.shapes import with_few_words


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def _like_llama(path: Path) -> Path:
    sizes = {"layers": 9, "width": 256, "feed_forward": 512, "heads": 8, "kv_heads": 2}
    shape = with_few_words("llama-3.1-8b").model_copy(update=sizes)
    synthesise_like(shape, path, file_type="Q4_K_M", seed=1, progress=Silent())
    return path


def _written(
    path: Path,
    architecture: str,
    *,
    kv_heads: int | list[int] = 2,
    numbers: dict[str, int] | None = None,
) -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(3)
    if "context_length" not in (numbers or {}):
        writer.add_context_length(1000)
    writer.add_embedding_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(kv_heads)
    writer.add_tokenizer_model("llama")
    for key, value in (numbers or {}).items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_tensor("token_embd.weight", np.ones((10, 128), np.float16))
    for layer in range(3):
        rows = 32 if layer < 2 else 64
        writer.add_tensor(f"blk.{layer}.attn_q.weight", np.ones((rows, 128), np.float32))
    if numbers and "expert_count" in numbers:
        shape = (numbers["expert_count"], 8, 128)
        writer.add_tensor("blk.2.ffn_up_exps.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shown(summary: ModelSummary) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(summary_table(summary))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _runs(summary: ModelSummary) -> list[tuple[int | None, int | None]]:
    return [
        (each.first_layer, each.last_layer) for each in summary.sections if each.part == "layers"
    ]


def test_sections_are_the_whole_file_and_the_header_is_what_is_no_tensor(tmp_path: Path) -> None:
    path = _like_llama(tmp_path / "m.gguf")
    summary = read_model_summary(path)
    assert sum(each.size_bytes for each in summary.sections) == path.stat().st_size
    reader = GGUFReader(path)
    parts = {each.part: each for each in summary.sections}
    weights = sum(each.n_bytes for each in reader.tensors)
    assert parts["header"].size_bytes == path.stat().st_size - weights
    embedding = next(each for each in reader.tensors if each.name == "token_embd.weight")
    assert parts["embedding"].size_bytes == embedding.n_bytes
    assert sum(each.tensors for each in summary.sections) == len(reader.tensors)


def test_layers_of_equal_types_are_one_run(tmp_path: Path) -> None:
    # Of nine layers Q4_K_M gives more bits to the first, the last two, and every third between.
    assert _runs(read_model_summary(_like_llama(tmp_path / "m.gguf"))) == [
        (0, 0),
        (1, 2),
        (3, 3),
        (4, 5),
        (6, 8),
    ]


def test_layers_of_equal_sizes_are_one_run(tmp_path: Path) -> None:
    summary = read_model_summary(_written(tmp_path / "m.gguf", "llama"))
    assert _runs(summary) == [(0, 1), (2, 2)]


def test_shares_of_types_are_of_bytes_and_add_up(tmp_path: Path) -> None:
    summary = read_model_summary(_written(tmp_path / "m.gguf", "llama"))
    assert [(each.type, each.tensors, each.size_bytes) for each in summary.types] == [
        ("F32", 3, (32 + 32 + 64) * 128 * 4),
        ("F16", 1, 10 * 128 * 2),
    ]
    assert sum(each.share for each in summary.types) == pytest.approx(1)


def test_it_is_the_model_and_more(tmp_path: Path) -> None:
    path = _like_llama(tmp_path / "m.gguf")
    summary, model = read_model_summary(path), read_model(path)
    assert summary.model_dump(include=set(Model.model_fields)) == model.model_dump()
    assert (summary.title, summary.tokenizer) == (
        "Llama 3.1 8B, random weights",
        "gpt2 (llama-bpe)",
    )
    assert (summary.width, summary.feed_forward, summary.heads) == (256, 512, 8)
    assert summary.kv_heads == (2,) * 9


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "exaone", "phi3", "mistral3"])
def test_the_cache_is_known_whatever_prefix_the_keys_have(
    architecture: str, tmp_path: Path
) -> None:
    summary = read_model_summary(_written(tmp_path / "m.gguf", architecture))
    values = 3 * 2 * (32 + 32)
    assert [(each.type, each.bytes_per_token, each.context_bytes) for each in summary.cache] == [
        ("f16", values * 2, values * 2 * 1024),
        ("q8_0", values // 32 * 34, values // 32 * 34 * 1024),
        ("q4_0", values // 32 * 18, values // 32 * 18 * 1024),
    ]


def test_the_cache_counts_the_head_width_that_the_header_states(tmp_path: Path) -> None:
    widths = {"attention.key_length": 64, "attention.value_length": 96}
    path = _written(tmp_path / "m.gguf", "qwen3", kv_heads=[2, 0, 1], numbers=widths)
    assert read_model_summary(path).cache[0].bytes_per_token == 3 * (64 + 96) * 2


def test_a_cache_type_that_the_engine_refuses_for_these_heads_is_left_out(tmp_path: Path) -> None:
    widths = {"attention.key_length": 80, "attention.value_length": 80}
    path = _written(tmp_path / "m.gguf", "phi2", numbers=widths)
    assert [each.type for each in read_model_summary(path).cache] == ["f16"]


def test_latent_attention_keeps_one_compressed_vector_of_a_token(tmp_path: Path) -> None:
    widths = {
        "key_length": 576,
        "value_length": 512,
        "key_length_mla": 192,
        "value_length_mla": 128,
    }
    numbers = {f"attention.{key}": value for key, value in widths.items()}
    path = _written(tmp_path / "m.gguf", "deepseek2", kv_heads=1, numbers=numbers)
    assert read_model_summary(path).cache[0].bytes_per_token == 3 * 576 * 2


def test_layers_with_a_window_take_no_more_for_a_longer_context(tmp_path: Path) -> None:
    numbers = {"attention.sliding_window": 512, "context_length": 100_096}
    path = _written(tmp_path / "m.gguf", "gemma2", numbers=numbers)
    summary = read_model_summary(path)
    memory, of_a_layer = summary.context_memory, 2 * (32 + 32) * 2
    assert (memory.window_tokens, memory.window_layers) == (512, 2)
    assert summary.cache[0].bytes_per_token == of_a_layer
    assert summary.cache[0].context_bytes == of_a_layer * (100_096 + 2 * (512 + 512))
    assert "2 layers limited to the last 512 tokens" in _shown(summary)


def test_the_state_of_recurrent_layers_counts_for_each_sequence(tmp_path: Path) -> None:
    numbers = {"shortconv.l_cache": 3}
    path = _written(tmp_path / "m.gguf", "lfm2", kv_heads=[0, 2, 0], numbers=numbers)
    summary = read_model_summary(path)
    memory, state_bytes = summary.context_memory, 2 * 128 * 2 * 4
    assert (memory.recurrent_layers, memory.state_bytes) == (2, state_bytes)
    assert summary.cache[0].bytes_per_token == 2 * (32 + 32) * 2
    assert memory.size_bytes(512, sequences=4) - memory.size_bytes(2048) == 3 * state_bytes
    assert "2 layers with a state of" in _shown(summary)


def test_layers_that_predict_further_tokens_are_read_and_cached_by_nobody(tmp_path: Path) -> None:
    plain = read_model_summary(_written(tmp_path / "plain.gguf", "qwen3"))
    numbers = {"nextn_predict_layers": 1}
    with_mtp = read_model_summary(_written(tmp_path / "mtp.gguf", "qwen3", numbers=numbers))
    assert plain.bytes_per_token - with_mtp.bytes_per_token == 64 * 128 * 4
    assert with_mtp.context_memory.bytes_per_token * 3 == plain.context_memory.bytes_per_token * 2
    assert (with_mtp.layers, with_mtp.prediction_layers) == (3, 1)
    assert "the last 1 layer, not used for plain decoding" in _shown(with_mtp)


@pytest.mark.parametrize(
    ("key", "bytes_per_token"), [("attention.kv_lora_rank", 0), ("attention.alpha", 3 * 256)]
)
def test_the_cache_of_an_unknown_architecture_is_a_lower_bound_and_says_so(
    tmp_path: Path, key: str, bytes_per_token: int
) -> None:
    summary = read_model_summary(_written(tmp_path / "m.gguf", "newest", numbers={key: 64}))
    assert summary.context_memory.bytes_per_token == bytes_per_token
    assert not summary.context_memory.is_exact
    assert "may be larger than shown" in summary.notes[0]


def test_a_model_that_only_predicts_further_tokens_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.gguf", "qwen3", numbers={"nextn_predict_layers": 3})
    with pytest.raises(DataError, match="nextn_predict_layers is 3"):
        read_model_summary(path)


def test_experts_are_counted_and_those_of_one_token_are_read(tmp_path: Path) -> None:
    dense = read_model_summary(_written(tmp_path / "dense.gguf", "llama"))
    experts = {"expert_count": 8, "expert_used_count": 2}
    mixture = read_model_summary(_written(tmp_path / "mixture.gguf", "llama", numbers=experts))
    assert (mixture.experts, mixture.experts_used) == (8, 2)
    assert mixture.bytes_per_token - dense.bytes_per_token == 2 * 8 * 128 * 4


def test_a_cut_file_is_described_and_its_lack_is_an_error_with_status_3(tmp_path: Path) -> None:
    path = _like_llama(tmp_path / "m.gguf")
    whole = path.stat().st_size
    os.truncate(path, whole - 100_000)
    for words in ((), ("--json",)):
        done = run("armload", "model.inspect", "m.gguf", *words, cwd=tmp_path)
        assert done.returncode == 3
        assert "100000 (100.0 kB)" in done.stderr
        assert f"{whole}" in done.stderr
        assert "Llama 3.1 8B" in done.stdout
    shown = json.loads(done.stdout)
    assert (shown["missing_bytes"], shown["sha256"]) == (100_000, "")
    assert sum(each["size_bytes"] for each in shown["sections"]) == whole


def test_the_verbs_make_a_model_and_say_what_it_is(tmp_path: Path) -> None:
    make = ("model.synth", "--like", "stories260k", "--type", "q8_0")
    made = run("armload", *make, cwd=tmp_path)
    assert (made.returncode, made.stdout) == (0, "stories260k-Q8_0-random.gguf\n"), made.stderr
    again = run("armload", *make, cwd=tmp_path)
    assert again.returncode == 2
    assert "already exists" in again.stderr
    other = run("armload", *make, "-o", "other.gguf", "--seed", "2", "--json", cwd=tmp_path)
    assert json.loads(other.stdout)["quantisation"] == "Q8_0"
    assert (tmp_path / "other.gguf").read_bytes() != (tmp_path / made.stdout.strip()).read_bytes()
    shown = run("armload", "model.inspect", "stories260k-Q8_0-random.gguf", cwd=tmp_path)
    assert shown.returncode == 0
    for part in ("stories260K, random weights", "layers 0 to 4", "Q8_0", "KV cache"):
        assert part in shown.stdout


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        (("model.synth",), 2, "llama-3.1-8b"),
        (("model.synth", "--like", "qwen3-0.6"), 2, "Did you mean 'qwen3-0.6b'?"),
        (("model.synth", "--like", "stories260k", "--type", "Q7"), 2, "Q4_K_M"),
        (("model.synth", "--like", "stories260k", "--seed", "-1"), 2, "--seed: must be 0 or more"),
        (("model.synth", "--like", "stories260k", "--output", "."), 2, "is a folder"),
        (("model.synth", "--like", "stories260k", "-o", "a/b/c.gguf"), 2, "no folder a/b."),
        (("model.synth", "--like", "stories260k", "-o", "notes.txt/x"), 2, "folder notes.txt."),
        (("model.synth", "--like", "stories260k", "-o", "new/"), 2, "mkdir -p new"),
        (("model.inspect", "notes.txt"), 3, "not a GGUF file"),
        (("model.inspect", "none.gguf"), 2, "like:NAME:TYPE"),
        (("model.inspect",), 2, "FILE is missing"),
    ],
)
def test_what_cannot_be_is_said_with_what_can(
    words: tuple[str, ...], status: int, part: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    done = run("armload", *words, cwd=tmp_path)
    assert done.returncode == status
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
