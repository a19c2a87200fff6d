"""What llama-quantize would make of a model: which type each tensor has, from the header alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from armload.core.errors import UsageError
from armload.models.file_types import needs_importance, type_meant, usual_type
from armload.models.header import DEFAULT_ALIGNMENT_BYTES, Header, Tensor, tensor_bytes
from armload.models.metadata import Metadata
from armload.models.model import Model
from armload.models.quant_rules import OTHER_RULES, MixedModel, quantised_types
from armload.models.shape import Shape
from armload.models.tensors import Matrix

MIXTURES = (
    *("F32", "F16", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_K_S", "Q4_K_M"),
    *("Q5_0", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0"),
)
"""File types in which models are generated."""


def check_file_type(name: str) -> str:
    """Return the file type's name in its usual spelling."""
    usual = usual_type(name)
    if usual not in MIXTURES:
        raise UsageError(
            f"Models cannot be generated in {name!r}.",
            f"{type_meant(name, MIXTURES)}Available: {', '.join(MIXTURES)}.",
        )
    return usual


def mixed_types(shape: Shape, matrices: Sequence[Matrix], file_type: str) -> dict[str, str]:
    """Return the tensor type of each matrix in a file of that type, by the matrix's name."""
    shapes = {
        each.name: (each.columns, each.rows, *([each.experts] if each.experts else []))
        for each in matrices
    }
    mixed = MixedModel(
        architecture=shape.architecture,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        experts=shape.experts,
        shapes=shapes,
    )
    return dict.fromkeys(shapes, "F32") | quantised_types(mixed, file_type)


_TYPE_SUFFIX = re.compile(r"[-_.](?:bf16|fp?16|fp?32|i?q\d_\w+)$", re.IGNORECASE)


def quantised_name(base: Path, file_type: str, *, has_importance: bool = False) -> str:
    """Return the name of the file that a model becomes: ``llama-f16.gguf``, ``llama-Q2_K.gguf``.

    Args:
        has_importance: the importance of its weights was computed first.
    """
    stem = _TYPE_SUFFIX.sub("", base.name.removesuffix(".gguf"))
    return f"{stem}-{file_type}{'-imatrix' if has_importance else ''}.gguf"


def predict_quantised(model: Model, header: Header, file_type: str) -> tuple[Model, Header] | None:
    """Return a model and its header as llama-quantize would write it.

    Tensors, types and sizes are exact; keys that it would add to the metadata are not counted.

    Args:
        model, header: of the base, whose weights may be missing.
        file_type: in its usual spelling, made without an importance matrix.

    Returns:
        None where the rules for that architecture are not known here, or the type needs an
        importance matrix.
    """
    if needs_importance(file_type) or model.architecture in OTHER_RULES:
        return None
    planned = with_types(header, types_of(Metadata(model.path, header), header, file_type))
    later = Metadata(model.path, planned)
    return model.model_copy(
        update={
            "path": model.path.with_name(quantised_name(model.path, file_type)),
            "sha256": "",
            "size_bytes": planned.file_bytes,
            "quantisation": later.quantisation,
            "bytes_per_token": later.bytes_per_token,
            "matrix_bytes": later.matrix_bytes,
        }
    ), planned


def types_of(metadata: Metadata, header: Header, file_type: str) -> dict[str, str]:
    """Return the types that the tensors of a model would have in a file of a type."""
    mixed = MixedModel(
        architecture=metadata.architecture,
        layers=metadata.layers,
        heads=metadata.number("attention.head_count", 0),
        kv_heads=metadata.kv_heads[0],
        experts=metadata.number("expert_count", 0),
        shapes={tensor.name: tensor.shape for tensor in header.tensors},
    )
    return quantised_types(mixed, file_type)


def with_types(header: Header, types: Mapping[str, str]) -> Header:
    """Return a header whose tensors have other types, with their sizes and places."""
    tensors: list[Tensor] = []
    at = min((tensor.offset_bytes for tensor in header.tensors), default=0)
    for tensor in header.tensors:
        type_name = types.get(tensor.name, tensor.type_name)
        now = replace(
            tensor,
            type_name=type_name,
            size_bytes=tensor_bytes(type_name, tensor.shape),
            offset_bytes=at,
        )
        tensors.append(now)
        at += -(-now.size_bytes // DEFAULT_ALIGNMENT_BYTES) * DEFAULT_ALIGNMENT_BYTES
    return replace(header, tensors=tuple(tensors), file_bytes=at, end_bytes=at)
