"""One machine's own files: the rest of its root file system, and its disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from armload.boards.virtual import cpio
from armload.boards.virtual.disk_full import in_english, reports_full_disk
from armload.core.disk import CACHE_REMEDY
from armload.core.errors import DiskError, MissingToolError
from armload.core.workspace import data_path

_FOLDERS = ("data", "dev", "etc", "proc", "run", "sys", "tmp")
_LINKS = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "sbin": "usr/bin",
    "usr/sbin": "bin",
    "usr/bin/sh": "mksh",
}


def root_archive(init: str, host_key: bytes, client_key: str) -> bytes:
    """Return the archive that the kernel unpacks after the image's one.

    Args:
        init: the script that the kernel starts.
        host_key: the SSH server's key, in Dropbear's format.
        client_key: the public key that may log in.
    """
    tools = data_path("deploy", "virtual", "toybox.txt").read_text(encoding="ascii").split()
    return cpio.archive(
        [
            *(cpio.folder(name) for name in _FOLDERS),
            *(cpio.link(name, destination) for name, destination in _LINKS.items()),
            *(cpio.link(f"usr/bin/{name}", "toybox") for name in tools),
            cpio.file("init", init.encode(), permissions=0o755),
            cpio.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
            cpio.file("etc/group", b"root:x:0:\n"),
            cpio.file("etc/shells", b"/bin/sh\n"),
            cpio.folder("etc/dropbear", permissions=0o700),
            cpio.file("etc/dropbear/host_key", host_key, permissions=0o600),
            cpio.folder("root", permissions=0o700),
            cpio.folder("root/.ssh", permissions=0o700),
            cpio.file("root/.ssh/authorized_keys", f"{client_key}\n".encode(), permissions=0o600),
        ]
    )


def make_disk(path: Path, size_bytes: int) -> None:
    """Make an empty ext4 file system in a file that takes room only as it is filled.

    Raises:
        MissingToolError: there is no mke2fs, or it failed.
        DiskError: no room on this machine.
    """
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.truncate(size_bytes)
    options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"
    command = [_mke2fs(), "-q", "-F", "-t", "ext4", "-m", "0", "-L", "data", "-E", options]
    done = subprocess.run(
        [*command, str(beside)],
        stdin=subprocess.DEVNULL,
        env=in_english(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        beside.unlink()
        if reports_full_disk(done.stderr):
            raise DiskError(
                f"The disk of this machine is full: {path} cannot be written.", CACHE_REMEDY
            )
        raise MissingToolError(f"mke2fs could not make {path}: {done.stderr.strip()[-300:]}")
    beside.rename(path)


def _mke2fs() -> str:
    """Find it even where only root has it in the path, as on Debian and macOS."""
    places = [*os.get_exec_path(), "/usr/sbin", "/sbin", "/opt/homebrew/opt/e2fsprogs/sbin"]
    found = shutil.which("mke2fs", path=os.pathsep.join(places))
    if found is None:
        raise MissingToolError(
            "mke2fs, which makes a virtual board's disk, is not installed.",
            "Install the package e2fsprogs.",
        )
    return found
