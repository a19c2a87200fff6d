"""How many tokens an image or a sound becomes, and in how many passes of the encoder.

The sizes are those to which llama.cpp scales and cuts an image: ``tools/mtmd/mtmd-image.cpp``,
with the limits that ``tools/mtmd/clip.cpp`` has for each kind. Its arithmetic has 32 bits.
"""

from __future__ import annotations

import math
import re
import struct
from itertools import product
from typing import NamedTuple

from armload.core.errors import UsageError
from armload.core.values import Value
from armload.models.projector import TOKEN_LIMITS, Encoder, Projector

CHUNK_S = 30
"""Of a sound, that Whisper's encoder takes at a time; llama.cpp adds one of silence."""
_CHUNK_FRAMES = 3000

_FIXED = frozenset({"gemma3", "janus_pro", "nemotron_v2_vl"})
_SCALED = frozenset(
    (
        *("gemma4v", "glm4v", "kimivl", "lfm2", "pixtral"),
        *("qwen2.5vl_merger", "qwen2vl_merger", "qwen3vl_merger"),
    )
)
"""Kinds that scale an image to whole tokens within their limits."""

_MARKERS = {"gemma3": 2, "gemma4v": 2, "glm4v": 2, "kimivl": 2, "lfm2": 2, "pixtral": 1}
_MARKERS |= dict.fromkeys(("qwen2.5vl_merger", "qwen2vl_merger", "qwen3vl_merger"), 2)
_MARKERS |= {"qwen2a": 2, "voxtral": 1, "idefics3": 4}
"""Tokens of text that llama.cpp puts before and behind an image."""

_WHISPER = frozenset({"qwen2a", "ultravox", "voxtral"})
_STACKED, _POOLED = frozenset({"ultravox", "voxtral"}), frozenset({"qwen2a", "voxtral"})

_LFM2_TILE, _LFM2_TILES, _LFM2_TOLERANCE = 512, range(2, 11), 2.0


class ImageSize(NamedTuple):
    """In pixels."""

    width: int
    height: int

    @property
    def area(self) -> int:
        """In pixels."""
        return self.width * self.height

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


USUAL_SIZE = ImageSize(1024, 768)
"""Of an image of which nothing else was said."""
USUAL_SIZES = (ImageSize(224, 224), ImageSize(640, 480), USUAL_SIZE, ImageSize(1920, 1080))
_LONGEST_EDGE = 46_000
"""That llama.cpp multiplies without overflow."""


