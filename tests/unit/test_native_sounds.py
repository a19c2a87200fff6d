"""Sounds that a service's client sends are refused by their headers where they are too long."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from armload.build.backend import native_folder
from armload.build.helper import any_cpu_compiler
from armload.build.target import machine_architecture

PROGRAM = """
#include "armload_sound.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    unsigned char * content = malloc(1 << 24);
    const size_t bytes = fread(content, 1, 1 << 24, stdin);
    content = realloc(content, bytes + !bytes);
    puts(armload_is_long_sound(content, bytes) ? "long" : "short");
    return 0;
}
"""
FRAME = b"\xff\xfb\x90\x00" + bytes(413)
"""Of an MP3 of 128 kbit/s at 44.1 kHz: 1152 samples."""
SLOW_FRAME = b"\xff\xe3\x18\x00" + bytes(68)
"""Of one of 8 kbit/s at 8 kHz: 576 samples."""
MINUTE = 60 * 44_100 // 1152


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sounds")
    (folder / "main.c").write_text(PROGRAM)
    compiler = [*any_cpu_compiler(machine_architecture()), "-std=gnu11", f"-I{native_folder()}"]
    checked = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    sources = [folder / "main.c", native_folder() / "armload_sound.c"]
    subprocess.run([*compiler, *checked, *sources, "-lm", "-o", folder / "main"], check=True)
    return folder / "main"


def wav(seconds: float, *, kind: int = 1, block: int = 2, bits: int = 16) -> bytes:
    """Return a mono WAV of 16 kHz without its samples."""
    size = round(seconds * 16_000) * 2
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, kind, 1, 16_000, 32_000, block, bits)
    return b"RIFF" + struct.pack("<I", 36) + b"WAVE" + form + struct.pack("<4sI", b"data", size)


def flac(seconds: float) -> bytes:
    packed = (44_100 << 44) | (15 << 36) | round(seconds * 44_100)
    return b"fLaC\x80\0\0\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(16)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "short"),
        (b"no sound", "short"),
        (b"\xff\xd8\xff\xe0 a JPEG", "short"),
        (wav(599), "short"),
        (wav(601), "long"),
        (wav(1, kind=0x11), "long"),  # whose blocks hold more than they have bytes
        (wav(1, block=0), "long"),
        (wav(1)[:-8], "long"),
        (wav(1)[:13], "long"),
        (flac(599), "short"),
        (flac(601), "long"),
        (flac(0), "long"),  # of unknown length
        (b"ID3\x04\0\0\0\0\0\x04size" + flac(3600), "long"),
        (flac(1)[:20], "long"),
        (FRAME * 9 * MINUTE, "short"),
        (b"ID3\x04\0\0\0\0\0\x04size" + FRAME, "short"),
        (SLOW_FRAME * 8, "short"),
        (FRAME + SLOW_FRAME * 8400, "long"),
        (FRAME + b"junk" + SLOW_FRAME * 8400, "long"),
        (FRAME + b"\xff\xfd\x90\x00", "long"),  # layer II
        (FRAME + b"\xff\xfb\x00\x00", "long"),  # of a free bit rate
    ],
)
def test_a_sound_is_as_long_as_its_headers_say(program: Path, content: bytes, said: str) -> None:
    done = subprocess.run([program], input=content, check=True, capture_output=True)
    assert done.stdout.decode().strip() == said
