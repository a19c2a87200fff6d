"""Models of random weights: what must hold of the file. Running it is a system test."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from armload.core.errors import UsageError
from armload.core.progress import ProgressStep, Silent
from armload.models.blocks import TYPES
from armload.models.gguf import read_model
from armload.models.header import read_header
from armload.models.shape import Shape
from armload.models.synth import GENERATION, synthesise, synthesise_like
from armload.models.tensors import LOGIT_DEVIATION, ring_places
from armload.models.vocabulary import TokenKind, vocabulary
from tests.command_line import BIN

SMALL = Shape(
    layers=2,
    width=256,
    feed_forward=512,
    heads=4,
    kv_heads=2,
    vocabulary=2048,
    context_length=128,
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))


def _made(path: Path, quantisation: str = "Q4_0", seed: int = 1) -> Path:
    synthesise(SMALL, path, quantisation=quantisation, seed=seed, progress=Silent())
    return path


@pytest.mark.parametrize("quantisation", TYPES)
def test_facts_are_those_that_were_ordered(quantisation: str, tmp_path: Path) -> None:
    model = read_model(_made(tmp_path / "m.gguf", quantisation))
    assert model.architecture == "llama"
    assert model.quantisation == quantisation
    assert (model.layers, model.vocabulary, model.context_length) == (2, 2048, 128)
    per_layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512
    norms = 5 * 256
    assert model.parameters == 2 * per_layer + 2 * 2048 * 256 + norms
    assert model.context_memory.bytes_per_token == 2 * 2 * 2 * 64 * 2


@pytest.mark.parametrize("quantisation", TYPES)
def test_weights_have_mean_zero_and_the_deviation_that_keeps_activations(
    quantisation: str, tmp_path: Path
) -> None:
    reader = GGUFReader(_made(tmp_path / "m.gguf", quantisation))
    for name, deviation in (("token_embd", 1.0), ("blk.1.ffn_down", 512**-0.5)):
        (tensor,) = [each for each in reader.tensors if each.name == f"{name}.weight"]
        weights = dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(weights).all()
        # The few numbers of Q3_K, -4 to 3, are 2.4% wider with a random sign.
        assert weights.std() == pytest.approx(deviation, rel=0.03)
        assert abs(weights.mean()) < 6 * deviation / math.sqrt(weights.size / 32)


@pytest.mark.parametrize("quantisation", TYPES)
def test_only_whole_words_can_win(quantisation: str, tmp_path: Path) -> None:
    reader = GGUFReader(_made(tmp_path / "m.gguf", quantisation))
    (output,) = [each for each in reader.tensors if each.name == "output.weight"]
    rows = dequantize(output.data, output.tensor_type)
    words = vocabulary(SMALL.vocabulary).words
    spoken = np.flatnonzero(np.abs(rows).max(axis=1) > 0)
    assert spoken.tolist() == list(words)
    assert rows[spoken].std() == pytest.approx(LOGIT_DEVIATION / 16, rel=0.03)


def test_equal_orders_give_equal_bytes_and_other_seeds_others(tmp_path: Path) -> None:
    first = _made(tmp_path / "a.gguf").read_bytes()
    assert _made(tmp_path / "b.gguf").read_bytes() == first
    assert _made(tmp_path / "c.gguf", seed=2).read_bytes() != first


def test_this_generation_s_weights_and_words_stay_as_they_are(tmp_path: Path) -> None:
    path = _made(tmp_path / "m.gguf", "Q4_K")
    weights = path.read_bytes()[min(each.offset_bytes for each in read_header(path).tensors) :]
    words = "\n".join(vocabulary(SMALL.vocabulary).tokens).encode()
    assert (GENERATION, hashlib.sha256(weights + words).hexdigest()) == (
        1,
        "da39a8b068dafbb52a5a1fed16431173b49de63b59eed25840384fe97be788a6",
    ), "they differ from what caches hold: raise GENERATION"


class _Watching(Silent):
    """Keeps what was reported, and ends the disk's space after so many bytes."""

    def __init__(self, space_bytes: float = math.inf) -> None:
        self.space_bytes = space_bytes
        self.total: float | None = None
        self.completed = 0.0

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        self.total = total
        yield self

    def update(self, completed: float, **_more: object) -> None:
        self.completed = completed
        if completed > self.space_bytes:
            raise OSError(28, "No space left on device")


