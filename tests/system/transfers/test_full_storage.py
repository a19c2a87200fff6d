"""A storage that is full, too small, or read-only: it is said, and what is there is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.boards.ssh import SshHost
from armload.core.errors import BoardError
from armload.deploy.layout import Layout
from armload.deploy.space import SPARE_BYTES, ask_space, need_space
from armload.deploy.upload import Upload, UploadState
from tests.faults import At
from tests.system.transfers.pushing import SIZE, left_over, part_of, pushed


def test_a_storage_that_fills_up_meanwhile_is_said_and_what_is_there_is_kept(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    remote = small_storage / "models" / "0" / "file"
    filler = small_storage / "filler"

    def fill() -> None:
        with suppress(OSError), filler.open("wb", buffering=0) as sink:
            while sink.write(bytes(1 << 20)):
                pass

    with pytest.raises(BoardError, match=r"\(tmpfs\) is full") as caught:
        pushed(host, file, remote, At(0, fill))
    assert "models/0" in caught.value.remedy or "free other space" in caught.value.remedy
    part = part_of(remote)
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
    with pytest.raises(BoardError, match=r"not enough space for file \(40.0 MB\): .* more"):
        pushed(host, file, remote, At(0, lambda: pytest.fail("something was sent")))
    assert not part_of(remote).exists()


def test_files_that_fit_alone_and_not_together_are_refused_together(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    names = ("one", "two")
    items = [
        Upload(
            local=file,
            remote=PurePosixPath(small_storage / "models" / name / name),
            sha256="0" * 64,
            executable=False,
        )
        for name in names
    ]
    layout, absent = Layout(workdir=PurePosixPath(small_storage)), UploadState(state="absent")
    for item in items:
        need_space(host, layout, [item], [absent])
    with pytest.raises(BoardError, match=r"one \(40.0 MB\) and two \(40.0 MB\)"):
        need_space(host, layout, items, [absent, absent])
    need_space(host, layout, items, [UploadState(state="part", part_bytes=SIZE * 3 // 4), absent])
    need_space(host, layout, items, [UploadState(state="present"), absent])


def test_a_storage_that_cannot_be_written_is_said(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    remote = small_storage / "models" / "0" / "file"
    remote.parent.mkdir(parents=True)
    subprocess.run(["mount", "-o", "remount,ro", str(small_storage)], check=True)
    with pytest.raises(BoardError, match=r"\(tmpfs\) is mounted read-only") as caught:
        pushed(host, file, remote)
    assert "workdir" in caught.value.remedy


@contextmanager
def ext4(folder: Path, size: int) -> Iterator[Path]:
    """A folder that is a file system of its own, as small boards have them."""
    image, mount = folder / "image", folder / "ext4"
    with image.open("wb") as file:
        file.truncate(size)
    mount.mkdir()
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("an ext4 of its own takes root and mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    done = subprocess.run(
        ["mount", "-o", "loop", str(image), str(mount)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no file can be mounted here: {done.stderr!r}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.parametrize("tool", ["toybox", "busybox", "coreutils"])
def test_what_fits_by_the_check_fits_on_ext4_whatever_its_df_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Of the 16 MiB that ext4 keeps for itself, toybox says to root that they are available."""
    if tool != "coreutils":
        program = shutil.which(tool)
        if program is None:
            pytest.skip(f"{tool} is not installed")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "df").symlink_to(program)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with ext4(tmp_path, 900 << 20) as place:
        layout = Layout(workdir=PurePosixPath(place))
        folder = layout.model("0" * 64, "file").parent
        host = LocalHost("my-board")
        space = ask_space(host, layout, [folder])
        assert space.free_bytes is not None
        size = space.free_bytes * 99 // 100 - SPARE_BYTES
        space.need(host, "file", folder, size)
        subprocess.run(["fallocate", "-l", str(size), f"{folder}/file"], check=True)
        with pytest.raises(OSError, match="No space left"), Path(folder, "more").open("wb") as more:
            more.write(bytes(64 << 20))
        assert ask_space(host, layout, [folder]).free_bytes == 0
