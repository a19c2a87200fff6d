"""What is known of a published model without a file: its keys and its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from armload.core.deciding import Words
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.core.workspace import data_names
from armload.models.file_types import TENSOR_TYPES, type_meant, usual_type
from armload.models.gguf import outline_of
from armload.models.gguf_values import Array, Scalar
from armload.models.header import DEFAULT_ALIGNMENT_BYTES, Header, Tensor, tensor_bytes
from armload.models.metadata import EMBEDDING, Metadata
from armload.models.model import Model
from armload.models.projector import Projector, projector_of_header
from armload.models.quant_mix import types_of, with_types
from armload.models.shape import SHAPES, Shape, check_shape, load_shape
from armload.models.tensors import constants, matrices

OUTLINES = "outlines"
"""The folder of outline files."""

LISTED_TYPES = ("Q4_0", "Q4_K_M", "Q8_0")

Count = Annotated[int, Field(ge=1)]
Dimensions = Annotated[tuple[Count, ...], Field(min_length=1, max_length=4)]
Key = bool | int | float | Words | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...]

_16_BITS = re.compile(r"laurel|per_layer_model_proj")
"""Matrices that have 16 bits in files of every type but ``F32``."""


class LayerTensors(Value):
    """Tensors of some layers.

    Attributes:
        layers: their numbers; none for all layers.
        tensors: by the name behind ``blk.N.``.
    """

    layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    tensors: Mapping[str, Dimensions]


class ProjectorOutline(Value):
    """The header of a model's projector, as llama.cpp's converter writes it in ``F16``.

    Attributes:
        keys: without ``clip.``.
        tensors: that belong to no layer.
        layers: the others, by what their names begin with before the layer's number, such as
            ``v.blk``.
        wide: matrices that have 32 bits.
    """

    keys: Mapping[str, Key]
    tensors: Mapping[str, Dimensions]
    layers: Mapping[Literal["v.blk", "a.blk"], Mapping[str, Dimensions]]
    wide: tuple[Words, ...] = ()

    def header(self, name: str) -> Header:
        """Return the header of a model's projector, without mean and deviation of colours."""
        shapes = dict(self.tensors)
        for prefix, tensors in self.layers.items():
            modality = "vision" if prefix == "v.blk" else "audio"
            blocks = self.keys.get(f"{modality}.block_count", 0)
            for layer in range(blocks if isinstance(blocks, int) else 0):
                shapes |= {f"{prefix}.{layer}.{each}": tensors[each] for each in tensors}
        metadata = _array_keys({f"clip.{key}": value for key, value in self.keys.items()})
        types = {each: self._type(each, shapes[each]) for each in shapes}
        header = Header(
            version=3,
            metadata={"general.architecture": "clip", "general.name": name, **metadata},
            tensors=tuple(_tensor(each, shapes[each]) for each in shapes),
            file_bytes=0,
            metadata_bytes=0,
            alignment_bytes=DEFAULT_ALIGNMENT_BYTES,
            end_bytes=0,
        )
        return with_types(header, types)

    def _type(self, name: str, dimensions: tuple[int, ...]) -> str:
        is_narrow = len(dimensions) > 1 and ".weight" in name and name not in self.wide
        return "F16" if is_narrow else "F32"


class Outline(Value):
    """The header of a model without its vocabulary.

    Attributes:
        name: of the outline's file.
        description: for people.
        is_listed: ``armload fit`` without a model includes it.
        file_types: in which it is listed.
        architecture: as llama.cpp calls it.
        keys: of the GGUF header that memory and speed depend on, without the architecture's name.
        tensors: that belong to no layer, with their dimensions as in GGUF: a row's length first.
        layers: the others.
        projector: for images or sound; none of a model of text alone.
    """

    name: Words = ""
    description: Words = ""
    is_listed: bool = True
    file_types: tuple[Words, ...] = LISTED_TYPES
    architecture: Words
    keys: Mapping[str, Key]
    tensors: Mapping[str, Dimensions]
    layers: tuple[LayerTensors, ...]
    projector: ProjectorOutline | None = None

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and dimensions of every tensor."""
        yield from self.tensors.items()
        blocks = self.keys.get("block_count", 0)
        for layer in range(blocks if isinstance(blocks, int) else 0):
            for group in self.layers:
                if group.layers is None or layer in group.layers:
                    for name, dimensions in group.tensors.items():
                        yield f"blk.{layer}.{name}", dimensions


def load_outline(name: str) -> Outline:
    """Read the file ``outlines/NAME.yaml``, the person's own first."""
    from armload.core.yamlfile import load_named

    return load_named(OUTLINES, name, Outline)