def test_a_failure_on_the_way_leaves_no_file(tmp_path: Path) -> None:
    full = _Watching(space_bytes=1e6)
    with pytest.raises(OSError, match="No space"):
        synthesise(SMALL, tmp_path / "m.gguf", quantisation="F16", seed=1, progress=full)
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_with_every_byte_of_the_weights(tmp_path: Path) -> None:
    watching = _Watching()
    synthesise(SMALL, tmp_path / "m.gguf", quantisation="F32", seed=1, progress=watching)
    tensors = read_header(tmp_path / "m.gguf").tensors
    weights_bytes = sum(tensor.size_bytes for tensor in tensors)
    assert watching.completed == watching.total == weights_bytes


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_memory_stays_bounded_by_far_less_than_the_model(tmp_path: Path) -> None:
    program = (
        "import re, sys; from pathlib import Path;"
        "from armload.models.shape import Shape; from armload.models.synth import synthesise;"
        "from armload.core.progress import Silent;"
        "shape = Shape(layers=1, width=2048, feed_forward=8192, heads=16, kv_heads=4,"
        " vocabulary=32000, context_length=512);"
        "synthesise(shape, Path(sys.argv[1]), quantisation='F32', seed=1, progress=Silent());"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    path = tmp_path / "large.gguf"
    completed = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    peak_bytes = int(completed.stdout) * 1024
    assert path.stat().st_size > 700e6
    assert peak_bytes < 200e6


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"width": 250}, "multiple of"),
        ({"kv_heads": 3}, "multiple of kv_heads"),
        ({"vocabulary": 300}, "vocabulary must be"),
        ({"feed_forward": 500}, "feed_forward"),
        ({"experts": 4}, "experts_used must be from 1 to experts"),
        ({"experts": 4, "experts_used": 5}, "experts_used must be from 1 to experts"),
        ({"experts_used": 1}, "experts_used must be from 1 to experts"),
        ({"architecture": "qwen2", "experts": 4, "experts_used": 2}, "llama and qwen3moe"),
        ({"architecture": "qwen3moe", "expert_feed_forward": 256}, "qwen3moe needs experts"),
        (
            {"architecture": "qwen3moe", "experts": 4, "experts_used": 2},
            "expert_feed_forward is given for",
        ),
        ({"planted_router": True}, "planted_router needs experts"),
    ],
)
def test_an_impossible_shape_is_a_usage_error(
    change: dict[str, object], part: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=part):
        synthesise(
            SMALL.model_copy(update=change),
            tmp_path / "m.gguf",
            quantisation="Q4_0",
            seed=1,
            progress=Silent(),
        )


def test_a_mixture_of_experts_has_a_router_and_its_experts_in_single_tensors(
    tmp_path: Path,
) -> None:
    shape = SMALL.model_copy(update={"experts": 4, "experts_used": 2})
    path = tmp_path / "m.gguf"
    synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    tensors = {tensor.name: tensor for tensor in read_header(path).tensors}
    assert tensors["blk.1.ffn_gate_inp.weight"].shape == (256, 4)
    assert tensors["blk.1.ffn_gate_inp.weight"].type_name == "F32"
    assert tensors["blk.1.ffn_down_exps.weight"].shape == (512, 256, 4)
    model = read_model(path)
    assert model.experts == 4
    expert_bytes = 3 * 256 * 512 * 34 // 32
    unused_bytes = 2 * 2 * expert_bytes
    embedding_bytes = 2048 * 256 * 34 // 32
    weights_bytes = sum(tensor.size_bytes for tensor in tensors.values())
    read_bytes = weights_bytes - unused_bytes - embedding_bytes + embedding_bytes // 2048
    assert model.bytes_per_token == read_bytes
    synthesise_like(shape, path, file_type="Q8_0", seed=1, progress=Silent())
    likewise = {tensor.name: tensor for tensor in read_header(path).tensors}
    assert {name: each.type_name for name, each in likewise.items()} == {
        name: each.type_name for name, each in tensors.items()
    }


def test_the_verb_makes_a_mixture_of_experts_of_a_persons_own_shape(tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "few.yaml").write_text(
        "extends: qwen3-30b-a3b\nlayers: 2\nwidth: 256\nheads: 4\nhead_width: 64\n"
        "experts: 8\nexperts_used: 2\nexpert_feed_forward: 256\nplanted_router: true\n"
    )
    words = [str(BIN / "armload"), "model.synth", "--like", "few", "--type", "Q4_K_M", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    assert (made["experts"], made["experts_used"]) == (8, 2)
    tensors = read_header(tmp_path / "few-Q4_K_M-random.gguf").tensors
    types = {tensor.name: tensor.type_name for tensor in tensors}
    assert types["blk.0.ffn_up_exps.weight"] == "Q4_K"
    assert types["blk.0.ffn_gate_inp.weight"] == types["token_embd.weight"] == "F32"


def test_a_planted_router_chooses_like_experts_for_neighbours_and_others_farther_on(
    tmp_path: Path,
) -> None:
    mixture = {"architecture": "qwen3moe", "experts": 32, "experts_used": 4}
    shape = SMALL.model_copy(update={**mixture, "expert_feed_forward": 256, "planted_router": True})
    path = tmp_path / "m.gguf"
    synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    found = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
    assert read_model(path).expert_bytes == 2 * 32 * 3 * 256 * 256 * 34 // 32
    tokens = found["token_embd.weight"]
    tokens = tokens / np.linalg.norm(tokens, axis=1, keepdims=True) * 256**0.5
    chosen = np.argsort(tokens @ found["blk.1.ffn_gate_inp.weight"].T, axis=1)[:, -4:]
    around = chosen[np.argsort(ring_places(shape.vocabulary))]

    def alike(distance: int) -> float:
        pairs = zip(around, np.roll(around, distance, axis=0), strict=True)
        return float(np.mean([len({*one} & {*other}) for one, other in pairs]))

    assert alike(5) > 2 * alike(shape.vocabulary // 2)
    assert set(chosen.ravel()) == set(range(32))


def test_an_unknown_quantisation_is_answered_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _made(tmp_path / "m.gguf", "Q9_9")
    assert "Q4_0" in caught.value.remedy


def test_every_byte_has_a_token_and_every_word_all_its_beginnings() -> None:
    words = vocabulary(2048)
    tokens = set(words.tokens)
    assert len(tokens) == len(words.tokens)
    assert words.kinds.count(TokenKind.BYTE) == 256
    for number in words.words:
        word = words.tokens[number]
        assert all(word[:length] in tokens for length in range(1, len(word)))
        assert word[1:].isascii()
        assert word[1:].isalpha()
