"""Weights that no conversion can make a model of are named before anything is installed."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from armload.conversion.checkpoints import soundness as module
from armload.conversion.checkpoints.checkpoint import read_checkpoint
from armload.conversion.checkpoints.soundness import check_weights
from armload.core.errors import DataError
from armload.core.progress import Silent
from armload.models.packaged import word_problems_model
from tests.checkpoints import checkpoint_of, safetensors
from tests.mutations import DAMAGES, damage_values

HEIGHT, WIDTH = 64, 256
KINDS = {
    "F64": (8, 0x7FF8 << 48, 0x7FF0 << 48, 0x3FF0 << 48),
    "F32": (4, 0x7FC0_0000, 0xFF80_0000, 0x7F7F_FFFF),
    "F16": (2, 0xFE01, 0x7C00, 0x7BFF),
    "BF16": (2, 0x7FC1, 0xFF80, 0x7F7F),
    "F8_E5M2": (1, 0x7E, 0xFC, 0x7B),
    "F8_E4M3": (1, 0xFF, None, 0x7E),
    "F8_E8M0": (1, 0xFF, None, 0xFE),
}
"""Bytes of each type, with the patterns of NaN, infinity, if it has one, and a large number."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return checkpoint_of(word_problems_model("word-problems:Q8_0"), tmp_path / "sums", shards=3)


def write_stored(path: Path, dtype: str, values: NDArray[np.unsignedinteger]) -> None:
    about = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [0, values.nbytes]}
    text = json.dumps({"model.layers.3.mlp.up_proj.weight": about}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_nan_and_infinity_are_counted_in_every_type_that_has_them(
    dtype: str, seed: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1 << 10)  # many chunks, the last one shorter
    random = np.random.default_rng(seed)
    width, nan, infinite, large = KINDS[dtype]
    values = np.full((HEIGHT, WIDTH + 1), large, f"<u{width}")
    (checkpoint / "model.safetensors.index.json").unlink()
    for path in checkpoint.glob("*.safetensors"):
        path.unlink()
    path = checkpoint / "model.safetensors"
    write_stored(path, dtype, values)
    found = read_checkpoint(checkpoint).model_copy(update={"tied": False})
    check_weights(found, Silent())
    at = random.choice(values.size, 5, replace=False)
    values.flat[at[:3]] = nan
    values.flat[at[3:]] = nan if infinite is None else infinite
    write_stored(path, dtype, values)
    with pytest.raises(DataError) as caught:
        check_weights(found, Silent())
    counts = "5 NaN" if infinite is None else "3 NaN and 2 infinite"
    assert (
        f"model.layers.3.mlp.up_proj.weight in model.safetensors: {counts} of "
        f"{values.size:,}" in caught.value.message
    )
    assert str(checkpoint) in caught.value.message


def test_whole_numbers_are_no_floats(checkpoint: Path) -> None:
    for path in checkpoint.glob("*.safetensors*"):
        path.unlink()
    write_stored(checkpoint / "model.safetensors", "U8", np.full((HEIGHT, 4), 0xFF, "<u1"))
    check_weights(read_checkpoint(checkpoint).model_copy(update={"tied": False}), Silent())


@pytest.mark.parametrize("seed", range(24))
def test_damage_anywhere_is_found(checkpoint: Path, seed: int) -> None:
    """In the rows of tokens that no prompt uses, too."""
    name, count = damage_values(checkpoint, seed)
    with pytest.raises(DataError) as caught:
        check_weights(read_checkpoint(checkpoint), Silent())
    assert name in caught.value.message
    assert f"{count} " in caught.value.message


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_tied_weights_must_be_equal(checkpoint: Path, *, tied: bool, same: bool) -> None:
    for path in checkpoint.glob("*.safetensors*"):
        path.unlink()
    embedding = np.random.default_rng(0).normal(size=(HEIGHT, WIDTH)).astype(np.float32)
    output = embedding.copy()
    if not same:
        output[-1, -1] += 1
    stored = {"model.embed_tokens.weight": embedding, "lm_head.weight": output}
    (checkpoint / "model.safetensors").write_bytes(safetensors(stored))
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    found = read_checkpoint(checkpoint)
    if same or not tied:
        check_weights(found, Silent())
        return
    with pytest.raises(DataError) as caught:
        check_weights(found, Silent())
    assert "lm_head.weight and model.embed_tokens.weight differ" in caught.value.message
    assert "'tie_word_embeddings' to false" in str(caught.value.remedy)


@pytest.mark.parametrize("change", DAMAGES, ids=lambda each: each.__name__)
def test_what_headers_tell_is_refused_with_what_is_wrong(
    checkpoint: Path, change: Callable[[Path], str]
) -> None:
    said = change(checkpoint)
    with pytest.raises(DataError) as caught:
        check_weights(read_checkpoint(checkpoint), Silent())
    assert said in caught.value.message
    assert caught.value.remedy
