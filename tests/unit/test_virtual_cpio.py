import shutil
import subprocess
from pathlib import Path

import pytest

from armload.boards.virtual import storage

ENTRIES = [
    storage.folder("usr"),
    storage.file("usr/hello", b"hello\n", permissions=0o755),
    storage.file("empty", b""),
    storage.link("sh", "usr/hello"),
]


def test_the_same_entries_give_the_same_bytes() -> None:
    assert storage.archive(ENTRIES) == storage.archive(list(ENTRIES))


def test_every_record_begins_on_a_multiple_of_four() -> None:
    packed = storage.archive(ENTRIES)
    starts = [at for at in range(len(packed)) if packed.startswith(b"070701", at)]
    assert len(starts) == len(ENTRIES) + 1
    assert all(start % 4 == 0 for start in starts)
    assert len(packed) % 512 == 0


def test_header_is_the_one_of_the_kernels_documentation() -> None:
    header = storage.archive([storage.file("a", b"xyz", permissions=0o600)])[:112]
    fields = [int(header[6 + 8 * index : 14 + 8 * index], 16) for index in range(13)]
    inode, mode, uid, gid, links, mtime, size = fields[:7]
    assert (inode, mode, uid, gid, links, mtime, size) == (1, 0o100600, 0, 0, 1, 0, 3)
    assert fields[11] == 2
    assert header[110:112] == b"a\0"


@pytest.mark.skipif(shutil.which("cpio") is None, reason="the program cpio is not installed")
def test_cpio_unpacks_what_was_packed(tmp_path: Path) -> None:
    subprocess.run(
        ["cpio", "-idm", "--quiet"], input=storage.archive(ENTRIES), cwd=tmp_path, check=True
    )
    assert (tmp_path / "usr/hello").read_bytes() == b"hello\n"
    assert (tmp_path / "usr/hello").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "sh").readlink() == Path("usr/hello")
    assert (tmp_path / "empty").stat().st_size == 0