def outline_called(name: str) -> Outline:
    """Return the outline of a model that has a shape or an outline of that name."""
    return load_outline(name) if is_outlined(name) else outline_of_shape(name, load_shape(name))


def is_outlined(name: str) -> bool:
    """Say whether only the header of a model is known, and none of random weights can be made."""
    return name not in data_names(SHAPES) and name in data_names(OUTLINES)


def listed_models(file_types: tuple[str, ...] = ()) -> Iterator[tuple[str, Model, Header]]:
    """Yield name, facts and header of current models, the person's own among them.

    Args:
        file_types: none for those in which each is usually taken.
    """
    for outline in (*_shaped(), *map(load_outline, data_names(OUTLINES))):
        if outline.is_listed:
            base = _base(outline)
            for file_type in file_types or outline.file_types:
                yield f"{outline.name}:{file_type}", *_in_type(outline.name, base, file_type)


def _shaped() -> Iterator[Outline]:
    for name in data_names(SHAPES):
        shape = load_shape(name)
        if shape.is_listed:
            check_shape(shape, 1)
            yield outline_of_shape(name, shape)


def outline_of_shape(name: str, shape: Shape) -> Outline:
    """Return the outline of a model of which random weights can be made."""
    shapes: dict[str, tuple[int, ...]] = {
        each.name: (len(each.values),) for each in constants(shape)
    }
    for matrix in matrices(shape, range(0)):
        experts = (matrix.experts,) if matrix.experts else ()
        shapes[matrix.name] = (matrix.columns, matrix.rows, *experts)
    keys: dict[str, Key] = {
        "block_count": shape.layers,
        "context_length": shape.context_length,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "attention.layer_norm_rms_epsilon": shape.norm_epsilon,
        "rope.dimension_count": shape.head,
    }
    if shape.experts:
        keys |= {"expert_count": shape.experts, "expert_used_count": shape.experts_used}
    return Outline(name=name, architecture=shape.architecture, keys=keys, tensors=shapes, layers=())


def outlined(outline: Outline, file_type: str) -> tuple[Model, Header]:
    """Return a model's facts and its header in a file type."""
    return _in_type(outline.name, _base(outline), file_type)


def _in_type(name: str, base: Header, file_type: str) -> tuple[Model, Header]:
    usual = usual_type(file_type)
    if usual not in TENSOR_TYPES:
        raise UsageError(
            f"There is no file type {file_type!r}.",
            f"{type_meant(file_type, TENSOR_TYPES)}Available: {', '.join(TENSOR_TYPES)}.",
        )
    path = Path(f"{name}-{usual}.gguf")
    header = with_types(base, types_of(Metadata(path, base), base, usual))
    return outline_of(path, header), header


def _base(outline: Outline) -> Header:
    shapes = dict(outline.shapes())
    keys = {f"{outline.architecture}.{key}": value for key, value in outline.keys.items()}
    if EMBEDDING in shapes:
        keys[f"{outline.architecture}.vocab_size"] = shapes[EMBEDDING][-1]
    metadata: dict[str, Scalar | Array] = {
        "general.architecture": outline.architecture,
        "tokenizer.ggml.model": "none",
    }
    metadata |= _array_keys(keys)
    tensors = tuple(_tensor(name, dimensions) for name, dimensions in shapes.items())
    return Header(
        version=3,
        metadata=metadata,
        tensors=tensors,
        file_bytes=0,
        metadata_bytes=0,
        alignment_bytes=DEFAULT_ALIGNMENT_BYTES,
        end_bytes=0,
    )


def _array_keys(keys: Mapping[str, Key]) -> dict[str, Scalar | Array]:
    return {
        key: Array(length=len(value), items=value) if isinstance(value, tuple) else value
        for key, value in keys.items()
    }


def outlined_projector(outline: Outline) -> tuple[Projector, Header] | None:
    """Return the facts and the header of a model's projector; none of a model of text alone."""
    if outline.projector is None:
        return None
    header = outline.projector.header(outline.description)
    return projector_of_header(Path(f"mmproj-{outline.name}-F16.gguf"), header), header


def _tensor(name: str, dimensions: tuple[int, ...]) -> Tensor:
    type_name = "F16" if _16_BITS.search(name) else "F32"
    return Tensor(
        name=name,
        shape=dimensions,
        type_name=type_name,
        size_bytes=tensor_bytes(type_name, dimensions),
        offset_bytes=0,
    )
