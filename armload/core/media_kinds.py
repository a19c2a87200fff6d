"""What kind of image or sound a file is, by how it begins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from armload.core.errors import DataError
from armload.core.files import unreadable

Medium = Literal["image", "sound"]

GIVE: Mapping[Medium, str] = {
    "image": "Give a PNG, JPEG, WebP, GIF or BMP file.",
    "sound": "Give a WAV, FLAC or MP3 file.",
}
_NAMES: Mapping[Medium, str] = {"image": "an image", "sound": "a sound"}
_TAKEN_BY: Mapping[Medium, str] = {
    "image": "An image is given to bench --image.",
    "sound": "A sound is given to bench --audio.",
}
_BEGINNING_BYTES = 16


class MediaKind(NamedTuple):
    """A kind of file.

    Attributes:
        medium: what it holds.
        name: of its format.
        is_read: engines are given it, as it is or converted.
    """

    medium: Medium
    name: str
    is_read: bool = True

    def __str__(self) -> str:
        article = "an" if self.name[0] in "AMO" else "a"
        return f"{article} {self.name} {self.medium}"


_KINDS: tuple[tuple[int, bytes, MediaKind], ...] = (
    (0, b"\x89PNG", MediaKind("image", "PNG")),
    (0, b"\xff\xd8", MediaKind("image", "JPEG")),
    (0, b"GIF8", MediaKind("image", "GIF")),
    (0, b"BM", MediaKind("image", "BMP")),
    (8, b"WEBP", MediaKind("image", "WebP")),
    (0, b"II*\0", MediaKind("image", "TIFF", is_read=False)),
    (0, b"MM\0*", MediaKind("image", "TIFF", is_read=False)),
    (4, b"ftyphei", MediaKind("image", "HEIC", is_read=False)),
    (4, b"ftypmif1", MediaKind("image", "HEIC", is_read=False)),
    (4, b"ftypavif", MediaKind("image", "AVIF", is_read=False)),
    (8, b"WAVE", MediaKind("sound", "WAV")),
    (0, b"fLaC", MediaKind("sound", "FLAC")),
    (0, b"ID3", MediaKind("sound", "MP3")),
    (0, b"OggS", MediaKind("sound", "Ogg", is_read=False)),
    (4, b"ftypM4A", MediaKind("sound", "M4A", is_read=False)),
)
_MP3_FRAME = MediaKind("sound", "MP3")


def checked_kind(path: Path, medium: Medium, *, convert: str) -> MediaKind:
    """Return the kind of an image or a sound, by how it begins, before all of it is read.

    Args:
        convert: a command that makes one that is read.

    Raises:
        DataError: it is none, or of a kind that engines do not read.
        DiskError: it cannot be read.
    """
    kind = _kind_of(path)
    if kind is None:
        raise DataError(f"{path}: not {_NAMES[medium]}.", GIVE[medium])
    if kind.medium != medium:
        raise DataError(
            f"{path}: {kind}, not {_NAMES[medium]}.", f"{GIVE[medium]} {_TAKEN_BY[kind.medium]}"
        )
    if not kind.is_read:
        raise DataError(
            f"{path}: {kind}, which engines do not read.", f"Convert it, for example: {convert}"
        )
    return kind


def _kind_of(path: Path) -> MediaKind | None:
    try:
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error
    for at, signature, kind in _KINDS:
        if beginning[at:].startswith(signature):
            return kind
    is_frame = beginning[:1] == b"\xff" and beginning[1:2] >= b"\xe0"
    return _MP3_FRAME if is_frame else None
