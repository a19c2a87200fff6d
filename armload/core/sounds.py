"""Sounds that a person gives: WAV, FLAC and MP3, with their lengths as their headers tell."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from armload.core.bounds import size_words
from armload.core.errors import DataError
from armload.core.files import require_file, unreadable
from armload.core.media_kinds import GIVE, checked_kind
from armload.core.shell import join
from armload.core.values import Value, format_seconds

MOST_BYTES = 128 << 20
MOST_S = 600.0
"""Half a minute of sound is some hundred tokens."""

_AGAIN = "Copy the file again, or save it anew as a WAV."
_WAV_FORMATS = frozenset((1, 3, 6, 7, 0xFFFE))  # integers, floats, A-law, µ-law, and more of these

# MPEG audio, layer III: kbit/s of version 1 and of versions 2 and 2.5, by a header's index.
_RATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
_SAMPLES = (44_100, 48_000, 32_000)
_MPEG_1, _MPEG_2 = 3, 2
_LAYER_3 = 1


class Sound(Value):
    """A sound as an engine gets it.

    Attributes:
        name: of the file.
        path: of it.
        sha256, size_bytes: of its content.
        seconds: how long it is.
    """

    name: str
    path: Path
    sha256: str
    size_bytes: int
    seconds: float


def read_sound(path: Path) -> Sound:
    """Check a sound.

    Raises:
        UsageError: there is no such file.
        DataError: it is no sound of these kinds, is cut off, or is too long.
        DiskError: it cannot be read.
    """
    require_file(path, "sound", f"Correct the path. {GIVE['sound']}")
    kind = checked_kind(path, "sound", convert=_ffmpeg(path, to="converted"))
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    is_cut = len(content) > MOST_BYTES
    seconds = _seconds(path, kind.name, content)
    if seconds > MOST_S:
        raise DataError(
            f"{path}: {format_seconds(seconds)} of sound; the limit is {format_seconds(MOST_S)}.",
            _shorter(path),
        )
    if is_cut:
        raise DataError(f"{path}: larger than {size_words(MOST_BYTES)}.", _shorter(path))
    if seconds <= 0:
        raise DataError(f"{path}: it holds no sound.", _AGAIN)
    return Sound(
        name=path.name,
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        seconds=seconds,
    )


def _shorter(path: Path) -> str:
    words = ("-t", "60", "-ac", "1", "-ar", "16000")
    return f"Cut it, for example: {_ffmpeg(path, *words, to='shorter')}"


def _ffmpeg(path: Path, *words: str, to: str) -> str:
    # A name that begins with a dash would be an option.
    made = path.with_name(f"{path.stem}-{to}.wav")
    return join(("ffmpeg", "-i", f"file:{path}", *words, f"file:{made}"))


def _seconds(path: Path, name: str, content: bytes) -> float:
    try:
        if name == "WAV":
            return _of_wav(path, content)
        return _of_flac(content) if name == "FLAC" else _of_mp3(content)
    except (struct.error, IndexError, ZeroDivisionError) as error:
        raise DataError(f"{path}: damaged: its header makes no sense.", _AGAIN) from error


def _of_wav(path: Path, content: bytes) -> float:
    at, bytes_per_s = 12, 0
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        if name == b"fmt ":
            kind, channels, _, bytes_per_s = struct.unpack_from("<HHII", content, at + 8)
            if kind not in _WAV_FORMATS or not channels:
                raise DataError(
                    f"{path}: a WAV of the kind {kind}, which engines do not read.",
                    "Convert it, for example: "
                    + _ffmpeg(path, "-c:a", "pcm_s16le", to="converted"),
                )
        elif name == b"data":
            # A longer one than is read here is refused for its length.
            if at + 8 + size > len(content) and len(content) <= MOST_BYTES:
                raise DataError(f"{path}: incomplete: it ends before its sound does.", _AGAIN)
            return float(size / bytes_per_s)
        at += 8 + size + size % 2
    raise DataError(f"{path}: damaged: a WAV without sound.", _AGAIN)


def _of_flac(content: bytes) -> float:
    # STREAMINFO comes first: after 10 bytes of sizes, 20 bits of the rate, 3 and 5 bits of channels
    # and depth, and 36 bits of the number of samples.
    packed = int.from_bytes(content[18:26], "big")
    if content[4] & 0x7F != 0 or len(content) < 42:
        raise IndexError
    return float((packed & ((1 << 36) - 1)) / (packed >> 44))


def _of_mp3(content: bytes) -> float:
    """Return the length as the first frame's bit rate tells; of a variable one, about that."""
    at = 0
    if content[:3] == b"ID3":
        at = 10 + sum((byte & 0x7F) << 7 * (3 - i) for i, byte in enumerate(content[6:10]))
    version, layer = content[at + 1] >> 3 & 3, content[at + 1] >> 1 & 3
    rate, samples = content[at + 2] >> 4, content[at + 2] >> 2 & 3
    if content[at] != 0xFF or content[at + 1] < 0xE0 or layer != _LAYER_3 or version == 1:
        raise IndexError
    is_first = version == _MPEG_1
    hertz = _SAMPLES[samples] / (1 if is_first else 2 if version == _MPEG_2 else 4)
    mono = content[at + 3] >> 6 == 3
    side = (17 if mono else 32) if is_first else (9 if mono else 17)
    tag = content[at + 4 + side : at + 16 + side]
    if tag[:4] in (b"Xing", b"Info") and tag[7] & 1:
        frames = int.from_bytes(tag[8:12], "big")
        return frames * (1152 if is_first else 576) / hertz
    return (len(content) - at) * 8 / (1000 * _RATES[0 if is_first else 1][rate])
