"""What a model consists of: its types, its layers, its KV cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from armload.core.values import Value
from armload.models.header import Header, Tensor
from armload.models.metadata import KV_BYTES_PER_VALUE, PER_LAYER_EMBEDDING, Metadata
from armload.models.model import Model

CACHE_TYPES: Mapping[str, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
"""Types of the KV cache: values in a block, and its bytes."""

_EMBEDDINGS = ("token_", "position_embd", "per_layer_token_embd")


class TypeShare(Value):
    """The tensors of one type.

    Attributes:
        type: such as ``Q4_K``.
        tensors: how many.
        size_bytes: of all of them.
        share: of the bytes of all tensors, 0 to 1.
    """

    type: str
    tensors: int
    size_bytes: int
    share: float


class CacheSize(Value):
    """The room that the KV cache takes.

    Attributes:
        type: that keys and values are kept in.
        bytes_per_token: that a further token takes, once the windows are full.
        context_bytes: for the longest context.
    """

    type: str
    bytes_per_token: int
    context_bytes: int


class FileSection(Value):
    """A part of the file. All sections together are the whole file.

    Attributes:
        part: what it is; ``layers`` for equal layers in a row, ``header`` for the metadata and
            the gaps between tensors.
        first_layer, last_layer: numbers of those layers, none of other parts.
        tensors: how many.
        size_bytes: of the whole section.
    """

    part: str
    first_layer: int | None = None
    last_layer: int | None = None
    tensors: int
    size_bytes: int

    @property
    def layers(self) -> int:
        if self.first_layer is None or self.last_layer is None:
            return 0
        return self.last_layer - self.first_layer + 1


class ProjectorBeside(Value):
    """A projector in a model's folder.

    Attributes:
        file: its name.
        kinds: of its encoders, as llama.cpp calls them.
        embedding_width: of what it gives.
        belongs: whether the model takes that.
    """

    file: str
    kinds: tuple[str, ...]
    embedding_width: int
    belongs: bool


class ModelSummary(Model):
    """A model file and what it consists of. Without ``sha256`` when it is cut short.

    Attributes:
        title: ``general.name``; empty when there is none.
        whole_bytes: that the file has, or would have if it were not cut short.
        missing_bytes: that it lacks at its end.
        width: of the residual stream.
        feed_forward: inner width of the feed-forward layers; 0 when the header does not say.
        heads: for queries.
        kv_heads: for keys and values, of each layer.
        experts_used: of a mixture of experts, for one token; else 0.
        tokenizer: what llama.cpp calls it, such as ``gpt2 (llama-bpe)``.
        types: most bytes first.
        cache: empty if it is unknown.
        sections: in the order of a decode step, the header first.
        notes: sentences on what these figures leave out.
        input_width: of the embeddings that it takes from a projector.
        projectors: in its folder.
    """

    title: str
    whole_bytes: int
    missing_bytes: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: tuple[int, ...]
    experts_used: int
    tokenizer: str
    types: tuple[TypeShare, ...]
    cache: tuple[CacheSize, ...]
    sections: tuple[FileSection, ...]
    notes: tuple[str, ...]
    input_width: int = 0
    projectors: tuple[ProjectorBeside, ...] = ()


def model_summary_of(model: Model, metadata: Metadata, header: Header) -> ModelSummary:
    """Return what a model consists of, as far as its header tells."""
    whole_bytes = max(header.file_bytes, header.whole_bytes)
    kind, rule = metadata.word("tokenizer.ggml.model"), metadata.word("tokenizer.ggml.pre")
    return ModelSummary(
        **dict(model),
        title=metadata.word("general.name"),
        whole_bytes=whole_bytes,
        missing_bytes=whole_bytes - header.file_bytes,
        width=metadata.number("embedding_length", 0),
        feed_forward=metadata.number("feed_forward_length", 0),
        heads=metadata.number("attention.head_count", 0),
        kv_heads=metadata.kv_heads,
        experts_used=metadata.number("expert_used_count", 0),
        tokenizer=f"{kind} ({rule})" if rule else kind,
        types=tuple(type_shares(header.tensors)),
        cache=tuple(_cache(model, metadata.head_widths)),
        sections=tuple(_sections(header.tensors, whole_bytes)),
        notes=tuple(_notes(model, header.tensors)),
        input_width=metadata.input_width,
    )


def type_shares(tensors: Sequence[Tensor]) -> Iterator[TypeShare]:
    """Yield the types of tensors, most bytes first."""
    total = sum(tensor.size_bytes for tensor in tensors)
    by_type: dict[str, list[int]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type_name, []).append(tensor.size_bytes)
    for name, sizes in sorted(by_type.items(), key=lambda item: -sum(item[1])):
        share = sum(sizes) / total if total else 0.0
        yield TypeShare(type=name, tensors=len(sizes), size_bytes=sum(sizes), share=share)


def _cache(model: Model, head_widths: tuple[int, int]) -> Iterator[CacheSize]:
    memory = model.context_memory
    if not memory.size_bytes(model.context_length) > memory.state_bytes:
        return
    for name, (block_values, block_bytes) in CACHE_TYPES.items():
        # llama.cpp refuses a type whose blocks do not divide a head.
        if all(width % block_values == 0 for width in head_widths):
            share = block_bytes / block_values / KV_BYTES_PER_VALUE
            yield CacheSize(
                type=name,
                bytes_per_token=round(memory.bytes_per_token * share),
                context_bytes=memory.size_bytes(model.context_length, kv_shares=(share, share))
                - memory.state_bytes,
            )


def _notes(model: Model, tensors: Sequence[Tensor]) -> Iterator[str]:
    memory = model.context_memory
    if not memory.is_exact:
        yield f"The KV cache of the architecture {model.architecture!r} may be larger than shown."
    if model.prediction_layers:
        yield "Bytes per token leave out the layers that predict further tokens (MTP)."
    if model.experts:
        yield "Bytes per token count only the experts that are active for a token."
    if any(tensor.name == PER_LAYER_EMBEDDING for tensor in tensors):
        yield "Bytes per token count one row of the per-layer embeddings."


def _sections(tensors: Sequence[Tensor], whole_bytes: int) -> Iterator[FileSection]:
    parts: dict[str, list[Tensor]] = {"embedding": [], "output": [], "other": []}
    layers: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        layer = re.match(r"blk\.(\d+)\.", tensor.name)
        if layer:
            layers.setdefault(int(layer[1]), []).append(tensor)
        elif tensor.name.startswith(_EMBEDDINGS):
            parts["embedding"].append(tensor)
        else:
            parts["output" if tensor.name.startswith("output") else "other"].append(tensor)
    gaps = whole_bytes - sum(tensor.size_bytes for tensor in tensors)
    yield FileSection(part="header", tensors=0, size_bytes=gaps)
    yield from _section("embedding", parts["embedding"])
    for _, run in groupby(sorted(layers.items()), key=lambda item: _build(item[1])):
        equal = list(run)
        yield FileSection(
            part="layers",
            first_layer=equal[0][0],
            last_layer=equal[-1][0],
            tensors=sum(len(tensors) for _, tensors in equal),
            size_bytes=sum(tensor.size_bytes for _, tensors in equal for tensor in tensors),
        )
    yield from _section("output", parts["output"])
    yield from _section("other", parts["other"])


def _section(part: str, tensors: Sequence[Tensor]) -> Iterator[FileSection]:
    if tensors:
        size_bytes = sum(tensor.size_bytes for tensor in tensors)
        yield FileSection(part=part, tensors=len(tensors), size_bytes=size_bytes)


def _build(tensors: Sequence[Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return what makes two layers equal."""
    return sorted(
        (tensor.name.split(".", 2)[2], tensor.type_name, tensor.shape) for tensor in tensors
    )
