"""What an image or a sound asks of a board before the first token: its encoder's work and memory.

The work follows from the projector's header. It equals the products of llama.cpp's own graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

from armload.core.pictures import Picture
from armload.core.sounds import Sound
from armload.core.values import Value
from armload.models.header import Header, Tensor
from armload.models.image_tokens import (
    EncoderPass,
    ImageSize,
    MediaTokens,
    audio_tokens,
    image_tokens,
)
from armload.models.projector import Encoder, Projector

FLOAT_BYTES, HALF_BYTES = 4, 2
CHANNELS = 3
SOUND_S = 20.0
"""Of the sound that is assumed for a projector without a vision encoder."""

_WITH_MASK = frozenset({"qwen2.5vl_merger"})
"""Kinds whose attention has windows: llama.cpp computes all of it, under a mask of 16 bits."""


class MediaNeed(Value):
    """What a run with an image, or a sound, needs besides the model.

    Attributes:
        what: such as ``image of 1024x768``, or several of them.
        projector: the name of its file.
        tokens: with which it stands in the context.
        passes: of the encoder.
        parts: into which llama.cpp cuts it, by their size.
        weights_bytes: of the projector, all of which stay in memory.
        buffer_bytes: of the encoder's graph, and of the image's parts.
        graph_bytes: of these, those of the graph.
        products: multiplications with weights, by the weights' type.
        attention: multiplications of attention.
    """

    what: str
    projector: str
    tokens: int
    passes: int
    parts: tuple[EncoderPass, ...] = ()
    weights_bytes: int
    buffer_bytes: int
    graph_bytes: int = 0
    products: Mapping[str, float]
    attention: float

    def __add__(self, other: MediaNeed) -> MediaNeed:
        """Return what both need in one prompt; each is prepared before the first is encoded."""
        parts: dict[tuple[int, int], EncoderPass] = {}
        for each in (*self.parts, *other.parts):
            before = parts.get((each.width, each.height))
            count = each.count + (before.count if before else 0)
            parts[each.width, each.height] = each.model_copy(update={"count": count})
        graph_bytes = max(self.graph_bytes, other.graph_bytes)
        prepared = [each.buffer_bytes - each.graph_bytes for each in (self, other)]
        return MediaNeed(
            what=f"{self.what} and {other.what}",
            projector=self.projector,
            tokens=self.tokens + other.tokens,
            passes=self.passes + other.passes,
            parts=tuple(parts.values()),
            weights_bytes=self.weights_bytes,
            buffer_bytes=graph_bytes + sum(prepared),
            graph_bytes=graph_bytes,
            products={
                name: self.products.get(name, 0.0) + other.products.get(name, 0.0)
                for name in dict.fromkeys((*self.products, *other.products))
            },
            attention=self.attention + other.attention,
        )

    def with_graph(self, size_bytes: int) -> MediaNeed:
        """Return the same with what llama.cpp itself would allocate for the encoder's graph."""
        others = self.buffer_bytes - self.graph_bytes
        return self.model_copy(
            update={"buffer_bytes": others + size_bytes, "graph_bytes": size_bytes}
        )

    @property
    def called(self) -> str:
        """It with its article."""
        return f"{'an' if self.sees else 'a'} {self.what}"

    @property
    def sees(self) -> bool:
        """Whether it is an image."""
        return self.what.startswith("image")


def media_need(projector: Projector, header: Header, size: ImageSize) -> MediaNeed | None:
    """Return what an image of a size needs, or a sound where there is no vision encoder.

    None is returned for kinds of which it is not known how llama.cpp cuts an image.
    """
    if projector.encoder("vision") is None:
        return _sound_need(projector, header, SOUND_S)
    return _image_need(projector, header, size)


def need_of_media(
    projector: Projector,
    header: Header,
    media: Sequence[Picture | Sound],
    most_tokens: int | None = None,
) -> MediaNeed | None:
    """Return what images and sounds need in one prompt; none of a kind as for ``media_need``.

    Args:
        media: at least one.
        most_tokens: of one image, where that is chosen.
    """
    needs = [
        _sound_need(projector, header, each.seconds)
        if isinstance(each, Sound)
        else _image_need(projector, header, ImageSize(each.width, each.height), most_tokens)
        for each in media
    ]
    known = [each for each in needs if each is not None]
    return reduce(add, known) if len(known) == len(needs) else None


