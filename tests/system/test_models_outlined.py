"""llama.cpp takes every outlined header, and says the same of memory and types as armload."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.build.builder import build
from armload.build.target import load_target
from armload.core.workspace import data_names
from armload.engines.completion import PROGRAM
from armload.engines.quantise import PROGRAM as QUANTISE
from armload.models.outline import OUTLINES, LayerTensors, Outline, load_outline, outlined
from armload.models.whole_header import encoded
from tests.footprints import simulated
from tests.quantising import PREDICTED_TYPES, known_here, said_by_llama_quantize

pytestmark = pytest.mark.build

COVERS = [
    "armload/data/outlines",
    "armload/models/context_memory.py",
    "armload/models/outline.py",
    "armload/models/quant_rules.py",
    "armload/models/whole_header.py",
    "toolchains/sources/llama-cpp.yaml",
]
CONTEXTS = (2048, 32768)


def _agrees(name: str, folder: Path) -> None:
    """Compare KV cache and states; llama.cpp refuses missing tensors and other dimensions."""
    (completion,) = build(load_target("host"), programs=[PROGRAM])
    outline = load_outline(name)
    model, header = outlined(outline, outline.file_types[0])
    path = folder / f"{name}.gguf"
    path.write_bytes(encoded(header).content)
    for context in CONTEXTS:
        words = [str(completion.path), "-p", "x", "-n", "1", "-no-cnv"]
        words += ["-c", str(context), "-fit", "off", "--no-repack"]
        said = simulated(path, words)
        assert model.context_memory.size_bytes(context) == said.context_bytes, (name, context)
    assert model.context_memory.is_exact


@pytest.mark.parametrize("name", ["gemma-4-e2b", "lfm2-8b-a1b"])
def test_llama_cpp_takes_an_outline_and_its_context_is_as_large_as_predicted(
    name: str, tmp_path: Path
) -> None:
    _agrees(name, tmp_path)


@pytest.mark.exhaustive(covers=COVERS)
@pytest.mark.parametrize("name", data_names(OUTLINES))
def test_llama_cpp_takes_every_outline(name: str, tmp_path: Path) -> None:
    _agrees(name, tmp_path)


def _has_the_types_that_are_predicted(outline: Outline, folder: Path) -> None:
    (quantise,) = build(load_target("host"), programs=[QUANTISE])
    _, header = outlined(outline, "F16")
    written = encoded(header)
    path = folder / "base.gguf"
    with path.open("wb") as file:
        file.write(written.content)
        file.truncate(written.file_bytes)  # it maps the weights, and does not read them
    for file_type in PREDICTED_TYPES:
        said = said_by_llama_quantize(quantise.path, path, file_type)
        assert known_here(path, file_type) == said, file_type


@pytest.mark.exhaustive(covers=COVERS)
@pytest.mark.parametrize("name", data_names(OUTLINES))
def test_llama_quantize_gives_every_tensor_the_type_that_is_predicted(
    name: str, tmp_path: Path
) -> None:
    _has_the_types_that_are_predicted(load_outline(name), tmp_path)


@pytest.mark.exhaustive(covers=COVERS)
def test_eight_experts_have_rules_of_their_own(tmp_path: Path) -> None:
    outline = load_outline("olmoe-1b-7b")
    tensors = {
        name: tuple(8 if size == outline.keys["expert_count"] else size for size in dimensions)
        for name, dimensions in outline.layers[0].tensors.items()
    }
    changed = {
        "keys": {**outline.keys, "expert_count": 8, "expert_used_count": 2},
        "layers": (LayerTensors(tensors=tensors),),
    }
    _has_the_types_that_are_predicted(outline.model_copy(update=changed), tmp_path)


@pytest.mark.exhaustive(covers=COVERS)
def test_eighty_layers_that_share_keys_and_values_have_rules_of_their_own(tmp_path: Path) -> None:
    outline = load_outline("smollm2-1.7b")
    few = {f"attn_{each}.weight": (2048, 512) for each in "kv"}
    changed = {
        "keys": {**outline.keys, "block_count": 80, "attention.head_count_kv": 8},
        "layers": (LayerTensors(tensors={**outline.layers[0].tensors, **few}),),
    }
    _has_the_types_that_are_predicted(outline.model_copy(update=changed), tmp_path)
