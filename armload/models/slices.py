"""A slice of a model: a few of its layers and rows of its output, with random weights.

A board computes a slice in a fraction of a token's time, with the same kernels as the model. Two
slices tell a layer's time from that of the output: one has layers of the model's shapes and types,
the other a single layer that is as thin as can be; output and engine cost both the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.models.blocks import TYPES, bytes_per_row, elements_per_block
from armload.models.find import made_file
from armload.models.header import Header, Tensor
from armload.models.metadata import EMBEDDING, OUTPUT, Metadata
from armload.models.model import Model
from armload.models.shape import SentencePieces, Shape
from armload.models.synth import synthesise_typed
from armload.models.tensors import matrices
from armload.models.vocabulary import smallest_vocabulary

LEAST_BYTES = 32 << 20
"""Of the layers, and of the output matrix: more than the caches of the CPU of a board."""

_SEED = 1
_KINDS = 3
_THIN_HEAD = 64
_THIN_FEED_FORWARD = 32
_THIN_TYPE = "Q8_0"
_ROLES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_CONTEXT = 2048


class Slice(Value):
    """A model of random weights that stands for a part of another.

    Attributes:
        shape: its sizes.
        types: of its matrices, by name.
        layer_bytes: of the weights of its layers.
        size_bytes: of all its weights.
    """

    shape: Shape
    types: dict[str, str]
    layer_bytes: int
    size_bytes: int


class Slices(Value):
    """The two slices of a model, and what each stands for.

    Attributes:
        layers: with layers of the model's shapes and types.
        thin: with one thin layer, and the same output.
        layer_bytes: that one token reads of the model's layers.
        rows: of the output matrix of both.
        vocabulary: rows of the model's own.
        is_exact: the layers have all matrices of the model's, and no other ones.
    """

    layers: Slice
    thin: Slice
    layer_bytes: int
    rows: int
    vocabulary: int
    is_exact: bool


def slices_of(model: Model, header: Header) -> Slices:
    """Plan the slices of a model.

    Raises:
        ArmloadError: none can be made; says why.
    """
    if model.unlike:
        raise ArmloadError(model.unlike)
    metadata = Metadata(model.path, header)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    output = tensors.get(OUTPUT, tensors[EMBEDDING])
    layers = _layers(header.tensors)
    if not layers:
        raise ArmloadError("its layers have no matrices that armload knows")
    counted = Counter(tuple(_types(layer).items()) for layer in layers)
    kinds = [dict(kind) for kind, _ in counted.most_common(_KINDS)]
    is_exact = all(set(layer) == set(_ROLES) for layer in layers)
    row_bytes = max(1, output.size_bytes // model.vocabulary)
    rows = max(smallest_vocabulary(), min(model.vocabulary, LEAST_BYTES // row_bytes))
    full = _shape(metadata, rows=rows, tied=OUTPUT not in tensors)
    ends = {EMBEDDING: tensors[EMBEDDING].type_name, OUTPUT: output.type_name}
    one = _slice(full.model_copy(update={"layers": len(kinds)}), kinds, ends)
    times = max(1, min(-(-LEAST_BYTES // one.layer_bytes), model.layers // len(kinds)))
    kinds *= times
    thin = {"feed_forward": _THIN_FEED_FORWARD, "heads": 1, "kv_heads": 1, "layers": 1}
    thin_shape = full.model_copy(update={**thin, "head_width": _THIN_HEAD})
    whole_slice = _slice(full.model_copy(update={"layers": len(kinds)}), kinds, ends)
    thin_slice = _slice(thin_shape, [dict.fromkeys(_ROLES, _THIN_TYPE)], ends)
    if thin_slice.layer_bytes > whole_slice.layer_bytes / 2:
        raise ArmloadError("its layers are too small to be timed")
    return Slices(
        layers=whole_slice,
        thin=thin_slice,
        layer_bytes=_layers_per_token(metadata, header),
        rows=rows,
        vocabulary=model.vocabulary,
        is_exact=is_exact,
    )


def slice_path(planned: Slice) -> Path:
    """Return where a slice's file is kept."""
    content = json.dumps([planned.shape.model_dump(), planned.types], sort_keys=True)
    return made_file(f"slice-{hashlib.sha256(content.encode()).hexdigest()[:12]}.gguf")


def slice_model(planned: Slice, progress: Progress) -> Path:
    """Return a slice's file; make it when it is missing.

    Raises:
        DiskError: the disk has no room for it.
    """
    path = slice_path(planned)
    if not path.is_file():
        synthesise_typed(planned.shape, path, types=planned.types, seed=_SEED, progress=progress)
    return path


def _layers(tensors: Sequence[Tensor]) -> list[dict[str, str]]:
    """Return the type of each matrix of each layer, by its role."""
    found: dict[int, dict[str, str]] = {}
    for tensor in tensors:
        place = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if place and len(tensor.shape) > 1:
            found.setdefault(int(place[1]), {})[place[2].removesuffix("_exps")] = tensor.type_name
    return [found[number] for number in sorted(found)]


def _types(layer: Mapping[str, str]) -> dict[str, str]:
    usual = Counter(layer.values()).most_common(1)[0][0]
    return {role: layer.get(role, usual) for role in _ROLES}


def _shape(metadata: Metadata, *, rows: int, tied: bool) -> Shape:
    used = metadata.number("expert_used_count", 0)
    inner = metadata.number("feed_forward_length", 0)
    try:
        return Shape(
            layers=1,
            width=metadata.number("embedding_length"),
            feed_forward=(
                used * metadata.number("expert_feed_forward_length", inner) if used else inner
            ),
            heads=metadata.number("attention.head_count"),
            kv_heads=metadata.kv_heads[0],
            head_width=metadata.head_widths[0],
            vocabulary=rows,
            context_length=_CONTEXT,
            tied=tied,
            tokenizer=SentencePieces(add_end=False),
        )
    except ValidationError as error:
        sizes = " and ".join(str(each["loc"][0]) for each in error.errors())
        raise ArmloadError(f"its layers have no {sizes}") from error


def _slice(shape: Shape, kinds: Sequence[Mapping[str, str]], ends: Mapping[str, str]) -> Slice:
    types: dict[str, str] = {}
    layer_bytes = size_bytes = 0
    for matrix in matrices(shape, range(shape.vocabulary)):
        wanted = ends[matrix.name] if matrix.layer is None else kinds[matrix.layer][matrix.role]
        if wanted not in TYPES:
            raise ArmloadError(f"armload cannot make random weights of type {wanted}")
        if matrix.columns % elements_per_block(wanted):
            raise ArmloadError(f"{matrix.columns} columns are no multiple of a block of {wanted}")
        types[matrix.name] = wanted
        size = matrix.rows * bytes_per_row(wanted, matrix.columns)
        size_bytes += size
        layer_bytes += size if matrix.layer is not None else 0
    return Slice(shape=shape, types=types, layer_bytes=layer_bytes, size_bytes=size_bytes)


def _layers_per_token(metadata: Metadata, header: Header) -> int:
    """Return how much of the layers one token reads: of a mixture, the experts that it uses."""
    experts, used = metadata.number("expert_count", 0), metadata.number("expert_used_count", 0)
    return sum(
        tensor.size_bytes * used // experts
        if "_exps." in tensor.name and experts
        else tensor.size_bytes
        for tensor in header.tensors
        if tensor.name.startswith("blk.")
    )
