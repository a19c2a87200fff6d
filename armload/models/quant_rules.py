"""Which type llama-quantize gives to each tensor of a model, without an importance matrix.

A file type such as ``Q4_K_M`` is a mixture. Source: ``src/llama-quant.cpp`` of llama.cpp (2026-10).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from armload.models.file_types import TENSOR_TYPES, UNQUANTISED
from armload.models.header import block_of
from armload.models.metadata import EMBEDDING, OUTPUT, PER_LAYER_EMBEDDING

FILE_TYPES = (
    *("F32", "F16", "BF16", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_1"),
    *("Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS", "Q5_0", "Q5_1", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0"),
    "MXFP4_MOE",
)
"""File types whose rules are known here."""

OTHER_RULES = frozenset({"falcon", "glm5-next"})
"""Architectures that llama-quantize treats in a way of their own."""

_KEPT = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|ffn_gate_tid2eid\.weight|altup|laurel|per_layer_model_proj"
    r"|ssm_conv1d|shortconv\.conv\.weight|indexer\.[kq]_proj\.weight|attn_rel_b\.weight"
    r"|time_mix_(?:first|w[012]|v[012]|a[012]|g[12]|decay_w[12]|lerp_fused)\.weight"
    r"|position_embd|token_types|\.rel_pos|\.patch_(?:embd|merger)|sam\.(?:pos_embd|neck\.|net_)"
    r"|a\.rvq\.codebook|mm\.a\.code_embd"
)
"""Small or sensitive matrices, which keep the type that they have."""

_SMALLER_BLOCKS = {
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "IQ4_XS": "IQ4_NL",
}
_MANY_SHARERS = 4
_LAYERS_OF_70B = 80
_MIXTRAL_EXPERTS = 8
_VALUES = ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")

_Role = Literal["output", "embedding", "values", "keys", "attention output", "down", "other"]


_PARTS: Mapping[str, _Role] = {
    "attn_k.weight": "keys",
    "attn_q.weight": "other",
    "attn_output.weight": "attention output",
    "ffn_up": "other",
    "ffn_gate": "other",
    "ffn_down": "down",
}


@dataclass(frozen=True, kw_only=True)
class MixedModel:
    """What of a model decides the types of its tensors.

    Attributes:
        layers: blocks, with those that predict further tokens.
        heads, kv_heads: of the first layer.
        experts: of a mixture of experts; else 0.
        shapes: of all tensors, by name.
    """

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    experts: int
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def sharers(self) -> int:
        """Heads that share keys and values."""
        return self.heads // self.kv_heads if self.kv_heads else 0

    def changes(self, name: str) -> bool:
        """Say whether llama-quantize changes a tensor's type."""
        is_matrix = any(size > 1 for size in self.shapes[name][1:])
        return is_matrix and name.endswith("weight") and not _KEPT.search(name)

    @property
    def is_70b(self) -> bool:
        """Say whether llama.cpp takes it for one of 70B, whose values are few and sensitive."""
        shares = self.architecture == "llama" and self.heads != self.kv_heads
        return self.layers == _LAYERS_OF_70B and (
            shares or self.architecture in ("qwen2", "deci", "olmo")
        )


def quantised_types(model: MixedModel, file_type: str) -> dict[str, str]:
    """Return the types of the tensors that llama-quantize changes, by name.

    Args:
        file_type: one of ``FILE_TYPES``.
    """
    names = sorted(filter(model.changes, model.shapes), key=_place)
    default = TENSOR_TYPES[file_type]
    if default in UNQUANTISED:
        return dict.fromkeys(names, default)
    mix = _Mix(model, file_type)
    return {name: _fitting(mix.type_of(name), model.shapes[name]) for name in names}


def _place(name: str) -> tuple[int, str]:
    layer = re.match(r"blk\.(\d+)\.", name)
    return (int(layer[1]) if layer else -1, name)


