"""A storage that is full, too small, or read-only: it is said, and what is there is kept."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.ssh import SshHost
from armload.core.errors import BoardError
from armload.deploy.item import Item, Stored
from armload.deploy.space import need_space
from tests.faults import At
from tests.system.transfers.pushing import SIZE, left_over, pushed


def test_a_storage_that_fills_up_meanwhile_is_said_and_what_is_there_is_kept(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    remote = small_storage / "models" / "0" / "file"
    filler = small_storage / "filler"

    def fill() -> None:
        with suppress(OSError), filler.open("wb", buffering=0) as sink:
            while sink.write(bytes(1 << 20)):
                pass

    with pytest.raises(BoardError, match="its storage is full") as caught:
        pushed(host, file, remote, At(0, fill))
    assert "models/0" in caught.value.remedy or "free other space" in caught.value.remedy
    part = remote.with_name("file.part")
    assert part.stat().st_size < SIZE
    assert not remote.exists()
    filler.unlink()
    assert pushed(host, file, remote)
    assert remote.read_bytes() == file.read_bytes()
    assert left_over(remote) == set()


def test_a_storage_that_is_too_small_is_said_before_a_byte_is_sent(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    (small_storage / "filler").write_bytes(bytes(30_000_000))
    remote = small_storage / "models" / "0" / "file"
    with pytest.raises(BoardError, match=r"no space for file \(40.0 MB\): .* missing"):
        pushed(host, file, remote, At(0, lambda: pytest.fail("something was sent")))
    assert not remote.with_name("file.part").exists()


def test_files_that_fit_alone_and_not_together_are_refused_together(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    names = ("one", "two")
    items = [
        Item(
            local=file,
            remote=PurePosixPath(small_storage / "models" / name / name),
            sha256="0" * 64,
            executable=False,
        )
        for name in names
    ]
    absent = Stored(state="absent")
    for item in items:
        need_space(host, [item], [absent])
    with pytest.raises(BoardError, match=r"one \(40.0 MB\) and two \(40.0 MB\)"):
        need_space(host, items, [absent, absent])
    need_space(host, items, [Stored(state="part", part_bytes=SIZE * 3 // 4), absent])
    need_space(host, items, [Stored(state="present"), absent])


def test_a_storage_that_cannot_be_written_is_said(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    remote = small_storage / "models" / "0" / "file"
    remote.parent.mkdir(parents=True)
    subprocess.run(["mount", "-o", "remount,ro", str(small_storage)], check=True)
    with pytest.raises(BoardError, match="cannot be written") as caught:
        pushed(host, file, remote)
    assert "workdir" in caught.value.remedy
