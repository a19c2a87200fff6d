"""What llama-quantize would make of a model, from the model's header alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from armload.models.blocks import bytes_per_row
from armload.models.header import DEFAULT_ALIGNMENT_BYTES, Header, Tensor
from armload.models.metadata import OUTPUT, Metadata
from armload.models.mix import FILE_TYPES, mixed_types
from armload.models.model import Model
from armload.models.shape import Shape
from armload.models.tensors import Matrix

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
        file_type not in FILE_TYPES
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
