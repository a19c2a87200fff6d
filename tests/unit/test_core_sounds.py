from __future__ import annotations

import struct
import wave
from pathlib import Path

import pytest

from armload.core.errors import DataError
from armload.core.sounds import MOST_BYTES, read_sound


def _wav(path: Path, seconds: float, hertz: int = 8000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(hertz)
        file.writeframes(bytes(round(seconds * hertz) * 2))
    return path


def _flac(samples: int, hertz: int) -> bytes:
    packed = (hertz << 44) | (0 << 41) | (15 << 36) | samples
    info = bytes(10) + packed.to_bytes(8, "big") + bytes(16)
    return b"fLaC" + bytes([0x80]) + len(info).to_bytes(3, "big") + info


def _mp3(frames: int) -> bytes:
    # MPEG 1, layer III, 128 kbit/s, 44.1 kHz: 417 bytes and 1152 samples a frame.
    return (b"\xff\xfb\x90\x00" + bytes(413)) * frames


def test_a_wav_is_as_long_as_its_header_says(tmp_path: Path) -> None:
    assert read_sound(_wav(tmp_path / "a.wav", 1.5)).seconds == 1.5


def test_an_hour_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3,600 s of sound") as refused:
        read_sound(_wav(tmp_path / "a.wav", 3600))
    words = f"ffmpeg -i file:{tmp_path}/a.wav -t 60 -ac 1 -ar 16000 file:{tmp_path}/a-shorter.wav"
    assert words in refused.value.remedy


def test_an_hour_that_is_larger_than_may_be_read_is_refused_for_its_length(tmp_path: Path) -> None:
    path, rate = tmp_path / "a.wav", 176_400
    head = b"RIFF" + struct.pack("<I", rate * 3600 + 36) + b"WAVE"
    head += b"fmt " + struct.pack("<IHHIIHH", 16, 1, 2, 44_100, rate, 4, 16)
    with path.open("wb") as file:
        file.write(head + b"data" + struct.pack("<I", rate * 3600))
        file.truncate(rate * 3600 + 44)  # a sparse file
    with pytest.raises(DataError, match="3,600 s of sound"):
        read_sound(path)


def test_a_wav_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = _wav(tmp_path / "a.wav", 1)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="incomplete"):
        read_sound(path)


def test_a_flac_is_as_long_as_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    path.write_bytes(_flac(88_200, 44_100))
    assert read_sound(path).seconds == 2.0


def test_an_mp3_is_as_long_as_its_bit_rate_says(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    path.write_bytes(_mp3(383))
    assert read_sound(path).seconds == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"RIFF", b"RIFF....WAVE", b"fLaC", b"\xff\xfb"]
)
def test_what_is_no_sound_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_sound(path)


@pytest.mark.parametrize(
    ("beginning", "said", "remedy"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG image, not a sound", "bench --image"),
        (b"\xff\xd8\xff\xe0", "a JPEG image, not a sound", "bench --image"),
        (b"OggS", "an Ogg sound, which engines do not read", "ffmpeg -i"),
        (b"hello", "not a sound", "Give a WAV"),
    ],
)
def test_what_is_no_sound_is_called_what_it_is_however_large(
    tmp_path: Path, beginning: bytes, said: str, remedy: str
) -> None:
    path = tmp_path / "a.wav"
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError, match=said) as refused:
        read_sound(path)
    assert remedy in refused.value.remedy
