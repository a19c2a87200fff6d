"""Quantised checkpoints are refused by their configuration alone, before anything is installed.

Those are refused that the converter cannot read, and those whose file could not be compared with
them, unless that is accepted.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from armload.build.source import pinned_source
from armload.conversion.checkpoints.checkpoint import read_checkpoint_outline
from armload.conversion.checkpoints.converting import check_convertible
from armload.conversion.checkpoints.quantised import check_quantised, uncompared
from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent

pytestmark = pytest.mark.build
"""The source of the converter is asked."""

GROUP = {"group_0": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 128}}}


def folder_with(path: Path, quantised: object, *, architecture: str = "LlamaForCausalLM") -> Path:
    path.mkdir(exist_ok=True)
    config: dict[str, Any] = {"architectures": [architecture], "model_type": "llama"}
    if quantised is not None:
        config["quantization_config"] = quantised
    (path / "config.json").write_text(json.dumps(config))
    return path


REFUSED = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "quantised with AWQ"),
    ({"quant_method": "AWQ"}, "quantised with AWQ"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantised with bitsandbytes"),
    ({"load_in_8bit": True}, "quantised with bitsandbytes"),
    ({"quant_method": "hqq"}, "quantised with HQQ"),
    ({"quant_method": "aqlm"}, "quantised with AQLM"),
    ({"quant_method": "bitnet"}, "quantised with BitNet"),
    ({"quant_method": "torchao"}, "quantised with torchao"),
    ({"quant_method": "mxfp4"}, "quantised with MXFP4"),
    ({"quant_method": "auto-round"}, "quantised with auto-round"),
    (
        {"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups": GROUP},
        "quantised as marlin-24 of compressed-tensors",
    ),
    ({"quant_method": "compressed-tensors"}, "quantised as an unknown format of"),
]


@pytest.mark.parametrize("unchecked", [False, True])
@pytest.mark.parametrize(("quantised", "said"), REFUSED)
def test_what_the_converter_cannot_read_is_refused_before_it_is_installed(
    tmp_path: Path, quantised: object, said: str, *, unchecked: bool
) -> None:
    folder = folder_with(tmp_path / "c", quantised)
    with pytest.raises(UsageError, match=said) as refused:
        check_convertible(folder, "gguf", Silent(), unchecked=unchecked)
    assert "config.json" in refused.value.message
    assert "16-bit floats" in refused.value.remedy
    assert "--unchecked" not in refused.value.remedy


@pytest.mark.parametrize(
    ("quantised", "said"),
    [
        ({"quant_method": "gptq", "bits": 4}, "GPTQ"),
        ({"quant_method": "modelopt"}, "ModelOpt"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "compressed-tensors"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "compressed-tensors"),
        (
            {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
            "compressed-tensors",
        ),
    ],
)
def test_what_could_not_be_compared_is_refused_unless_that_is_accepted(
    tmp_path: Path, quantised: object, said: str
) -> None:
    folder = folder_with(tmp_path / "c", quantised)
    with pytest.raises(UsageError, match=f"could not be checked: .*{said}") as refused:
        check_convertible(folder, "gguf", Silent(), unchecked=False)
    assert "config.json" in refused.value.message
    assert "--unchecked" in refused.value.remedy
    outline, source = read_checkpoint_outline(folder), pinned_source().provide(Silent())
    check_quantised(folder, outline, "gguf", source, unchecked=True)
    assert said in uncompared(folder)


@pytest.mark.parametrize(
    ("quantised", "architecture"),
    [
        (None, "LlamaForCausalLM"),
        ({}, "LlamaForCausalLM"),
        ("nonsense", "LlamaForCausalLM"),
        ({"quant_method": None}, "LlamaForCausalLM"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "LlamaForCausalLM"),
        ({"quant_method": "mxfp4"}, "GptOssForCausalLM"),
    ],
)
def test_what_the_converter_reads_and_can_be_compared_is_left_to_it(
    tmp_path: Path, quantised: object, architecture: str
) -> None:
    folder = folder_with(tmp_path / "c", quantised, architecture=architecture)
    outline, source = read_checkpoint_outline(folder), pinned_source().provide(Silent())
    check_quantised(folder, outline, "gguf", source, unchecked=False)
    assert not uncompared(folder)


def test_the_mnn_exporter_reads_none(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "c", {"quant_method": "fp8"})
    outline, source = read_checkpoint_outline(folder), pinned_source().provide(Silent())
    with pytest.raises(UsageError, match="with FP8, which the MNN exporter cannot read"):
        check_quantised(folder, outline, "mnn", source, unchecked=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [("quantize_config.json", "GPTQ"), ("hf_quant_config.json", "ModelOpt")],
)
def test_a_file_of_its_own_names_the_method_and_a_readme_the_base(
    tmp_path: Path, name: str, said: str
) -> None:
    folder = folder_with(tmp_path / "c", None)
    (folder / name).write_text('{"bits": 4}')
    (folder / "README.md").write_text("---\nbase_model:\n- Qwen/Qwen2.5-0.5B\n---\n")
    with pytest.raises(UsageError, match=rf"{re.escape(name)}: .*{said}") as refused:
        check_convertible(folder, "gguf", Silent(), unchecked=False)
    assert "(Qwen/Qwen2.5-0.5B)" in refused.value.remedy
    (folder / name).write_text("[")
    with pytest.raises(DataError):
        check_convertible(folder, "gguf", Silent(), unchecked=False)


def test_a_nested_configuration_counts(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "c", None)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] = {"quantization_config": {"quant_method": "awq"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="AWQ"):
        check_convertible(folder, "gguf", Silent(), unchecked=False)
