"""Checkpoints whose matrices are quantised, as the programs of each method write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Stored = Mapping[str, tuple[str, NDArray[Any]]]
"""What is stored of a matrix, by the end of its name: the type, and the values."""

LENGTH_BYTES = 8
GROUP = 128
_ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, kw_only=True)
class Packing:
    """A way to quantise.

    Attributes:
        pack: returns what is stored of a matrix, and the matrix that this stands for.
        config: what config.json says of it.
        files: further files, which are JSON.
    """

    pack: Callable[[Floats], tuple[Stored, Floats]]
    config: Mapping[str, object]
    files: Mapping[str, object] = field(default_factory=dict)


def pack(folder: Path, packing: Packing, dense: Path | None = None) -> None:
    """Quantise the matrices of a checkpoint in 32-bit floats, except for the embedding.

    Args:
        dense: a copy of the checkpoint, which gets the values that the quantised ones stand for.
    """
    stored: dict[str, tuple[str, NDArray[Any]]] = {}
    unpacked: dict[str, tuple[str, NDArray[Any]]] = {}
    for name, values in floats(folder / "model.safetensors").items():
        if values.ndim == 1 or "embed" in name:
            stored[name] = unpacked[name] = ("F32", values)
            continue
        parts, stands_for = packing.pack(values)
        stored |= {name.removesuffix(".weight") + end: each for end, each in parts.items()}
        unpacked[name] = ("F32", stands_for.astype(np.float32))
    _write(folder / "model.safetensors", stored)
    config = json.loads((folder / "config.json").read_text())
    if packing.config:
        config["quantization_config"] = dict(packing.config)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in packing.files.items():
        (folder / name).write_text(json.dumps(content))
    if dense:
        _write(dense / "model.safetensors", unpacked)


def pack_experts(folder: Path) -> None:
    """Quantise the experts of a gpt-oss in 32-bit floats to MXFP4, as published ones are."""
    stored: dict[str, tuple[str, NDArray[Any]]] = {}
    for name, values in floats(folder / "model.safetensors").items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = ("F32", values)
            continue
        groups = values.swapaxes(1, 2).reshape(len(values), values.shape[2], -1, 32)
        exponents = np.ceil(np.log2(np.abs(groups).max(3) / E2M1[-1]))
        pairs = _nearest(groups / 2.0 ** exponents[..., None], E2M1, 8)
        stored[f"{name}_blocks"] = ("U8", pairs[..., ::2] | pairs[..., 1::2] << 4)
        stored[f"{name}_scales"] = ("U8", (exponents + 127).astype(np.uint8))
    _write(folder / "model.safetensors", stored)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    }
    path.write_text(json.dumps(config))


def floats(path: Path) -> dict[str, Floats]:
    content = path.read_bytes()
    begin = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(content[LENGTH_BYTES:begin])
    header.pop("__metadata__", None)
    assert {each["dtype"] for each in header.values()} == {"F32"}
    return {
        name: np.frombuffer(content[begin:][slice(*each["data_offsets"])], "<f4").reshape(
            each["shape"]
        )
        for name, each in header.items()
    }


def _write(path: Path, stored: Mapping[str, tuple[str, NDArray[Any]]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, values) in stored.items():
        offsets = [end, end := end + values.nbytes]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    content = b"".join(np.ascontiguousarray(values).tobytes() for _, values in stored.values())
    path.write_bytes(len(text).to_bytes(LENGTH_BYTES, "little") + text + content)


def _e4m3() -> Floats:
    """Return the values of the codes of 8-bit floats without sign, except for NaN."""
    codes = np.arange(0x7F)
    exponent, fraction = codes >> 3, codes & 7
    values = np.where(
        exponent > 0, (1 + fraction / 8) * 2.0 ** (exponent - 7), fraction / 8 * 2.0**-6
    )
    return values.astype(np.float32)


E4M3 = _e4m3()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""The values of 4-bit floats without sign."""


def _nearest(values: Floats, table: Floats, sign: int) -> NDArray[np.uint8]:
    """Return the code of the nearest of ascending values, with the bit of its sign."""
    codes = np.searchsorted((table[1:] + table[:-1]) / 2, np.abs(values))
    return (codes | np.where(values < 0, sign, 0)).astype(np.uint8)


def _valued(codes: NDArray[np.uint8], table: Floats, sign: int) -> Floats:
    values: Floats = np.where(codes & sign, -1, 1) * table[codes & (sign - 1)]
    return values.astype(np.float32)


def _widened(scale: Floats, height: int, width: int, shape: tuple[int, ...]) -> Floats:
    whole: Floats = scale.repeat(height, 0).repeat(width, 1)
    return whole[: shape[0], : shape[1]]


