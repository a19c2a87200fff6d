"""Which type llama-quantize gives to each tensor of a model.

With an importance matrix for the types that cannot be made otherwise, without for the others. A
file type such as ``Q4_K_M`` is a mixture. Source: ``src/llama-quant.cpp`` of llama.cpp (2026-10).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from armload.models.file_types import TENSOR_TYPES, UNQUANTISED
from armload.models.header import block_of
from armload.models.metadata import EMBEDDING, OUTPUT, PER_LAYER_EMBEDDING

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
    **dict.fromkeys(("Q2_0", "TQ1_0", "TQ2_0"), "Q4_0"),
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"), "IQ4_NL"),
    **dict.fromkeys(("IQ3_S", "IQ4_XS"), "IQ4_NL"),
}
_FEWEST_BITS = frozenset(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"))
_SECOND = frozenset(("IQ2_S", "IQ2_M"))
"""Of these, those whose sensitive matrices have IQ3_S where the others' have Q2_K."""
_MANY_SHARERS = 4
_LAYERS_OF_70B = 80
_MIXTRAL_EXPERTS = 8
_MANY_EXPERTS = 4
_VALUES = ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")

_Role = Literal[
    "output", "embedding", "values", "keys", "queries", "attention output", "down", "up", "other"
]


_PARTS: Mapping[str, _Role] = {
    "attn_k.weight": "keys",
    "attn_q.weight": "queries",
    "attn_output.weight": "attention output",
    "ffn_up": "up",
    "ffn_gate": "up",
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
        file_type: in its usual spelling.
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
        self._ups: dict[str, int] = {}

    def type_of(self, name: str) -> str:
        shape = self._model.shapes[name]
        role = _role(name, is_tied=OUTPUT not in self._model.shapes)
        if role == "output":
            return self._output(shape)
        if self._file_type == "MXFP4_MOE":
            return "MXFP4" if len(shape) > 2 and shape[2] > 1 else "Q8_0"
        if role == "embedding":
            return self._embedding() or self._default
        if self._file_type in _FEWEST_BITS:
            return self._of_fewest_bits(role) or self._default
        return self._of_role(role, name) or self._default

    def _of_role(self, role: _Role, name: str) -> str | None:
        if role == "values":
            self._values += 1
            return self._value(self._values - 1)
        if role == "keys" and self._model.experts == _MIXTRAL_EXPERTS:
            return "Q8_0"
        if role in ("keys", "queries"):
            return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self._file_type)
        if role == "up":
            return self._up(name)
        if role == "down":
            self._downs += 1
            layer = _place(name)[0] if self._model.experts > 1 else self._downs - 1
            return self._down(layer)
        return self._attention_output() if role == "attention output" else None

    def _output(self, shape: tuple[int, ...]) -> str:
        if self._file_type == "MXFP4_MOE" or self._default == "Q8_0":
            return "Q8_0"
        if shape[0] % block_of(self._default)[0]:
            return "Q8_0"
        is_small = self._file_type in _FEWEST_BITS or self._file_type == "IQ3_XXS"
        return "Q5_K" if is_small else "Q6_K"

    def _embedding(self) -> str | None:
        if self._file_type in _FEWEST_BITS:
            return "IQ3_S" if self._file_type in _SECOND else "Q2_K"
        return {"IQ3_XXS": "IQ3_S", **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0"), "Q4_K")}.get(
            self._file_type
        )

    def _of_fewest_bits(self, role: _Role) -> str | None:
        model, sensitive = self._model, "IQ3_S" if self._file_type in _SECOND else "Q2_K"
        if role == "values":
            many = model.sharers >= _MANY_SHARERS or model.experts >= _MANY_EXPERTS
            return "Q4_K" if many else sensitive
        if role == "keys" and model.experts == _MIXTRAL_EXPERTS:
            return "Q4_K"
        if role == "down":
            self._downs += 1
            return sensitive if self._downs - 1 < self._model.layers // 8 else None
        if role == "attention output":
            if model.experts == _MIXTRAL_EXPERTS:
                return "Q5_K"
            if self._file_type in _SECOND:
                return "IQ3_S"
            return "IQ2_XXS" if self._file_type in ("IQ1_S", "IQ1_M") else None
        return None

    def _up(self, name: str) -> str:
        if self._file_type != "IQ3_XS":
            return self._default
        kind, layers = "gate" if "ffn_gate" in name else "up", self._model.layers
        number = self._ups.setdefault(kind, 0)
        self._ups[kind] += 1
        if self._model.experts > 1:
            number = _place(name)[0]
        return "IQ3_XXS" if layers // 8 <= number < 7 * layers // 8 else self._default

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
            "Q2_K_S": "Q4_K" if many else None,
            "IQ3_XXS": "Q4_K" if many else None,
            "IQ3_XS": "Q4_K" if many else None,
            "IQ3_S": "Q4_K" if many else None,
            "IQ3_M": "Q4_K",
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
            "Q2_K_S": "Q4_K" if is_first else None,
            "IQ3_M": "Q4_K"
            if is_first or (more and self._model.experts == _MIXTRAL_EXPERTS)
            else None,
        }.get(self._file_type)

    def _attention_output(self) -> str | None:
        if self._model.experts == _MIXTRAL_EXPERTS:
            small = ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS")
            more = ("IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M")
            return "Q5_K" if self._file_type in (*small, *more) else None
        wanted = {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}
        return (wanted | {"IQ3_XXS": "IQ3_S", "IQ3_M": "Q4_K"}).get(self._file_type)


def _needs_more_bits(number: int, count: int) -> bool:
    eighth = count // 8
    return number < eighth or number >= 7 * count // 8 or (number - eighth) % 3 == 2
