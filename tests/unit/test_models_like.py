"""Models like published ones: files and vocabularies. Running them is a system test."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, TokenType
from gguf.quants import dequantize

from armload.core.errors import ArmloadError, ConnectError, DataError, UsageError
from armload.core.progress import Silent
from armload.core.workspace import data_names
from armload.models.byte_pairs import byte_letters, byte_pairs_vocabulary
from armload.models.find import header_of, resolve, shown_name
from armload.models.gguf import read_model, read_outline
from armload.models.gguf_values import Array
from armload.models.header import read_header
from armload.models.quant_mix import MIXTURES
from armload.models.shape import SHAPES, BytePairs, Shape, load_shape
from armload.models.synth import GENERATION, synthesise_like
from armload.models.vocabulary import TokenKind, Vocabulary
from tests.outside_data import STORIES, needs_stories
from tests.unit.shapes import with_few_words
from tests.unit.test_models_mix import tensor_types

SMALLER = {"layers": 9, "width": 256, "feed_forward": 512, "heads": 4, "kv_heads": 2}
FAMILIES = ("llama-3.1-8b", "qwen2.5-0.5b", "qwen3-0.6b")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def _small(name: str) -> Shape:
    return with_few_words(name).model_copy(update=SMALLER)


def _made(path: Path, shape: Shape, file_type: str = "Q4_K_M", seed: int = 1) -> Path:
    synthesise_like(shape, path, file_type=file_type, seed=seed, progress=Silent())
    return path


def _vocabulary(name: str) -> Vocabulary:
    shape = load_shape(name)
    assert isinstance(shape.tokenizer, BytePairs)
    return byte_pairs_vocabulary(shape.tokenizer, shape.vocabulary)


@needs_stories
def test_a_made_stories260k_has_the_real_ones_tensors_and_keys(tmp_path: Path) -> None:
    made = read_header(_made(tmp_path / "m.gguf", load_shape("stories260k"), "F32"))
    real = read_header(STORIES)
    assert {(each.name, each.shape, each.type_name) for each in made.tensors} == {
        (each.name, each.shape, each.type_name) for each in real.tensors
    }
    assert made.metadata.keys() == real.metadata.keys()
    for key in real.metadata.keys() - {"general.name"}:
        ours, theirs = made.metadata[key], real.metadata[key]
        if isinstance(theirs, Array):
            assert isinstance(ours, Array)
            assert ours.length == theirs.length, key
        else:
            assert ours == theirs, key


LLAMA_KEYS = {
    "general.architecture",
    "general.name",
    "general.file_type",
    "general.quantization_version",
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.rope.freq_base",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.vocab_size",
    "llama.rope.dimension_count",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
}


def test_keys_are_those_of_published_files(tmp_path: Path) -> None:
    keys = {
        name: set(read_header(_made(tmp_path / f"{name}.gguf", _small(name))).metadata)
        for name in FAMILIES
    }
    assert keys["llama-3.1-8b"] == LLAMA_KEYS
    of_qwen = {
        each.replace("llama.", "qwen2.", 1)
        for each in LLAMA_KEYS - {"llama.vocab_size", "llama.rope.dimension_count"}
    } | {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.padding_token_id"}
    assert keys["qwen2.5-0.5b"] == of_qwen
    head = {"qwen3.attention.key_length", "qwen3.attention.value_length"}
    assert keys["qwen3-0.6b"] == {each.replace("qwen2.", "qwen3.") for each in of_qwen} | head


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GGUFReader]:
    """Give the format's own reader of a small file like a model."""
    folder = tmp_path_factory.mktemp("like")

    @cache
    def read(name: str) -> GGUFReader:
        return GGUFReader(_made(folder / f"{name}.gguf", _small(name), "Q3_K_M"))

    return read


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-0.6b"])
def test_the_format_s_own_reader_reads_finite_weights_of_the_planned_types(
    name: str, read: Callable[[str], GGUFReader]
) -> None:
    shape, reader = _small(name), read(name)
    assert {each.name: each.tensor_type.name for each in reader.tensors} == tensor_types(
        shape, "Q3_K_M"
    )
    for tensor in reader.tensors:
        some = tensor.data[:2000]
        assert np.isfinite(dequantize(some, tensor.tensor_type)).all(), tensor.name
    up = next(each for each in reader.tensors if each.name == "blk.1.ffn_up.weight")
    assert up.tensor_type.name == "Q3_K"
    assert dequantize(up.data, up.tensor_type).std() == pytest.approx(256**-0.5, rel=0.03)


