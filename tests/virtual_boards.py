"""Virtual boards for tests: machines of their own, packages shared with the person's cache."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from armload.boards.board import Board, VirtualReach
from armload.boards.virtual import machine
from armload.boards.virtual.image import image_for_boards
from armload.boards.virtual.qemu import qemu_for
from armload.boards.virtual.state import machine_folder, machine_state
from armload.build.helper import SHA256, helper
from armload.core.places import cache_folder
from armload.core.progress import Silent


@contextmanager
def private_cache(folder: Path) -> Iterator[Path]:
    """Make ``folder`` the cache, with the packages that the usual one has or now gets."""
    former = os.environ.get("ARMLOAD_CACHE")
    usual = cache_folder().resolve()
    image_for_boards(Silent())
    qemu_for("cortex-a55", Silent())
    helper(SHA256)
    (usual / "packages").mkdir(parents=True, exist_ok=True)
    for kind in ("images", "packages", "helpers"):
        (folder / kind).symlink_to(usual / kind)
    os.environ["ARMLOAD_CACHE"] = str(folder)
    try:
        yield folder
    finally:
        if former is None:
            del os.environ["ARMLOAD_CACHE"]
        else:
            os.environ["ARMLOAD_CACHE"] = former


def virtual_board(name: str, reach: VirtualReach) -> Board:
    return Board(
        name=name, target="rk3568", reach=reach, workdir=PurePosixPath("/data/local/tmp/armload")
    )


def cut_the_power(board: Board) -> None:
    powered = machine_state(machine_folder(board))
    assert powered is not None
    os.kill(powered.process.pid, signal.SIGKILL)
    assert powered.process.wait_gone(5.0)


@contextmanager
def switched_off_at_the_end(*boards: Board) -> Iterator[None]:
    try:
        yield
    finally:
        for board in boards:
            machine.down(board)
