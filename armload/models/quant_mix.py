"""What llama-quantize would make of a model: which type each matrix has, from the header alone.

A file type such as ``Q4_K_M`` is a mixture. The rules are those of ``src/llama-quant.cpp`` in
llama.cpp (2026-10) for dense models, without an importance matrix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from armload.core.errors import UsageError
from armload.models.blocks import FLOATS, bytes_per_row, elements_per_block
from armload.models.file_types import TENSOR_TYPES
from armload.models.header import DEFAULT_ALIGNMENT_BYTES, Header, Tensor
from armload.models.metadata import OUTPUT, Metadata
from armload.models.model import Model
from armload.models.shape import Shape
from armload.models.tensors import Matrix

MIXTURES = (
    *("F32", "F16", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_K_S", "Q4_K_M"),
    *("Q5_0", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0"),
)
"""File types whose rules are known here."""

_SMALLER_BLOCKS = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_MANY_SHARERS = 4
_LAYERS_OF_70B = 80


def check_file_type(name: str) -> str:
    """Return the file type's name in its usual spelling.

    Raises:
        UsageError: there is no such file type.
    """
    if name.upper() not in MIXTURES:
        raise UsageError(
            f"Models cannot be generated in {name!r}.", f"Available: {', '.join(MIXTURES)}."
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
    default = TENSOR_TYPES[file_type]
    if default in FLOATS:
        return default
    wanted = _wanted(shape, matrix, file_type) or default
    if matrix.columns % elements_per_block(wanted):
        wanted = _SMALLER_BLOCKS.get(wanted, wanted)
    return "F16" if matrix.columns % elements_per_block(wanted) else wanted


def _wanted(shape: Shape, matrix: Matrix, file_type: str) -> str | None:
    """Return the type for a matrix that is not of the file's usual type."""
    if matrix.role == "output" or (matrix.role == "token_embd" and shape.tied):
        return _output(matrix, TENSOR_TYPES[file_type])
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
    if _is_70b(shape) and (wanted or TENSOR_TYPES[file_type]) in ("Q3_K", "Q4_K"):
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


_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_MATRIX = re.compile(
    r"(?:blk\.(?P<layer>\d+)\.)?"
    r"(?P<role>token_embd|output|attn_[qkv]|attn_output|ffn_gate|ffn_up|ffn_down)\.weight"
)
_TYPE_SUFFIX = re.compile(r"[-_.](?:bf16|fp?16|fp?32|i?q\d_\w+)$", re.IGNORECASE)


def quantised_name(base: Path, file_type: str, *, has_importance: bool = False) -> str:
    """Return the name of the file that a model becomes: ``llama-f16.gguf``, ``llama-Q2_K.gguf``.

    Args:
        has_importance: the importance of its weights was computed first.
    """
    stem = _TYPE_SUFFIX.sub("", base.name.removesuffix(".gguf"))
    return f"{stem}-{file_type}{'-imatrix' if has_importance else ''}.gguf"


def foreseen(model: Model, header: Header, file_type: str) -> tuple[Model, Header] | None:
    """Return a model and its header as llama-quantize would write it.

    Tensors, types and sizes are exact; keys that it would add to the metadata are not counted.

    Args:
        model, header: of the base, whose weights may be missing.
        file_type: in its usual spelling, made without an importance matrix.

    Returns:
        None where the rules for that architecture or type are not known here.

    Raises:
        DataError: the header lacks a key.
    """
    matrices = _matrices(header)
    if (
        file_type not in MIXTURES
        or model.architecture not in _ARCHITECTURES
        or model.experts
        or matrices is None
    ):
        return None
    metadata = Metadata(model.path, header)
    try:
        shape = _shape(model, metadata, tied=OUTPUT not in {each.name for each in header.tensors})
    except ValidationError:  # such as a first layer without attention
        return None
    planned = _with_types(header, mixed_types(shape, matrices, file_type))
    name = quantised_name(model.path, file_type)
    later = Metadata(model.path, planned)
    return model.model_copy(
        update={
            "path": model.path.with_name(name),
            "sha256": "",
            "size_bytes": planned.file_bytes,
            "quantisation": later.quantisation,
            "bytes_per_token": later.bytes_per_token,
        }
    ), planned


def _matrices(header: Header) -> list[Matrix] | None:
    found = []
    for tensor in header.tensors:
        if len(tensor.shape) < 2:
            continue
        place = _MATRIX.fullmatch(tensor.name)
        if place is None or len(tensor.shape) > 2:
            return None
        layer = place["layer"]
        found.append(
            Matrix(
                layer=None if layer is None else int(layer),
                role=place["role"],
                columns=tensor.shape[0],
                rows=tensor.shape[1],
                deviation=0.0,
            )
        )
    return found


def _shape(model: Model, metadata: Metadata, *, tied: bool) -> Shape:
    return Shape.model_validate(
        {
            "architecture": model.architecture,
            "layers": model.layers,
            "width": metadata.number("embedding_length"),
            "feed_forward": metadata.number("feed_forward_length"),
            "heads": metadata.number("attention.head_count"),
            "kv_heads": metadata.kv_heads[0],
            "head_width": metadata.head_widths[0],
            "vocabulary": model.vocabulary,
            "context_length": model.context_length,
            "tied": tied,
        }
    )


def _with_types(header: Header, types: dict[str, str]) -> Header:
    tensors: list[Tensor] = []
    at = min((tensor.offset_bytes for tensor in header.tensors), default=0)
    for tensor in header.tensors:
        now = replace(tensor, offset_bytes=at)
        if tensor.name in types:
            type_name = types[tensor.name]
            size_bytes = tensor.shape[1] * bytes_per_row(type_name, tensor.shape[0])
            now = replace(now, type_name=type_name, size_bytes=size_bytes)
        tensors.append(now)
        at += -(-now.size_bytes // DEFAULT_ALIGNMENT_BYTES) * DEFAULT_ALIGNMENT_BYTES
    return replace(header, tensors=tuple(tensors), file_bytes=at)
