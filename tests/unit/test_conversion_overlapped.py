"""Files that are written beside the making of them."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from armload.conversion.overlapped import OverlappedFile


def test_it_has_all_parts_in_their_order_and_their_checksum(tmp_path: Path) -> None:
    parts = [bytes([number]) * (17 << 20) for number in range(5)]
    with OverlappedFile(tmp_path / "made") as file:
        for part in parts:
            file.write(part)
        assert file.size_bytes == 5 * 17 << 20
        assert file.sha256() == hashlib.sha256(b"".join(parts)).hexdigest()
    assert (tmp_path / "made").read_bytes() == b"".join(parts)


def test_a_full_disk_is_told_of_at_the_end_at_the_latest() -> None:
    with (
        pytest.raises(OSError, match=os.strerror(errno.ENOSPC)),
        OverlappedFile(Path("/dev/full")) as file,
    ):
        file.write(b"all")


def _fails(path: Path) -> None:
    with OverlappedFile(path) as file:
        file.write(b"all")
        raise KeyError(path)


def test_what_fails_inside_the_block_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        _fails(tmp_path / "made")
