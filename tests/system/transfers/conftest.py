"""A server, and a file that is put on it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.build.helper import SHA256, helper
from tests.faults import small_disk
from tests.system.transfers.pushing import SIZE


@pytest.fixture
def host(server: SshAddress) -> Iterator[SshHost]:
    with closing(SshHost(server, "my-board")) as connected:
        yield connected


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return tmp_path / "work" / "models" / "0" / "file"


@pytest.fixture
def emulated_helper(tmp_path: Path) -> PurePosixPath:
    """Our program for aarch64 boards, called through an emulator."""
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("qemu-aarch64 is not installed (Debian: qemu-user)")
    wrapper = tmp_path / "it's sha256"
    program = shlex.quote(str(helper(SHA256).path))
    wrapper.write_text(f'#!/bin/sh\nexec {emulator} -cpu cortex-a72 {program} "$@"\n')
    wrapper.chmod(0o755)
    return PurePosixPath(wrapper)


@pytest.fixture
def small_storage(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 60) as folder:
        yield folder
