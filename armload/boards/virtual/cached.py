"""What virtual boards leave in the cache: packages, images, and the boards themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from armload.boards.board import THIS_MACHINE
from armload.boards.virtual.process import Started
from armload.boards.virtual.state import has_disk_open, machine_state
from armload.core.cache import (
    CacheItem,
    CacheKind,
    disk_usage,
    entries,
    is_left_over,
    items_of,
    left_over,
)
from armload.core.places import cache_folder

_PID_FILE = "qemu.pid"
_USED_WITHIN_S = 120
"""A lease that was renewed so long ago is of a command that was killed."""


def board_kinds() -> tuple[CacheKind, ...]:
    return (
        CacheKind(
            name="packages",
            what="QEMU, and the shader compiler of --backend vulkan",
            again="a download",
            read=lambda: items_of("packages", locks=_fetching, busy=_some_run, but="lock"),
        ),
        CacheKind(
            name="images",
            what="images of virtual boards",
            again="a download",
            read=lambda: items_of("images", locks=_fetching, busy=_some_run),
        ),
        CacheKind(
            name="machines",
            what="virtual boards with all their data",
            again="not possible: unfetched runs on them are lost",
            read=_machines,
        ),
    )


def _machines() -> Iterator[CacheItem]:
    for path in entries("machines"):
        if path.is_dir() and not is_left_over(path):
            yield CacheItem(
                label=path.name,
                paths=(path,),
                size_bytes=disk_usage([path]),
                locks=partial(dict, {path / "lock": "another armload process is starting it"}),
                busy=partial(_runs, path),
            )
    here = cache_folder() / THIS_MACHINE
    if here.is_dir():
        yield CacheItem(
            label=f"work folder of the board {THIS_MACHINE}",
            paths=(here,),
            size_bytes=disk_usage([here]),
            busy=partial(_is_used, here),
        )
    yield from left_over("machines")


def _is_used(work: Path) -> str:
    """Say that somebody has the lease of a board whose work folder this is; else nothing."""
    for lease in (work / "lease").glob("*"):
        with suppress(FileNotFoundError):
            if time.time() - lease.stat().st_mtime < _USED_WITHIN_S:
                return "an armload command is using it"
    return ""


def _fetching() -> Mapping[Path, str]:
    lock = cache_folder() / "packages" / "lock"
    fetching = {lock: "another armload process is fetching packages"} if lock.exists() else {}
    starting = [path for path in entries("machines") if (path / "lock").exists()]
    return {**fetching, **{path / "lock": f"{path.name} is being started" for path in starting}}


def _some_run() -> str:
    return next((f"{each.name} is using it" for each in entries("machines") if _runs(each)), "")


def _runs(folder: Path) -> str:
    """Say that a virtual board runs, also one whose start nobody noted; else nothing."""
    if machine_state(folder) is not None or _has_process(folder):
        return "running; stop it with armload board.down"
    return "running in another container" if has_disk_open(folder) else ""


def _has_process(folder: Path) -> bool:
    import psutil

    try:
        pid = int((folder / _PID_FILE).read_text(encoding="ascii"))
        words = psutil.Process(pid).cmdline()
    except (OSError, ValueError, OverflowError, psutil.Error):
        return False
    return Started.of(pid) is not None and os.fsdecode(folder.resolve()) in " ".join(words)