@pytest.mark.parametrize("file_type", MIXTURES)
def test_every_file_type_falls_back_to_small_blocks_and_stays_finite(
    file_type: str, tmp_path: Path
) -> None:
    shape = load_shape("stories260k").model_copy(update={"width": 96, "feed_forward": 160})
    reader = GGUFReader(_made(tmp_path / "m.gguf", shape, file_type))
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(weights).all(), tensor.name
        assert weights.any() or "bias" in tensor.name, tensor.name
    down = next(each for each in reader.tensors if each.name == "blk.1.ffn_down.weight")
    weights = dequantize(down.data, down.tensor_type)
    assert weights.std() == pytest.approx(160**-0.5, rel=0.05)
    assert abs(weights.mean()) < 0.2 * 160**-0.5


def test_tensors_lie_in_the_file_as_llama_quantize_leaves_them(tmp_path: Path) -> None:
    tensors = read_header(_made(tmp_path / "m.gguf", _small("llama-3.1-8b"))).tensors
    names = [each.name for each in sorted(tensors, key=lambda each: each.offset_bytes)]
    assert names[:6] == [
        "output.weight",
        "output_norm.weight",
        "rope_freqs.weight",
        "token_embd.weight",
        "blk.0.attn_k.weight",
        "blk.0.attn_norm.weight",
    ]
    layers = [int(name.split(".")[1]) for name in names if name.startswith("blk.")]
    assert layers == sorted(layers)


def test_llama_3_special_tokens_have_their_ids() -> None:
    words = _vocabulary("llama-3.1-8b")
    assert len(words.tokens) == 128256
    known = {128000: "begin_of_text", 128001: "end_of_text", 128006: "start_header_id"}
    known |= {128009: "eot_id", 128010: "python_tag", 128255: "reserved_special_token_247"}
    assert {number: words.tokens[number] for number in known} == {
        number: f"<|{name}|>" for number, name in known.items()
    }
    assert words.kinds.count(TokenKind.CONTROL) == 256


def test_qwen_special_tokens_have_their_ids() -> None:
    for name, plain, first_filler in (
        ("qwen2.5-0.5b", ("<tool_call>", "</tool_call>"), 151665),
        ("qwen3-0.6b", ("<tool_call>", "</tool_call>", "<think>", "</think>"), 151669),
    ):
        words = _vocabulary(name)
        assert len(words.tokens) == 151936
        assert words.tokens[151643:151646] == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
        assert words.tokens[151657] == "<tool_call>"
        for each in plain:
            assert words.kinds[words.tokens.index(each)] is TokenKind.USER_DEFINED
        assert words.tokens[first_filler] == f"[PAD{first_filler}]"
        assert words.kinds[first_filler] is TokenKind.UNUSED


def test_byte_pairs_read_any_text_and_merge_every_word() -> None:
    words = _vocabulary("llama-3.1-8b")
    tokens = set(words.tokens)
    assert len(tokens) == len(words.tokens)
    assert list(words.tokens[:3]) == ["!", '"', "#"]
    assert tuple(byte_letters().values()) == words.tokens[:256]
    ranks = {pair: rank for rank, pair in enumerate(words.merges)}
    assert all(left + right in tokens for left, right in words.merges)
    for word in ("Ġbelieve", "Ġmeaning", "Ġlife"):
        assert _merged(word, ranks) == [word]
        assert words.tokens.index(word) in words.words