def _fitting(wanted: str, shape: tuple[int, ...]) -> str:
    if shape[0] % block_of(wanted)[0]:
        wanted = _SMALLER_BLOCKS.get(wanted, wanted)
    return "F16" if shape[0] % block_of(wanted)[0] else wanted


def _role(name: str, *, is_tied: bool) -> _Role:
    if name == OUTPUT:
        return "output"
    if name in (EMBEDDING, PER_LAYER_EMBEDDING):
        return "output" if is_tied else "embedding"
    if any(each in name for each in _VALUES):
        return "values"
    for part, role in _PARTS.items():
        if part in name:
            return role
    return "other"


class _Mix:
    """The types of a model's tensors, asked for in llama-quantize's order, which counts."""

    def __init__(self, model: MixedModel, file_type: str) -> None:
        self._model = model
        self._file_type = file_type
        self._default = TENSOR_TYPES[file_type]
        self._all_values = sum(any(each in name for each in _VALUES) for name in model.shapes)
        self._values = self._downs = 0

    def type_of(self, name: str) -> str:
        shape = self._model.shapes[name]
        role = _role(name, is_tied=OUTPUT not in self._model.shapes)
        if role == "output":
            return self._output(shape)
        if self._file_type == "MXFP4_MOE":
            return "MXFP4" if len(shape) > 2 and shape[2] > 1 else "Q8_0"
        if role == "values":
            self._values += 1
            return self._value(self._values - 1)
        if role == "keys" and self._model.experts == _MIXTRAL_EXPERTS:
            return "Q8_0"
        if role == "down":
            self._downs += 1
            layer = _place(name)[0] if self._model.experts > 1 else self._downs - 1
            return self._down(layer) or self._default
        if role == "attention output":
            return self._attention_output() or self._default
        return self._default

    def _output(self, shape: tuple[int, ...]) -> str:
        if self._file_type == "MXFP4_MOE" or self._default == "Q8_0":
            return "Q8_0"
        return "Q8_0" if shape[0] % block_of(self._default)[0] else "Q6_K"

    def _value(self, number: int) -> str:
        more = _needs_more_bits(number, self._all_values)
        many = self._model.sharers >= _MANY_SHARERS
        wanted = {
            "Q2_K": "Q4_K" if many else "Q3_K",
            "Q3_K_M": "Q5_K" if number < 2 else "Q4_K",
            "Q3_K_L": "Q5_K",
            "Q4_K_S": "Q5_K" if number < 4 else None,
            "Q4_K_M": "Q6_K" if more else None,
            "Q5_K_M": "Q6_K" if more else None,
            "IQ4_NL": "Q5_K" if many else None,
            "IQ4_XS": "Q5_K" if many else None,
        }.get(self._file_type) or self._default
        if self._model.is_70b and wanted in ("Q3_K", "Q4_K"):
            wanted = "Q5_K"
        return "Q8_0" if self._model.experts == _MIXTRAL_EXPERTS else wanted

    def _down(self, layer: int) -> str | None:
        layers = self._model.layers
        more, is_first = _needs_more_bits(layer, layers), layer < layers // 8
        return {
            "Q2_K": "Q3_K",
            "Q3_K_M": "Q5_K" if layer < layers // 16 else "Q4_K",
            "Q3_K_L": "Q5_K",
            "Q4_K_S": "Q5_K" if is_first else None,
            "Q4_K_M": "Q6_K" if more else None,
            "Q5_K_M": "Q6_K" if more else None,
            "IQ4_NL": "Q5_K" if is_first else None,
            "IQ4_XS": "Q5_K" if is_first else None,
        }.get(self._file_type)

    def _attention_output(self) -> str | None:
        if self._model.experts == _MIXTRAL_EXPERTS:
            small = ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS")
            return "Q5_K" if self._file_type in small else None
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(self._file_type)


def _needs_more_bits(number: int, count: int) -> bool:
    eighth = count // 8
    return number < eighth or number >= 7 * count // 8 or (number - eighth) % 3 == 2
