"""What a model consists of: its types, its layers, its KV cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from armload.core.values import Value
from armload.models.header import Header, Tensor
from armload.models.metadata import Metadata
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
        bytes_per_token: of all layers.
        context_bytes: for the longest context.
    """

    type: str
    bytes_per_token: int
    context_bytes: int


class Section(Value):
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
        """Number of layers."""
        if self.first_layer is None or self.last_layer is None:
            return 0
        return self.last_layer - self.first_layer + 1


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
        sliding_window: tokens that some layers look back at most; 0 when all look back to the
            start.
        tokenizer: what llama.cpp calls it, such as ``gpt2 (llama-bpe)``.
        types: most bytes first.
        cache: empty if it is unknown.
        sections: in the order of a decode step, the header first.
        notes: sentences on what these figures leave out.
    """

    title: str
    whole_bytes: int
    missing_bytes: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: tuple[int, ...]
    experts_used: int
    sliding_window: int
    tokenizer: str
    types: tuple[TypeShare, ...]
    cache: tuple[CacheSize, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


def anatomy_of(model: Model, metadata: Metadata, header: Header) -> ModelSummary:
    """Return what a model consists of, as far as its header tells.

    Raises:
        DataError: the header has nonsense for a key.
    """
    whole_bytes = max(header.file_bytes, header.whole_bytes)
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
        sliding_window=metadata.number("attention.sliding_window", 0),
        tokenizer=_tokenizer(metadata),
        types=tuple(_types(header.tensors)),
        cache=tuple(_cache(model, metadata)),
        sections=tuple(_sections(header.tensors, whole_bytes)),
        notes=tuple(_notes(metadata)),
    )


def _tokenizer(metadata: Metadata) -> str:
    kind, rule = metadata.word("tokenizer.ggml.model"), metadata.word("tokenizer.ggml.pre")
    return f"{kind} ({rule})" if rule else kind


def _types(tensors: Sequence[Tensor]) -> Iterator[TypeShare]:
    total = sum(tensor.size_bytes for tensor in tensors)
    by_type: dict[str, list[int]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type_name, []).append(tensor.size_bytes)
    for name, sizes in sorted(by_type.items(), key=lambda item: -sum(item[1])):
        share = sum(sizes) / total if total else 0.0
        yield TypeShare(type=name, tensors=len(sizes), size_bytes=sum(sizes), share=share)


def _has_latent_attention(metadata: Metadata) -> bool:
    return metadata.has("attention.kv_lora_rank")


def _cache(model: Model, metadata: Metadata) -> Iterator[CacheSize]:
    values = sum(metadata.kv_heads) * sum(metadata.head_widths)
    if not values or _has_latent_attention(metadata):
        return
    for name, (block_values, block_bytes) in CACHE_TYPES.items():
        # llama.cpp refuses a type whose blocks do not divide a head.
        if all(width % block_values == 0 for width in metadata.head_widths):
            per_token = values // block_values * block_bytes
            yield CacheSize(
                type=name,
                bytes_per_token=per_token,
                context_bytes=per_token * model.context_length,
            )


def _notes(metadata: Metadata) -> Iterator[str]:
    if _has_latent_attention(metadata):
        yield "The size of the KV cache of latent attention (MLA) is not computed."
    window = metadata.number("attention.sliding_window", 0)
    if window and not _has_latent_attention(metadata):
        yield (
            f"Some layers use a sliding window of {window:,} tokens: a long context takes less "
            "KV cache than this."
        )
    if metadata.has("ssm.state_size"):
        yield "The fixed-size state of the recurrent layers is not counted."
    if metadata.number("expert_count", 0):
        yield "Bytes per token count only the experts that are active for a token."


def _sections(tensors: Sequence[Tensor], whole_bytes: int) -> Iterator[Section]:
    parts: dict[str, list[Tensor]] = {"embedding": [], "output": [], "other": []}
    layers: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        layer = re.match(r"blk\.(\d+)\.", tensor.name)
        if layer:
            layers.setdefault(int(layer[1]), []).append(tensor)
        else:
            parts[_part(tensor.name)].append(tensor)
    gaps = whole_bytes - sum(tensor.size_bytes for tensor in tensors)
    yield Section(part="header", tensors=0, size_bytes=gaps)
    yield from _section("embedding", parts["embedding"])
    yield from _runs(layers)
    yield from _section("output", parts["output"])
    yield from _section("other", parts["other"])


def _part(name: str) -> str:
    if name.startswith(_EMBEDDINGS):
        return "embedding"
    return "output" if name.startswith("output") else "other"


def _section(part: str, tensors: Sequence[Tensor]) -> Iterator[Section]:
    if tensors:
        size_bytes = sum(tensor.size_bytes for tensor in tensors)
        yield Section(part=part, tensors=len(tensors), size_bytes=size_bytes)


def _runs(layers: Mapping[int, Sequence[Tensor]]) -> Iterator[Section]:
    for _, run in groupby(sorted(layers.items()), key=lambda item: _build(item[1])):
        equal = list(run)
        yield Section(
            part="layers",
            first_layer=equal[0][0],
            last_layer=equal[-1][0],
            tensors=sum(len(tensors) for _, tensors in equal),
            size_bytes=sum(tensor.size_bytes for _, tensors in equal for tensor in tensors),
        )


def _build(tensors: Sequence[Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return what makes two layers equal."""
    return sorted(
        (tensor.name.split(".", 2)[2], tensor.type_name, tensor.shape) for tensor in tensors
    )
