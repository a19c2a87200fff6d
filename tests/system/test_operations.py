"""A program lists what a model computes, and times it, with nothing but the model's header."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from armload.analysis.compute import from_operations
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.engines.operations import Operations, Timed
from armload.models.find import resolve
from armload.models.gguf import read_outline
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.models.whole_header import whole_header
from tests.footprints import architectures
from tests.operations import CONTEXT, listed, timed
from tests.recurrent import hybrid_model, recurrent_model

pytestmark = pytest.mark.build

OTHER_WEIGHTS = {
    "cogvlm-dense": "matrices for images, which a text does not use",
    "hrm_text-dense": "layers that a token passes through several times",
    "hy_v3-moe": "feed-forward matrices beside the experts, which the graph leaves out",
    "mimo2-moe": "feed-forward matrices beside the experts, which the graph leaves out",
    "qwen3next-moe": "attention matrices of a recurrent layer, which the graph leaves out",
    "refact-moe": "experts, which this architecture does not have",
}
"""Models of llama.cpp's test whose headers do not tell what a token reads."""

LITTLE = 0.003
"""Of a small model's weights: factors of scales and frequencies, and a bias twice."""

ONE_LAYER = Shape(
    layers=1,
    width=256,
    feed_forward=256,
    heads=4,
    kv_heads=4,
    vocabulary=4096,
    context_length=CONTEXT,
)


@pytest.fixture(scope="module")
def completion() -> Path:
    """llama-completion for this machine."""
    (found,) = build(load_target("host"), programs=("llama-completion",))
    return found.path


def _weights_bytes(found: Operations) -> int:
    token = next(each for each in found.graphs if each.tokens == 1)
    return sum(count * found.operations[number].weights_bytes for number, count in token.counts)


def _compute(found: Operations, times: dict[str, Timed]) -> float:
    depth = CONTEXT / 2
    return from_operations(found, times, depth=depth, memory_bytes_per_s=None).token_s.value


@pytest.mark.exhaustive(
    covers=[
        "toolchains/native/armload_operations.cpp",
        "toolchains/native/armload_footprint.cpp",
        "toolchains/overlay",
        "toolchains/sources/llama-cpp.yaml",
        "armload/engines/operations.py",
        "armload/models/metadata.py",
        "tests/operations.py",
    ]
)
def test_every_architecture_is_listed_and_timed(completion: Path, tmp_path: Path) -> None:
    models = architectures(tmp_path)
    assert len(models) >= 125
    times: dict[str, Timed] = {}
    for path in models:
        found = listed(completion, whole_header(path))
        if path.stem not in OTHER_WEIGHTS:
            wanted = pytest.approx(read_outline(path)[0].bytes_per_token, rel=LITTLE)
            assert _weights_bytes(found) == wanted, path.stem
        keys = [each.key for each in found.operations]
        missing = [number for number, key in enumerate(keys) if key not in times]
        results = timed(completion, whole_header(path), missing)
        assert [each.number for each in results] == missing, path.stem
        for each in results:
            assert each.time_s, (path.stem, keys[each.number], each.signal)
            times[keys[each.number]] = each
        assert _compute(found, times) > 0


@pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])
def test_recurrent_and_hybrid_models_and_mixtures_get_a_speed(
    completion: Path, tmp_path: Path
) -> None:
    tokens = resolve("like:stories260k:Q8_0", Silent())
    mixture = tmp_path / "mixture.gguf"
    shape = Shape(
        layers=2,
        width=64,
        feed_forward=64,
        heads=2,
        kv_heads=1,
        vocabulary=4096,
        context_length=CONTEXT,
        experts=8,
        experts_used=2,
    )
    synthesise(shape, mixture, quantisation="Q8_0", seed=1, progress=Silent())
    kinds = {
        recurrent_model(tokens, tmp_path / "recurrent.gguf"): "SSM_SCAN",
        hybrid_model(tokens, tmp_path / "hybrid.gguf"): "SSM_CONV",
        mixture: "MUL_MAT_ID",
    }
    for path, kind in kinds.items():
        found = listed(completion, whole_header(path))
        assert any(each.key.startswith(f"{kind} ") for each in found.operations)
        bytes_per_token = read_outline(path)[0].bytes_per_token
        assert _weights_bytes(found) == pytest.approx(bytes_per_token, rel=LITTLE)
        results = timed(completion, whole_header(path), range(len(found.operations)))
        times = {found.operations[each.number].key: each for each in results}
        assert 0 < _compute(found, times) < 1


def test_attention_takes_longer_with_a_fuller_cache_and_weights_the_longer_the_larger(
    completion: Path, tmp_path: Path
) -> None:
    wide = ONE_LAYER.model_copy(update={"feed_forward": 4096})
    path = tmp_path / "m.gguf"
    synthesise(wide, path, quantisation="Q8_0", seed=1, progress=Silent())
    found = listed(completion, whole_header(path))
    assert {(each.tokens, each.depth) for each in found.graphs} == {
        (tokens, depth) for tokens in (1, 64) for depth in (256, CONTEXT)
    }
    times = {
        each.number: each.time_s or 0
        for each in timed(completion, whole_header(path), range(len(found.operations)))
    }
    attention = {
        number: each.key
        for number, each in enumerate(found.operations)
        if each.key.startswith("FLASH_ATTN_EXT") and "f32[64x4]" in each.key
    }
    assert len(attention) == 2
    shallow, deep = sorted(attention, key=lambda number: f"x{CONTEXT}x" in attention[number])
    assert times[shallow] < times[deep]
    matrices = {
        each.key.split()[2].partition("@")[0]: times[number]
        for number, each in enumerate(found.operations)
        if each.key.startswith("MUL_MAT f32[") and each.key.endswith(" f32[256]")
    }
    # Sixteen times as much work: other programs may disturb either, but not that far.
    assert matrices["q8_0[256x4096]"] / matrices["q8_0[256x256]"] > 2


TYPES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
)


def test_matrices_of_every_type_are_timed(completion: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    synthesise(ONE_LAYER, path, quantisation="F16", seed=1, progress=Silent())
    _, header = read_outline(path)
    for name in TYPES:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        tensors = tuple(
            replace(each, type_name=name, size_bytes=256 * 256 // block * block_bytes)
            if each.shape == (256, 256)
            else each
            for each in header.tensors
        )
        model = whole_header(path, replace(header, tensors=tensors))
        found = listed(completion, model)
        matrices = [
            number
            for number, each in enumerate(found.operations)
            # "@CPU", or "@AMX" on a processor with such units.
            if each.key.startswith("MUL_MAT ") and f" {name.lower()}[256x256]@" in each.key.lower()
        ]
        assert len(matrices) == 2, name
        assert all(each.time_s for each in timed(completion, model, matrices)), name
