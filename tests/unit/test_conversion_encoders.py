"""Which modules of sentence-transformers a file of llama.cpp has a place for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.conversion.checkpoints.checkpoint import CheckpointOutline
from armload.conversion.checkpoints.encoders import check_modules, has_dense
from armload.core.errors import DataError

GEMMA = CheckpointOutline(
    architecture="Gemma3TextModel",
    model_type="gemma3_text",
    tied=True,
    brings_code=False,
    transformers="5.24.0",
    layers=2,
)


def checkpoint(folder: Path, *kinds: str, **dense: object) -> Path:
    """Write the modules of these kinds, with settings of the dense layers."""
    modules = []
    for number, kind in enumerate(kinds):
        place = "" if kind == "Transformer" else f"{number}_{kind}"
        modules.append({"type": f"sentence_transformers.models.{kind}", "path": place})
        if kind == "Dense":
            (folder / place).mkdir()
            usual = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
            (folder / place / "config.json").write_text(json.dumps({**usual, **dense}))
            (folder / place / "model.safetensors").touch()
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


WHOLE = ("Transformer", "Pooling", "Dense", "Dense", "Normalize")


def test_two_dense_layers_of_a_gemma_are_converted(tmp_path: Path) -> None:
    check_modules(checkpoint(tmp_path, *WHOLE), GEMMA)
    assert has_dense(tmp_path)


def test_a_checkpoint_without_dense_layers_needs_none(tmp_path: Path) -> None:
    assert not has_dense(tmp_path)
    check_modules(checkpoint(tmp_path, "Transformer", "Pooling", "Normalize"), GEMMA)
    assert not has_dense(tmp_path)


@pytest.mark.parametrize(
    ("kinds", "dense", "architecture", "said"),
    [
        (WHOLE, {"bias": True}, "Gemma3TextModel", "the bias"),
        (WHOLE, {"activation_function": "torch.nn.Tanh"}, "Gemma3TextModel", "activation Tanh"),
        (WHOLE, {}, "BertModel", "2_Dense, 3_Dense of BertModel"),
        (WHOLE[:3], {}, "Gemma3TextModel", "2_Dense of Gemma3TextModel"),
        (("Transformer", "Pooling", "LayerNorm"), {}, "BertModel", "LayerNorm"),
    ],
)
def test_what_the_file_would_lack_is_refused(
    tmp_path: Path,
    kinds: tuple[str, ...],
    dense: dict[str, object],
    architecture: str,
    said: str,
) -> None:
    outline = GEMMA.model_copy(update={"architecture": architecture})
    with pytest.raises(DataError) as caught:
        check_modules(checkpoint(tmp_path, *kinds, **dense), outline)
    assert said in caught.value.message


def test_a_dense_layer_without_weights_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, *WHOLE)
    (folder / "3_Dense" / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"3_Dense.*missing"):
        check_modules(folder, GEMMA)


def test_modules_that_are_no_list_are_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text('{"type": 1}')
    with pytest.raises(DataError, match=r"modules\.json: expected a list"):
        check_modules(tmp_path, GEMMA)
