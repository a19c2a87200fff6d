from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from armload.core.errors import DataError, UsageError
from armload.core.pictures import MOST_BYTES, MOST_PIXELS, picture_files, read_picture


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))


def _halves(mode: str = "RGB") -> Image.Image:
    """Four by two pixels, the left half red."""
    picture = Image.new("RGB", (4, 2), (0, 0, 255))
    picture.paste((255, 0, 0), (0, 0, 2, 2))
    return picture.convert(mode)


def _saved(picture: Image.Image, path: Path, **options: Any) -> Path:
    picture.save(path, **options)
    return path


def _png_header_of(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"\0")), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_a_plain_picture_is_sent_as_it_is(tmp_path: Path) -> None:
    path = _saved(_halves(), tmp_path / "a.png")
    found = read_picture(path)
    assert (found.path, found.width, found.height) == (path, 4, 2)


def test_a_picture_on_its_side_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # its top is at the right
    path = _saved(_halves(), tmp_path / "a.png", exif=exif)
    found = read_picture(path)
    assert (found.width, found.height) == (2, 4)
    with Image.open(found.path) as upright:
        assert upright.getpixel((0, 0)) == (255, 0, 0)
        assert upright.getpixel((0, 3)) == (0, 0, 255)
        assert not upright.getexif()


@pytest.mark.parametrize(
    ("mode", "name"), [("CMYK", "a.jpg"), ("RGBA", "a.png"), ("P", "a.gif"), ("RGB", "a.webp")]
)
def test_other_kinds_become_three_colours_that_every_engine_reads(
    tmp_path: Path, mode: str, name: str
) -> None:
    found = read_picture(_saved(_halves(mode), tmp_path / name))
    with Image.open(found.path) as sent:
        assert (sent.format, sent.mode, sent.size) == ("PNG", "RGB", (4, 2))
    assert found.name == name


def test_what_is_made_of_a_picture_is_made_once(tmp_path: Path) -> None:
    path = _saved(_halves("RGBA"), tmp_path / "a.png")
    first = read_picture(path)
    made = first.path.stat().st_mtime_ns
    assert read_picture(path) == first
    assert first.path.stat().st_mtime_ns == made


def test_a_hundred_megapixels_are_refused_by_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(_png_header_of(10_000, 10_000))
    with pytest.raises(DataError, match=f"{MOST_PIXELS:,} pixels") as refused:
        read_picture(path)
    assert f"magick {path} -resize '4096x4096>' {tmp_path}/a-smaller.png" in refused.value.remedy


def test_a_bomb_is_refused_by_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(_png_header_of(60_000, 60_000))
    with pytest.raises(DataError, match="pixels"):
        read_picture(path)


def test_a_truncated_jpeg_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.effect_noise((64, 64), 90).convert("RGB").save(content, "JPEG")
    path = tmp_path / "a.jpg"
    path.write_bytes(content.getvalue()[: len(content.getvalue()) // 2])
    with pytest.raises(DataError, match="damaged or incomplete"):
        read_picture(path)


def test_an_animation_is_refused(tmp_path: Path) -> None:
    other = Image.new("RGB", (4, 2), (0, 255, 0))
    path = _saved(_halves(), tmp_path / "a.gif", save_all=True, append_images=[other])
    with pytest.raises(DataError, match="animation of 2") as refused:
        read_picture(path)
    assert f"magick '{path}[0]' {tmp_path}/a-first.png" in refused.value.remedy


def test_a_text_called_png_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_text("hello\n")
    with pytest.raises(DataError, match="not an image"):
        read_picture(path)


@pytest.mark.parametrize(
    ("beginning", "said", "remedy"),
    [
        (b"RIFF\0\0\0\0WAVEfmt ", "a WAV sound, not an image", "bench --audio"),
        (b"ID3\x04", "an MP3 sound, not an image", "bench --audio"),
        (b"\0\0\0\x18ftypheic", "a HEIC image, which engines do not read", "-converted.png"),
        (b"MZ", "not an image", "Give a PNG"),
    ],
)
def test_what_is_no_image_is_called_what_it_is_however_large(
    tmp_path: Path, beginning: bytes, said: str, remedy: str
) -> None:
    path = tmp_path / "a.png"
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError, match=said) as refused:
        read_picture(path)
    assert remedy in refused.value.remedy


def test_more_than_eight_bits_for_a_colour_are_refused(tmp_path: Path) -> None:
    path = _saved(Image.new("I;16", (4, 2)), tmp_path / "a.png")
    with pytest.raises(DataError, match="eight bits"):
        read_picture(path)


def test_an_address_is_told_from_a_file() -> None:
    address = "https://example.org/cats/a b.png?x=1"
    with pytest.raises(UsageError, match="is an address, not a file") as refused:
        read_picture(Path(address))
    assert f"curl -L '{address}' -o 'a b.png'" in refused.value.remedy


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder, not an image"):
        read_picture(tmp_path)


def test_pictures_that_were_made_are_in_the_cache(tmp_path: Path) -> None:
    assert picture_files().items == ()
    made = read_picture(_saved(_halves("RGBA"), tmp_path / "a.png"))
    (item,) = picture_files().items
    assert item.paths == (made.path,)
    assert item.size_bytes >= made.size_bytes