def _merged(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    parts = list(word)
    while True:
        pairs = [pair for pair in pairwise(parts) if pair in ranks]
        if not pairs:
            return parts
        best = min(pairs, key=lambda pair: ranks[pair])
        at = next(i for i in range(len(parts)) if (parts[i], parts[i + 1]) == best)
        parts[at : at + 2] = ["".join(best)]


def test_the_file_says_which_tokens_have_a_role(read: Callable[[str], GGUFReader]) -> None:
    def content(key: str) -> object:
        return read("qwen3-0.6b").fields[f"tokenizer.ggml.{key}"].contents()

    tokenizer = _small("qwen3-0.6b").tokenizer
    assert isinstance(tokenizer, BytePairs)
    first = tokenizer.text_tokens
    assert (content("model"), content("pre")) == ("gpt2", "qwen2")
    assert [content(f"{role}_token_id") for role in ("bos", "eos", "padding")] == [
        first,
        first + 2,
        first,
    ]
    assert content("add_bos_token") is False
    kinds = content("token_type")
    assert isinstance(kinds, list)
    assert kinds[first + 1] == TokenType.CONTROL


def test_equal_orders_give_equal_bytes_and_other_seeds_others(tmp_path: Path) -> None:
    shape = load_shape("stories260k")
    first = _made(tmp_path / "a.gguf", shape).read_bytes()
    assert _made(tmp_path / "b.gguf", shape).read_bytes() == first
    assert _made(tmp_path / "c.gguf", shape, seed=2).read_bytes() != first


def test_this_generation_s_weights_and_words_stay_as_they_are(tmp_path: Path) -> None:
    shape = load_shape("stories260k").model_copy(update={"tied": True})
    path = _made(tmp_path / "m.gguf", shape, "Q4_0")
    weights = path.read_bytes()[min(each.offset_bytes for each in read_header(path).tensors) :]
    words = "\n".join(_vocabulary("qwen3-0.6b").tokens).encode()
    assert (GENERATION, hashlib.sha256(weights + words).hexdigest()) == (
        1,
        "4f1caa9914f0f846bbc478fe8c857b351f6c179ccaf1c648bbb80b78c343b80c",
    ), "they differ from what caches hold: raise GENERATION"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_memory_stays_far_below_a_model_with_a_large_vocabulary(tmp_path: Path) -> None:
    program = (
        "import re, sys; from pathlib import Path;"
        "from armload.models.shape import load_shape;"
        "from armload.models.synth import GENERATION, synthesise_like;"
        "from armload.core.progress import Silent;"
        "synthesise_like(load_shape('qwen2.5-0.5b'), Path(sys.argv[1]), file_type='Q4_0', seed=1,"
        " progress=Silent());"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    path = tmp_path / "model.gguf"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert path.stat().st_size > 330e6
    assert int(done.stdout) * 1024 < 160e6


def test_a_model_larger_than_the_disk_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    sizes = {"layers": 2000, "width": 1 << 16, "feed_forward": 1 << 18}
    shape = load_shape("stories260k").model_copy(update=sizes)
    with pytest.raises(ArmloadError, match="GB free") as caught:
        _made(tmp_path / "m.gguf", shape, "F32")
    assert caught.value.exit_status == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"heads": 5}, "width must be a multiple of heads"),
        ({"kv_heads": 3}, "multiple of kv_heads"),
        ({"vocabulary": 128005}, "special tokens, or more"),
        ({"head_width": 33}, "even"),
    ],
)
def test_sizes_that_do_not_go_together_are_named(
    change: dict[str, int], part: str, tmp_path: Path
) -> None:
    shape = load_shape("llama-3.1-8b").model_copy(update=change)
    with pytest.raises(UsageError, match=part):
        _made(tmp_path / "m.gguf", shape)


def test_a_role_of_a_token_that_is_not_there_is_named(tmp_path: Path) -> None:
    shape = load_shape("llama-3.1-8b")
    tokenizer = shape.tokenizer.model_copy(update={"end": "<|end|>"})
    with pytest.raises(UsageError, match=re.escape("<|end|> must be among")):
        _made(tmp_path / "m.gguf", shape.model_copy(update={"tokenizer": tokenizer}))


def test_only_the_header_of_a_made_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    path = header_of("like:llama-3.1-8b:Q2_K", Silent())
    assert shown_name(path) == "like:llama-3.1-8b:Q2_K"
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


def test_a_persons_own_shape_extends_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / SHAPES).mkdir()
    (tmp_path / SHAPES / "mine.yaml").write_text(
        "extends: stories260k\ndescription: Mine\nlayers: 2\n"
    )
    assert "mine" in data_names(SHAPES)
    path = resolve("like:mine:q8_0", Silent())
    assert read_model(path).layers == 2
    assert resolve("like:mine:Q8_0", Silent()) == path
    (tmp_path / SHAPES / "mine.yaml").write_text("extends: stories260k\nlayers: 3\n")
    assert read_model(resolve("like:mine:Q8_0", Silent())).layers == 3
    (tmp_path / SHAPES / "mine.yaml").write_text("extends: stories260k\nlayer: 3\n")
    with pytest.raises(DataError, match="line 2: there is no key 'layer'"):
        load_shape("mine")


@pytest.mark.parametrize(
    ("reference", "part"),
    [
        ("like:llama-3.1-8", "Did you mean 'llama-3.1-8b'"),
        ("like:llama-3.1-8b", "llama-3.1-8b:Q4_0"),
        ("like:llama-3.1-8:Q2_K", "llama-3.1-8b"),
        ("like:stories260k:Q9_K", "Q4_K_M"),
        ("like:stories260k:Q4_O", "Did you mean 'Q4_0'"),
        ("llama-3.2-1b:Q4_O", "Did you mean 'Q4_0'? Types with a known file: Q4_0, Q4_K_M, Q8_0."),
        ("like:lfm2-350m:Q4_0", "armload fit --model lfm2-350m:Q4_0."),
    ],
)
def test_a_name_that_is_like_nothing_is_answered_with_what_there_is(
    reference: str, part: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(reference, Silent())
    assert part in caught.value.remedy


@pytest.mark.parametrize(
    ("reference", "random"),
    [("hf:org/nothing:Q4_0", ""), ("llama-3.2-1b:Q4_0", ", or like:llama-3.2-1b:Q4_0 (random")],
)
def test_without_a_hub_models_are_offered_that_need_none(
    reference: str, random: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConnectError) as caught:
        resolve(reference, Silent())
    others = f"Models that need no hub: smollm2, word-problems:Q8_0{random}"
    assert others in caught.value.remedy
    assert ("like:" in caught.value.remedy) == bool(random)
