"""Which type llama-quantize gives to which matrix.

A file type such as ``Q4_K_M`` is a mixture. The rules are those of ``src/llama-quant.cpp`` in
llama.cpp (2026-10) for dense models, without an importance matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armload.core.errors import UsageError
from armload.models.blocks import FLOATS, elements_per_block
from armload.models.shape import Shape
from armload.models.tensors import Matrix

FILE_TYPES: Mapping[str, str] = {
    "F32": "F32",
    "F16": "F16",
    "Q2_K": "Q2_K",
    "Q3_K_S": "Q3_K",
    "Q3_K_M": "Q3_K",
    "Q3_K_L": "Q3_K",
    "Q4_0": "Q4_0",
    "Q4_K_S": "Q4_K",
    "Q4_K_M": "Q4_K",
    "Q5_0": "Q5_0",
    "Q5_K_S": "Q5_K",
    "Q5_K_M": "Q5_K",
    "Q6_K": "Q6_K",
    "Q8_0": "Q8_0",
}
"""File types, each with the tensor type of most matrices."""

_SMALLER_BLOCKS = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_MANY_SHARERS = 4
_LAYERS_OF_70B = 80


def check_file_type(name: str) -> str:
    """Return the file type's name in its usual spelling.

    Raises:
        UsageError: there is no such file type.
    """
    if name.upper() not in FILE_TYPES:
        raise UsageError(
            f"Models cannot be generated in {name!r}.", f"Available: {', '.join(FILE_TYPES)}."
        )
    return name.upper()


def mixed_types(shape: Shape, matrices: Sequence[Matrix], file_type: str) -> dict[str, str]:
    """Return the tensor type of each matrix in a file of that type, by the matrix's name.

    Raises:
        UsageError: the model is a mixture of experts.
    """
    if shape.experts:
        raise UsageError(
            f"Cannot generate a model like {shape.name or 'this'}: how llama-quantize treats "
            "mixtures of experts is not known here.",
            "Use a shape without experts.",
        )
    return {matrix.name: _type(shape, matrix, file_type) for matrix in matrices}


def _type(shape: Shape, matrix: Matrix, file_type: str) -> str:
    default = FILE_TYPES[file_type]
    if default in FLOATS:
        return default
    wanted = _wanted(shape, matrix, file_type) or default
    if matrix.columns % elements_per_block(wanted):
        wanted = _SMALLER_BLOCKS.get(wanted, wanted)
    return "F16" if matrix.columns % elements_per_block(wanted) else wanted


def _wanted(shape: Shape, matrix: Matrix, file_type: str) -> str | None:
    """Return the type for a matrix that is not of the file's usual type."""
    if matrix.role == "output" or (matrix.role == "token_embd" and shape.tied):
        return _output(matrix, FILE_TYPES[file_type])
    if matrix.layer is None:
        return None
    if matrix.role == "attn_v":
        return _values(shape, matrix.layer, file_type)
    if matrix.role == "ffn_down":
        return _feed_forward_down(shape, matrix.layer, file_type)
    if matrix.role == "attn_output":
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(file_type)
    return None


def _output(matrix: Matrix, default: str) -> str:
    if default == "Q8_0" or matrix.columns % elements_per_block(default):
        return "Q8_0"
    return "Q6_K"


def _values(shape: Shape, layer: int, file_type: str) -> str | None:
    wanted = {
        "Q2_K": "Q4_K" if shape.heads // shape.kv_heads >= _MANY_SHARERS else "Q3_K",
        "Q3_K_M": "Q5_K" if layer < 2 else "Q4_K",
        "Q3_K_L": "Q5_K",
        "Q4_K_S": "Q5_K" if layer < 4 else None,
        "Q4_K_M": "Q6_K" if _is_sensitive(shape, layer) else None,
        "Q5_K_M": "Q6_K" if _is_sensitive(shape, layer) else None,
    }.get(file_type)
    if _is_70b(shape) and (wanted or FILE_TYPES[file_type]) in ("Q3_K", "Q4_K"):
        return "Q5_K"
    return wanted


def _feed_forward_down(shape: Shape, layer: int, file_type: str) -> str | None:
    return {
        "Q2_K": "Q3_K",
        "Q3_K_M": "Q5_K" if layer < shape.layers // 16 else "Q4_K",
        "Q3_K_L": "Q5_K",
        "Q4_K_S": "Q5_K" if layer < shape.layers // 8 else None,
        "Q4_K_M": "Q6_K" if _is_sensitive(shape, layer) else None,
        "Q5_K_M": "Q6_K" if _is_sensitive(shape, layer) else None,
    }.get(file_type)


def _is_sensitive(shape: Shape, layer: int) -> bool:
    eighth = shape.layers // 8
    return layer < eighth or layer >= 7 * shape.layers // 8 or (layer - eighth) % 3 == 2


def _is_70b(shape: Shape) -> bool:
    shares = shape.architecture == "qwen2" or shape.heads != shape.kv_heads
    return shape.layers == _LAYERS_OF_70B and shape.architecture != "qwen3" and shares
