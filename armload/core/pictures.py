"""Pictures that a person gives: checked, upright, and in a form that engines read."""

from __future__ import annotations

import hashlib
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from armload.core.bounds import read_bounded
from armload.core.cache import CacheKind
from armload.core.errors import DataError
from armload.core.files import require_file, write_whole
from armload.core.media_kinds import GIVE, checked_kind
from armload.core.places import cache_folder
from armload.core.shell import join
from armload.core.values import Value

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 64 << 20
MOST_PIXELS = 64_000_000
"""A telephone's camera gives up to 50 million at its usual settings; a decoder takes some six bytes
for each."""

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_MODES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
"""Of eight bits for each colour; a conversion from more would clip."""

_FOLDER = "pictures"  # of the cache
_ORIENTATION = 0x0112  # of EXIF


class UprightPicture(NamedTuple):
    """A picture that was checked.

    Attributes:
        content: a JPEG or PNG, as engines read it.
        is_as_given: it is that of the file.
        width, height: in pixels.
    """

    content: bytes
    is_as_given: bool
    width: int
    height: int


class Picture(Value):
    """A picture as an engine gets it: upright, with three colours of eight bits.

    Attributes:
        name: of the file that was given.
        path: of a file with these pixels: that file, or a PNG in the cache.
        sha256: of that file.
        size_bytes: of it.
        width, height: in pixels.
    """

    name: str
    path: Path
    sha256: str
    size_bytes: int
    width: int
    height: int


def read_picture(path: Path) -> Picture:
    """Check a picture, and return it as an engine gets it.

    A JPEG or PNG that engines read as it is stays as it is; of every other one, and of one that
    lies on its side, a PNG is made once.

    Raises:
        UsageError, DataError, DiskError: as for ``upright_picture``.
    """
    upright = upright_picture(path)
    sha256 = hashlib.sha256(upright.content).hexdigest()
    place = path
    if not upright.is_as_given:
        place = cache_folder() / _FOLDER / f"{sha256}.png"
        if not place.is_file():
            write_whole(place, upright.content)
    return Picture(
        name=path.name,
        path=place,
        sha256=sha256,
        size_bytes=len(upright.content),
        width=upright.width,
        height=upright.height,
    )


def upright_picture(path: Path) -> UprightPicture:
    """Read a picture once, check it, and return it upright and in a form that engines read.

    Raises:
        UsageError: there is no such file.
        DataError: it is no picture, is damaged, moves, or is too large.
        DiskError: it cannot be read.
    """
    require_file(path, "image", f"Correct the path. {GIVE['image']}")
    checked_kind(path, "image", convert=_magick(path, to="converted"))
    content = read_bounded(path, MOST_BYTES, smaller(path))
    picture, is_as_given = _decoded(path, content)
    if not is_as_given:
        content = _as_png(picture)
    return UprightPicture(content, is_as_given, picture.width, picture.height)


def smaller(path: Path) -> str:
    """Return how a picture is made smaller."""
    return f"Make it smaller, for example: {_magick(path, '-resize', '4096x4096>', to='smaller')}"


def _magick(path: Path, *words: str, to: str, frame: str = "") -> str:
    made = f"{path.stem}-{to}.png"
    return join(("magick", f"{path}{frame}", *words, path.with_name(made)))


def picture_files() -> CacheKind:
    """Return the PNGs that were made of pictures in other forms."""
    return CacheKind(
        name=_FOLDER,
        what="images as models get them, made of other forms",
        again="a second",
    )


def _decoded(path: Path, content: bytes) -> tuple[Image, bool]:
    """Return a picture upright and in three colours, and whether an engine would read it so."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of metadata, and of sizes that are refused below
            with Image.open(io.BytesIO(content), formats=_FORMATS) as opened:
                _check(path, opened)
                opened.load()
                is_as_given = (
                    opened.format in ("PNG", "JPEG")
                    and opened.mode in ("RGB", "L")
                    and opened.getexif().get(_ORIENTATION, 1) == 1
                )
                return ImageOps.exif_transpose(opened).convert("RGB"), is_as_given
    except UnidentifiedImageError as error:
        raise DataError(f"{path}: not an image.", GIVE["image"]) from error
    except Image.DecompressionBombError as error:
        raise DataError(f"{path}: more than {MOST_PIXELS:,} pixels.", smaller(path)) from error
    except (OSError, SyntaxError, ValueError, EOFError, KeyError, IndexError) as error:
        raise DataError(
            f"{path}: damaged or incomplete: it cannot be decoded.",
            "Copy the file again, or save it anew as a PNG.",
        ) from error


def _check(path: Path, opened: Image) -> None:
    """Refuse by its header what would take too much memory, or is no single picture."""
    if opened.width * opened.height > MOST_PIXELS:
        raise DataError(
            f"{path}: {opened.width:,} × {opened.height:,} pixels; the limit is "
            f"{MOST_PIXELS:,} pixels.",
            smaller(path),
        )
    frames = getattr(opened, "n_frames", 1)
    if frames > 1:
        raise DataError(
            f"{path}: an animation of {frames} pictures.",
            f"Save the one that matters, for example: {_magick(path, to='first', frame='[0]')}",
        )
    if opened.mode not in _MODES:
        raise DataError(
            f"{path}: its pixels are of the kind {opened.mode!a}; engines read eight bits for "
            "each colour.",
            "Convert it, for example: "
            + _magick(path, "-depth", "8", "-type", "TrueColor", to="converted"),
        )


def _as_png(picture: Image) -> bytes:
    written = io.BytesIO()
    picture.save(written, "PNG", compress_level=1)
    return written.getvalue()
