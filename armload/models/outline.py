"""What is known of a shape's model without a file: its facts and its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from armload.core.workspace import data_names
from armload.models.gguf import outline_of
from armload.models.header import DEFAULT_ALIGNMENT_BYTES, Header, Scalar, Tensor
from armload.models.model import Model
from armload.models.quant_mix import check_file_type, mixed_types
from armload.models.shape import SHAPES, Shape, check_shape, load_shape
from armload.models.tensors import constants, matrices

LISTED_TYPES = ("Q4_0", "Q4_K_M", "Q8_0")


def listed_shapes() -> Iterator[tuple[str, Shape]]:
    """Yield names and shapes of current models, the person's own among them.

    Raises:
        DataError, UsageError: a shape's file is malformed, or a model of its sizes cannot be.
    """
    for name in data_names(SHAPES):
        shape = load_shape(name)
        if shape.is_listed:
            check_shape(shape, 1)
            yield name, shape


def outline_like(name: str, shape: Shape, file_type: str) -> tuple[Model, Header]:
    """Return what the header of ``like:NAME:TYPE`` says, without its vocabulary.

    Raises:
        UsageError: the model is a mixture of experts, or there is no such type without an
            importance matrix.
    """
    file_type = check_file_type(file_type)
    planned = matrices(shape, range(0))
    types = mixed_types(shape, planned, file_type)
    sizes: list[tuple[str, tuple[int, ...], str]] = [
        (each.name, (len(each.values),), "F32") for each in constants(shape)
    ]
    sizes += [(each.name, (each.columns, each.rows), types[each.name]) for each in planned]
    tensors, at = [], 0
    for tensor_name, dimensions, type_name in sizes:
        tensor = Tensor(
            name=tensor_name,
            shape=dimensions,
            type_name=type_name,
            size_bytes=_size_bytes(dimensions, type_name),
            offset_bytes=at,
        )
        tensors.append(tensor)
        at += tensor.size_bytes
    keys: dict[str, Scalar] = {
        "block_count": shape.layers,
        "context_length": shape.context_length,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
    }
    header = Header(
        version=3,
        metadata={
            "general.architecture": shape.architecture,
            **{f"{shape.architecture}.{key}": value for key, value in keys.items()},
        },
        tensors=tuple(tensors),
        file_bytes=at,
        metadata_bytes=0,
        alignment_bytes=DEFAULT_ALIGNMENT_BYTES,
        end_bytes=at,
    )
    return outline_of(Path(f"{name}-{file_type}.gguf"), header), header


def _size_bytes(dimensions: tuple[int, ...], type_name: str) -> int:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    block_elements, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    elements = 1
    for each in dimensions:
        elements *= each
    return elements // block_elements * block_bytes