def _blocks_of_eight_bits(scale_name: str) -> Callable[[Floats], tuple[Stored, Floats]]:
    def apply(values: Floats) -> tuple[Stored, Floats]:
        rows, columns = (-(-each // GROUP) for each in values.shape)
        padded = np.zeros((rows * GROUP, columns * GROUP), np.float32)
        padded[: values.shape[0], : values.shape[1]] = np.abs(values)
        scale = padded.reshape(rows, GROUP, columns, GROUP).max((1, 3)) / E4M3[-1]
        wide = _widened(scale, GROUP, GROUP, values.shape)
        codes = _nearest(values / wide, E4M3, 0x80)
        stored = {".weight": ("F8_E4M3", codes), scale_name: ("F32", scale)}
        return stored, _valued(codes, E4M3, 0x80) * wide

    return apply


def _tensor_of_eight_bits(
    scale_name: str, *, others: Mapping[str, float]
) -> Callable[[Floats], tuple[Stored, Floats]]:
    def apply(values: Floats) -> tuple[Stored, Floats]:
        scale = np.float32(np.abs(values).max() / E4M3[-1])
        codes = _nearest(values / scale, E4M3, 0x80)
        stored: dict[str, tuple[str, NDArray[Any]]] = {
            ".weight": ("F8_E4M3", codes),
            scale_name: ("F32", np.array(scale)),
        }
        stored |= {end: ("F32", np.array(each, np.float32)) for end, each in others.items()}
        return stored, _valued(codes, E4M3, 0x80) * scale

    return apply


def _channels_of_eight_bits(values: Floats) -> tuple[Stored, Floats]:
    scale = np.abs(values).max(1, keepdims=True) / E4M3[-1]
    codes = _nearest(values / scale, E4M3, 0x80)
    stored = {".weight": ("F8_E4M3", codes), ".weight_scale": ("F32", scale)}
    return stored, _valued(codes, E4M3, 0x80) * scale


def _channels_of_integers(values: Floats) -> tuple[Stored, Floats]:
    scale = np.abs(values).max(1, keepdims=True) / 127
    codes = np.rint(values / scale).astype(np.int8)
    return {".weight": ("I8", codes), ".weight_scale": ("F32", scale)}, codes * scale


def _grouped(values: Floats) -> tuple[NDArray[np.uint32], Floats, Floats]:
    """Return codes of 4 bits with the middle 8, the scale of each group, and the values."""
    rows, columns = values.shape
    groups = values.reshape(rows, columns // GROUP, GROUP)
    scale = (np.abs(groups).max(2) / 7).astype(np.float16).astype(np.float32)
    codes = np.clip(np.rint(groups / scale[:, :, None]) + 8, 0, 15).astype(np.uint32)
    stands_for = (codes.astype(np.float32) - 8) * scale[:, :, None]
    return codes.reshape(rows, columns), scale, stands_for.reshape(rows, columns)


def _in_words(codes: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Put eight codes of 4 bits into each word, along the last dimension."""
    eights = codes.reshape(*codes.shape[:-1], -1, 8) << (4 * np.arange(8, dtype=np.uint32))
    words: NDArray[np.int32] = np.bitwise_or.reduce(eights, -1).astype(np.uint32).view(np.int32)
    return words


def _by_gptq(values: Floats) -> tuple[Stored, Floats]:
    codes, scale, stands_for = _grouped(values)
    zeros = np.full((scale.shape[1], scale.shape[0]), 7, np.uint32)  # one less, as GPTQ stores it
    stored: dict[str, tuple[str, NDArray[Any]]] = {
        ".qweight": ("I32", _in_words(codes).T),
        ".qzeros": ("I32", _in_words(zeros)),
        ".scales": ("F16", scale.T.astype(np.float16)),
        ".g_idx": ("I32", np.arange(values.shape[1], dtype=np.int32) // GROUP),
    }
    return stored, stands_for


def _by_awq(values: Floats) -> tuple[Stored, Floats]:
    codes, scale, stands_for = _grouped(values)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    columns = codes.T.reshape(values.shape[1], -1, 8)[:, :, order].reshape(values.shape[1], -1)
    zeros = np.full((scale.shape[1], scale.shape[0]), 8, np.uint32)
    stored: dict[str, tuple[str, NDArray[Any]]] = {
        ".qweight": ("I32", _in_words(columns)),
        ".qzeros": ("I32", _in_words(zeros)),
        ".scales": ("F16", scale.T.astype(np.float16)),
    }
    return stored, stands_for


def _by_bitsandbytes(values: Floats) -> tuple[Stored, Floats]:
    scale = np.abs(values).max(1) / 127
    codes = np.rint(values / scale[:, None]).astype(np.int8)
    stored = {".weight": ("I8", codes), ".SCB": ("F32", scale * 127)}
    return stored, codes * scale[:, None]


def _in_packed_words(values: Floats) -> tuple[Stored, Floats]:
    codes, scale, stands_for = _grouped(values)
    stored: dict[str, tuple[str, NDArray[Any]]] = {
        ".weight_packed": ("I32", _in_words(codes)),
        ".weight_scale": ("F32", scale),
        ".weight_shape": ("I64", np.array(values.shape, np.int64)),
    }
    return stored, stands_for


def _in_four_bits(*, names: tuple[str, str, str], is_inverse: bool) -> Callable[..., Any]:
    """Return what packs as NVFP4 does: a scale of 8 bits for 16 codes, and one for all."""

    def apply(values: Floats) -> tuple[Stored, Floats]:
        rows, columns = values.shape
        groups = values.reshape(rows, columns // 16, 16)
        most = np.abs(groups).max(2) / E2M1[-1]
        whole = np.float32(most.max() / E4M3[-1])
        scales = _nearest(most / whole, E4M3, 0x80)
        factor = np.maximum(E4M3[scales] * whole, 1e-12)[:, :, None]
        codes = _nearest(groups / factor, E2M1, 8)
        pairs = codes.reshape(rows, columns // 2, 2)
        stored: dict[str, tuple[str, NDArray[Any]]] = {
            names[0]: ("U8", pairs[:, :, 0] | pairs[:, :, 1] << 4),
            names[1]: ("F8_E4M3", scales),
            names[2]: ("F32", np.array([1 / whole] if is_inverse else whole, np.float32)),
        }
        return stored, (_valued(codes, E2M1, 8) * factor).reshape(rows, columns)

    return apply


def _in_three_values(values: Floats) -> tuple[Stored, Floats]:
    """Pack as BitNet does, where four rows that lie far apart share a byte."""
    scale = np.float32(np.abs(values).mean())
    codes = np.clip(np.rint(values / scale), -1, 1) + 1
    quarter = len(values) // 4
    parts = [codes[n * quarter : (n + 1) * quarter].astype(np.uint8) << 2 * n for n in range(4)]
    packed = np.bitwise_or.reduce(np.stack(parts), 0)
    stored = {".weight": ("U8", packed), ".weight_scale": ("F32", np.array([1 / scale], "<f4"))}
    return stored, (codes - 1) * scale


def _compressed(kind: str, **weights: object) -> dict[str, object]:
    scheme = {"targets": ["Linear"], "weights": {"symmetric": True, "dynamic": False} | weights}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "config_groups": {"group_0": scheme},
        "ignore": ["lm_head"],
    }


_EIGHT_FLOAT = {"num_bits": 8, "type": "float"}
_EIGHT_INT = {"num_bits": 8, "type": "int"}
_NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
_MODELOPT = {"producer": {"name": "modelopt", "version": "0.39"}}

PACKINGS: dict[str, Packing] = {
    "fp8": Packing(
        pack=_blocks_of_eight_bits(".weight_scale_inv"),
        config={
            "quant_method": "fp8",
            "weight_block_size": [GROUP, GROUP],
            "activation_scheme": "dynamic",
        },
    ),
    "fp8, a scale for all": Packing(
        pack=_tensor_of_eight_bits(".weight_scale_inv", others={".activation_scale": 1.0}),
        config={"quant_method": "fp8", "activation_scheme": "static"},
    ),
    "bitnet": Packing(
        pack=_in_three_values,
        config={
            "quant_method": "bitnet",
            "linear_class": "bitlinear",
            "quantization_mode": "offline",
        },
    ),
    "gptq": Packing(
        pack=_by_gptq,
        config={"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True},
    ),
    "compressed-tensors, float-quantized": Packing(
        pack=_channels_of_eight_bits,
        config=_compressed("float-quantized", strategy="channel", **_EIGHT_FLOAT),
    ),
    "compressed-tensors, int-quantized": Packing(
        pack=_channels_of_integers,
        config=_compressed("int-quantized", strategy="channel", **_EIGHT_INT),
    ),
    "compressed-tensors, naive-quantized": Packing(
        pack=_channels_of_eight_bits,
        config=_compressed("naive-quantized", strategy="channel", **_EIGHT_FLOAT),
    ),
    "compressed-tensors, pack-quantized": Packing(
        pack=_in_packed_words,
        config=_compressed(
            "pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP
        ),
    ),
    "compressed-tensors, nvfp4-pack-quantized": Packing(
        pack=_in_four_bits(
            names=(".weight_packed", ".weight_scale", ".weight_global_scale"), is_inverse=True
        ),
        config=_compressed("nvfp4-pack-quantized", **_NVFP4),
    ),
    "modelopt, FP8": Packing(
        pack=_tensor_of_eight_bits(".weight_scale", others={".input_scale": 1.0}),
        config={"quant_method": "modelopt", "quant_algo": "FP8"},
    ),
    "modelopt, NVFP4": Packing(
        pack=_in_four_bits(names=(".weight", ".weight_scale", ".weight_scale_2"), is_inverse=False),
        config={"quant_method": "modelopt", "quant_algo": "NVFP4"},
    ),
    "modelopt, FP8 by its own file": Packing(
        pack=_tensor_of_eight_bits(".weight_scale", others={".input_scale": 1.0}),
        config={},
        files={"hf_quant_config.json": {**_MODELOPT, "quantization": {"quant_algo": "FP8"}}},
    ),
    "awq": Packing(
        pack=_by_awq,
        config={"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True},
    ),
    "bitsandbytes": Packing(
        pack=_by_bitsandbytes, config={"quant_method": "bitsandbytes", "load_in_8bit": True}
    ),
}