def _image_need(
    projector: Projector, header: Header, size: ImageSize, most_tokens: int | None = None
) -> MediaNeed | None:
    encoder, found = projector.encoder("vision"), image_tokens(projector, size, most_tokens)
    if encoder is None or found is None:
        return None
    return _need(projector, header, encoder, found, f"image of {size}", CHANNELS * size.area)


def _sound_need(projector: Projector, header: Header, seconds: float) -> MediaNeed | None:
    encoder, found = projector.encoder("audio"), audio_tokens(projector, seconds)
    if encoder is None or found is None:
        return None
    return _need(projector, header, encoder, found, f"sound of {seconds:.0f} s", 0)


def _need(
    projector: Projector,
    header: Header,
    encoder: Encoder,
    found: MediaTokens,
    what: str,
    pixels_bytes: int,
) -> MediaNeed:
    products: Counter[str] = Counter()
    for tensor in header.tensors:
        products[tensor.type_name] += tensor.elements * _times(tensor, encoder, found)
    buffers = max(_graph_bytes(encoder, each) for each in found.passes)
    return MediaNeed(
        what=what,
        projector=projector.path.name,
        tokens=found.tokens,
        passes=sum(each.count for each in found.passes),
        parts=found.passes,
        weights_bytes=projector.weights_bytes,
        buffer_bytes=buffers + _parts_bytes(projector, encoder, found) + pixels_bytes,
        graph_bytes=buffers,
        products={name: float(count) for name, count in products.items() if count},
        attention=float(
            sum(
                2 * each.count * each.positions**2 * encoder.width * encoder.layers
                for each in found.passes
            )
        ),
    )


def _times(tensor: Tensor, encoder: Encoder, found: MediaTokens) -> int:
    """Return how many vectors a tensor is multiplied with."""
    letter = encoder.modality[0]
    is_own = tensor.name.startswith((f"{letter}.", "mm.a." if letter == "a" else "mm."))
    is_other = letter == "v" and tensor.name.startswith("mm.a.")
    is_matrix = len(tensor.shape) > 1 and ".bias" not in tensor.name
    if not (is_own and is_matrix) or is_other or "position_embd" in tensor.name:
        return 0
    if tensor.name.startswith(("mm.", "v.deepstack.")):
        return sum(each.count * each.tokens for each in found.passes)
    halves = 2 if tensor.name.startswith("a.conv1d.1.") else 1  # the second one halves the frames
    return found.positions * halves


def _graph_bytes(encoder: Encoder, part: EncoderPass) -> int:
    """Return what llama.cpp takes for the graph of one pass.

    Most is alive at once in a feed-forward layer, or where queries, keys and values are.
    """
    width, inner, pixels = encoder.width, encoder.feed_forward, CHANNELS * encoder.patch_size**2
    values = 3 * width + inner
    if encoder.kind in _WITH_MASK:
        values = 7 * width + 2 * inner + pixels
    elif encoder.kind == "qwen3vl_merger":
        values = 9 * width + pixels + 4
    graph = FLOAT_BYTES * values * part.positions
    mask = HALF_BYTES * part.positions**2 if encoder.kind in _WITH_MASK else 0
    # Before a product, what is multiplied is narrowed to the type of the weights.
    return graph + mask + HALF_BYTES * inner * part.positions


def _parts_bytes(projector: Projector, encoder: Encoder, found: MediaTokens) -> int:
    """Return what the parts take until they are encoded: all of them, and one twice."""
    channels = CHANNELS if encoder.modality == "vision" else 1
    floats = [FLOAT_BYTES * channels * each.width * each.height for each in found.passes]
    parts = sum(each.count * size for each, size in zip(found.passes, floats, strict=True))
    embeddings = FLOAT_BYTES * found.tokens * projector.embedding_width
    return parts + max(floats) + embeddings
