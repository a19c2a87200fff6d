"""Checkpoints that are quantised already: compared as others are, or refused unless accepted.

What is accepted without a comparison says so, and has the weights that the codes stand for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from armload.models.packaged import word_problems_model
from tests.checkpoints import checkpoint_of
from tests.packed import PACKINGS, floats, pack
from tests.person import Person
from tests.system.test_convert_architectures import flags

pytestmark = [
    pytest.mark.exhaustive(
        covers=["armload/conversion/checkpoints", "toolchains/converters", "tests/packed.py"]
    ),
    pytest.mark.build,
]
UNREADABLE = {"awq", "bitnet", "bitsandbytes"}
COMPARED = {"fp8", "fp8, a scale for all"}
MATRICES = {
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Those whose rows llama.cpp leaves in their order."""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    somebody = Person(tmp_path_factory.mktemp("person"))
    checkpoint_of(word_problems_model("word-problems:Q8_0"), somebody.folder / "sums", "llama-3")
    return somebody


@pytest.fixture(params=PACKINGS)
def packed(person: Person, request: pytest.FixtureRequest) -> str:
    """A quantised checkpoint, ``packed``, beside the same in 32-bit floats, ``dense``."""
    name: str = request.param
    for folder in (person.folder / "packed", person.folder / "dense"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(person.folder / "sums", folder)
    (person.folder / "made.gguf").unlink(missing_ok=True)
    pack(person.folder / "packed", PACKINGS[name], person.folder / "dense")
    return name


def converts(person: Person, *words: str) -> tuple[int, Any]:
    given = ("packed", "--type", "F32", "--output", "made.gguf", "--yes", "--json")
    process = person.start("model.convert", *given, *words)
    return process.returncode if process.wait() else 0, json.loads(process.communicate()[0])


def test_a_quantised_checkpoint_is_compared_or_refused_or_said_to_be_unchecked(
    person: Person, packed: str
) -> None:
    made = person.folder / "made.gguf"
    status, found = converts(person)
    if packed not in COMPARED:
        assert status == 2, found
        assert not made.exists()
        said = found["error"]
        assert ("--unchecked" in said["remedy"]) == (packed not in UNREADABLE), said
        assert "config.json" in said["message"]
        status, found = converts(person, "--unchecked")
    if packed in UNREADABLE:
        assert status == 2, found
        assert not made.exists()
        return
    assert status == 0, found
    check = found["check"]
    assert check["texts"] > 16
    assert flags(made) == [True, packed in COMPARED]
    assert (check["logits"] is not None) == (packed in COMPARED)
    assert [each.partition(":")[0] for each in check["unchecked"]] == (
        [] if packed in COMPARED else ["logits"]
    )
    assert_same_weights(made, person.folder / "dense" / "model.safetensors")


def assert_same_weights(made: Path, dense: Path) -> None:
    expected = floats(dense)
    tensors = {each.name: each for each in GGUFReader(made).tensors}
    for layer in range(4):
        for name, own in MATRICES.items():
            tensor = tensors[f"blk.{layer}.{name}.weight"]
            values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
            scale = tensors.get(f"blk.{layer}.{name}.scale")
            values = values * scale.data if scale else values
            wanted = expected[f"model.layers.{layer}.{own}.weight"]
            assert np.abs(values - wanted).max() <= 1e-6 * np.abs(wanted).max(), name