def read_size(text: str) -> ImageSize:
    """Return the size that a person wrote, such as ``1024x768``."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text.strip().lower(), re.ASCII)
    found = ImageSize(int(match[1]), int(match[2])) if match else ImageSize(0, 0)
    if not all(0 < side <= _LONGEST_EDGE for side in found):
        raise UsageError(
            f"{text[:40]!r} is not the size of an image.",
            f"Give width and height in pixels, at most {_LONGEST_EDGE:,} each: 1024x768",
        )
    return found


class EncoderPass(Value):
    """What the encoder computes for parts of one size.

    Attributes:
        count: parts of that size.
        width, height: of a part, in pixels; of a sound, its frames and mel bins.
        positions: vectors that go through the encoder's layers for one part.
        tokens: that one part becomes.
    """

    count: int
    width: int
    height: int
    positions: int
    tokens: int


class MediaTokens(Value):
    """What an image, or a sound, becomes.

    Attributes:
        passes: of the encoder.
        markers: tokens of text around and between the parts.
    """

    passes: tuple[EncoderPass, ...]
    markers: int

    @property
    def tokens(self) -> int:
        """With which it stands in the context."""
        return sum(each.count * each.tokens for each in self.passes) + self.markers

    @property
    def positions(self) -> int:
        return sum(each.count * each.positions for each in self.passes)


def image_tokens(
    projector: Projector, size: ImageSize, most_tokens: int | None = None
) -> MediaTokens | None:
    """Return what an image of a size becomes; none of a kind whose rules are not known here.

    Args:
        most_tokens: of one image, where that is chosen.
    """
    encoder = projector.encoder("vision")
    if encoder is None:
        return None
    kind, markers = encoder.kind, _MARKERS.get(encoder.kind, 0)
    square = ImageSize(encoder.image_size, encoder.image_size)
    if kind in _FIXED:
        return MediaTokens(passes=(_pass(projector, encoder, square),), markers=markers)
    if kind == "idefics3":
        columns, rows = _idefics3_grid(encoder, size)
        tiles = columns * rows
        one = _pass(projector, encoder, square, count=tiles + 1)
        return MediaTokens(passes=(one,), markers=markers + 2 * tiles + rows - 1)
    limits = _limits(kind, most_tokens)
    if kind == "lfm2" and _is_tiled(encoder, size, limits[1]):
        columns, rows = _lfm2_grid(size)
        tile = ImageSize(_LFM2_TILE, _LFM2_TILE)
        pieces = _pass(projector, encoder, tile, count=columns * rows)
        thumbnail = _pass(projector, encoder, _scaled(encoder, size, limits))
        return MediaTokens(passes=(pieces, thumbnail), markers=markers + columns * rows + 1)
    if kind in _SCALED:
        scaled = _pass(projector, encoder, _scaled(encoder, size, limits))
        return MediaTokens(passes=(scaled,), markers=markers)
    return None


def audio_tokens(projector: Projector, seconds: float) -> MediaTokens | None:
    """Return what a sound becomes; none of a kind whose rules are not known here."""
    encoder = projector.encoder("audio")
    if encoder is None or encoder.kind not in _WHISPER:
        return None
    tokens = _CHUNK_FRAMES
    if encoder.kind in _STACKED:
        tokens = -(-tokens // encoder.factor)
    tokens //= 2
    if encoder.kind in _POOLED:
        tokens //= 2
    one = EncoderPass(
        count=int(seconds // CHUNK_S) + 1,
        width=_CHUNK_FRAMES,
        height=encoder.mel_bins,
        positions=_CHUNK_FRAMES // 2,
        tokens=tokens,
    )
    return MediaTokens(passes=(one,), markers=_MARKERS.get(encoder.kind, 0))


def _pass(projector: Projector, encoder: Encoder, size: ImageSize, count: int = 1) -> EncoderPass:
    columns, rows = size.width // encoder.patch_size, size.height // encoder.patch_size
    merged = -(-columns // encoder.factor), -(-rows // encoder.factor)
    breaks = merged[1] - 1 if projector.breaks_rows else 0
    return EncoderPass(
        count=count,
        width=size.width,
        height=size.height,
        positions=columns * rows,
        tokens=merged[0] * merged[1] + breaks,
    )


def _limits(kind: str, most_tokens: int | None) -> tuple[int, int]:
    """Return the tokens of one image at least and at most."""
    least, most = TOKEN_LIMITS.get(kind, (0, 0))
    return least, most_tokens or most


def _scaled(encoder: Encoder, size: ImageSize, limits: tuple[int, int]) -> ImageSize:
    """Return the size with the same proportions, in whole tokens and within the kind's limits."""
    align = encoder.patch_size * encoder.factor
    least, most = (tokens * align * align for tokens in limits)
    sides = [max(align, math.floor(_single(side / align) + 0.5) * align) for side in size]
    pixels = sides[0] * sides[1]
    if pixels > most:
        beta = _single(math.sqrt(_single(size.width * size.height / most)))
        shrunk = [_single(side / beta) for side in size]
        sides = [max(align, math.floor(_single(side / align)) * align) for side in shrunk]
    elif pixels < least:
        beta = _single(math.sqrt(_single(least / (size.width * size.height))))
        grown = [_single(side * beta) for side in size]
        sides = [math.ceil(_single(side / align)) * align for side in grown]
    return ImageSize(sides[0], sides[1])


def _single(number: float) -> float:
    """Return a number as it is in 32 bits."""
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found


def _idefics3_grid(encoder: Encoder, size: ImageSize) -> tuple[int, int]:
    """Return columns and rows of tiles, into which the longest edge is scaled."""
    edge, tile = encoder.longest_edge, encoder.image_size
    if not edge:  # files of older converters
        columns, rows = (max(1, math.floor(_single(side / tile) + 0.5)) for side in size)
        return columns, rows
    ratio = size.width / size.height
    short = int(edge / ratio) if ratio >= 1 else int(edge * ratio)
    tiles = -(-edge // tile), max(1, -(-(short + short % 2) // tile))
    return tiles if ratio >= 1 else (tiles[1], tiles[0])


def _is_tiled(encoder: Encoder, size: ImageSize, most_tokens: int) -> bool:
    align = encoder.patch_size * encoder.factor
    sides = [max(encoder.patch_size, round(side / align) * align) for side in size]
    return sides[0] * sides[1] > most_tokens * align * align * _LFM2_TOLERANCE


def _lfm2_grid(size: ImageSize) -> tuple[int, int]:
    """Return columns and rows of the grid whose proportions are closest."""
    sides = range(1, _LFM2_TILES.stop)
    grids = [grid for grid in product(sides, sides) if grid[0] * grid[1] in _LFM2_TILES]
    grids.sort(key=lambda grid: (grid[0] * grid[1], max(grid), grid))
    ratio, best, least = _single(size.width / size.height), (1, 1), math.inf
    for columns, rows in grids:
        apart = abs(_single(ratio - _single(columns / rows)))
        if apart < least:
            least, best = apart, (columns, rows)
        elif apart == least and size.width * size.height > 0.5 * _LFM2_TILE**2 * columns * rows:
            best = (columns, rows)
    return best
