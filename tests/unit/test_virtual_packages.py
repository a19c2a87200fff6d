"""What apt and the other tools say is understood."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.core import packages
from armload.core.errors import ArmloadError, DiskError, MissingToolError
from armload.core.mirrors import PackageArchive
from armload.core.packages import Apt
from armload.core.progress import ProgressStep, Silent

# Like apt: LANGUAGE counts in every locale but plain C.
_APT = """#!/bin/sh
depends=Depends
case "$LC_ALL:$LANGUAGE" in C:*) ;; de*:* | *:de*) depends='Hängt ab von' ;; esac
case "$*" in
  *depends*) printf 'linux-image-arm64\\n  %s: linux-image-6.1-arm64\\n' "$depends" ;;
  *) echo "$FAKE_APT_SAYS" >&2; exit 100 ;;
esac
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Apt:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-cache", "apt-get"):
        (programs / name).write_text(_APT)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    archive = PackageArchive(
        uri="file:/nowhere", suite="x", components=("main",), keyring=tmp_path / "none", kernel="x"
    )
    return Apt("arm64", archive, tmp_path)


def test_dependencies_are_found_whatever_the_persons_language_is(apt: Apt) -> None:
    assert apt.dependencies("linux-image-arm64") == ["linux-image-6.1-arm64"]


@pytest.mark.parametrize(
    ("said", "kind", "remedy"),
    [
        ("E: Failed to fetch x  Could not connect", MissingToolError, "Check the network"),
        ("E: Write error - write (28: No space left on device)", DiskError, "ARMLOAD_CACHE"),
        ("E: You don't have enough free space in /x/.", DiskError, "ARMLOAD_CACHE"),
    ],
)
def test_a_full_disk_is_told_from_a_missing_network(
    apt: Apt, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[ArmloadError], remedy: str
) -> None:
    monkeypatch.setenv("FAKE_APT_SAYS", said)
    for failing in (apt.update, lambda: apt.unpack([], Path("/tmp"), Silent(), purpose="a test")):
        with pytest.raises(kind, match=r"apt-get .*failed: E: ") as caught:
            failing()
        assert remedy in caught.value.remedy


class _Labels(Silent):
    def __init__(self) -> None:
        self.labels: list[str] = []

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        self.labels.append(label)
        with super().step(label, total=total, unit=unit) as step:
            yield step


def test_steps_with_packages_say_what_they_are_for(
    apt: Apt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = _Labels()
    monkeypatch.setattr(Apt, "_polled", lambda *_: iter(()))
    apt.unpack([], tmp_path, told, purpose="qemu-system-arm")
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    monkeypatch.setattr(packages, "archives", lambda: [apt.archive])
    monkeypatch.setattr(Apt, "update", lambda _: None)
    with packages.updated_apt("arm64", told, purpose="qemu-system-arm"):
        pass
    assert len(told.labels) == 3
    assert all(" for qemu-system-arm" in label for label in told.labels)


_ON_A_FULL_DISK = """
import sys
from pathlib import Path
from armload.core.private_programs import mke2fs
from armload.boards.virtual.storage import make_disk
from armload.core.files import written_in
from armload.core.errors import DiskError
from armload.core.progress import ProgressStep, Silent
folder = Path(sys.argv[1])
try:
    make_disk(folder / "disk.img", 4 << 30, mke2fs(Silent()))
except DiskError as error:
    print(error)
try:
    with written_in(folder):
        (folder / "file").write_bytes(bytes(1 << 20))
except DiskError as error:
    print(error)
"""


def test_a_full_disk_of_this_machine_is_told(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("a small file system takes root and unshare")
    script = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1"'
    words = ["sh", str(tmp_path), sys.executable, _ON_A_FULL_DISK]
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", script, *words], check=True, capture_output=True, text=True
    )
    disk, remedy, file, file_remedy = done.stdout.splitlines()
    assert disk == f"The disk of this machine is full: {tmp_path}/disk.img cannot be written."
    assert "on this machine: No space left on device" in file
    assert "ARMLOAD_CACHE" in remedy
    assert file_remedy.startswith(f"Free space on the disk that holds {tmp_path}")
