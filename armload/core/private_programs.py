"""Programs that this machine lacks, from Debian packages in folders of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from armload.core.errors import MissingToolError
from armload.core.packages import (
    WITHOUT_APT,
    folder_written_whole,
    native_architecture,
    updated_apt,
)
from armload.core.places import cache_folder
from armload.core.progress import Progress

_ALSO_SEARCHED = ("/usr/sbin", "/sbin", "/opt/homebrew/opt/e2fsprogs/sbin")


def mke2fs(progress: Progress) -> tuple[str, ...]:
    """Return the words that start mke2fs: the installed one, or else one from Debian packages.

    The installed one is found even where only root has it in the path, as on Debian and macOS.
    """
    places = os.pathsep.join([*os.get_exec_path(), *_ALSO_SEARCHED])
    installed = shutil.which("mke2fs", path=places)
    if installed is not None:
        return (installed,)
    lack = "mke2fs, which makes a virtual board's disk, is not installed."
    return private_program(unpacked("e2fsprogs", progress, lack=lack), "mke2fs")


def unpacked(package: str, progress: Progress, *, lack: str, folder: str = "") -> Path:
    """Return the folder of a package with all that it needs; fetch it the first time.

    Args:
        lack: what a person is told where nothing can be fetched.
        folder: its name in the cache; that of the package where empty.
    """
    path = cache_folder() / "packages" / (folder or package)
    if not path.exists():
        if shutil.which("apt-get") is None:
            raise MissingToolError(lack, WITHOUT_APT)
        with (
            updated_apt(native_architecture(), progress, purpose=package) as apt,
            folder_written_whole(path) as new,
        ):
            apt.unpack(apt.closure((package,)), new, progress, purpose=package)
    return path


def private_program(folder: Path, program: str) -> tuple[str, ...]:
    """Return the words that start a program from such a folder with its own libraries."""
    loaders = sorted(folder.glob("usr/lib/*/ld-linux-*.so.*"))
    found = [path for place in ("bin", "sbin") for path in folder.glob(f"usr/{place}/{program}")]
    if not loaders or not found:
        raise MissingToolError(f"{folder} is damaged.", "Delete it; it will be made again.")
    return (str(loaders[0]), "--library-path", str(loaders[0].parent), str(found[0]))
