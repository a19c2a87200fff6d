"""One machine's own files: the rest of its root file system as an archive, and its disk.

Format: "newc" of the kernel's documentation, *initramfs buffer format*.
"""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.core.errors import DiskError, MissingToolError
from armload.core.files import CACHE_REMEDY
from armload.core.mirrors import in_english, reports_full_disk
from armload.core.places import data_path

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, kw_only=True)
class ArchiveEntry:
    """One file, folder or symbolic link, owned by root.

    Attributes:
        path: relative to the root.
        mode: type and permissions, as ``stat`` has them.
        content: the file's bytes, or the link's destination.
    """

    path: PurePosixPath
    mode: int
    content: bytes = b""


def file(path: str | PurePosixPath, content: bytes, *, permissions: int = 0o644) -> ArchiveEntry:
    return ArchiveEntry(path=PurePosixPath(path), mode=stat.S_IFREG | permissions, content=content)


def folder(path: str | PurePosixPath, *, permissions: int = 0o755) -> ArchiveEntry:
    return ArchiveEntry(path=PurePosixPath(path), mode=stat.S_IFDIR | permissions)


def link(path: str | PurePosixPath, destination: str) -> ArchiveEntry:
    return ArchiveEntry(
        path=PurePosixPath(path), mode=stat.S_IFLNK | 0o777, content=destination.encode()
    )


def archive(entries: Iterable[ArchiveEntry]) -> bytes:
    """Pack entries in the order given; the same entries always give the same bytes.

    The kernel unpacks archives that follow one another, so results may be concatenated.
    """
    parts = [_record(number, entry) for number, entry in enumerate(entries, start=1)]
    trailer = _header(0, 0, 1, 0, _TRAILER)
    packed = b"".join([*parts, trailer])
    return packed + bytes(-len(packed) % 512)


def _record(number: int, entry: ArchiveEntry) -> bytes:
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    header = _header(number, entry.mode, links, len(entry.content), str(entry.path))
    return header + entry.content + bytes(-len(entry.content) % 4)


def _header(number: int, mode: int, links: int, size_bytes: int, name: str) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, links, 0, size_bytes, 0, 0, 0, 0, len(encoded), 0)
    header = (_MAGIC + "".join(f"{field:08x}" for field in fields)).encode() + encoded
    return header + bytes(-len(header) % 4)


_FOLDERS = ("data", "dev", "etc", "proc", "run", "sys", "tmp")
_LINKS = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "sbin": "usr/bin",
    "usr/sbin": "bin",
    "usr/bin/sh": "mksh",
}


def root_archive(init: str, rc: str, host_key: bytes, client_key: str) -> bytes:
    """Return the archive that the kernel unpacks after the image's one.

    Args:
        init: the script that the kernel starts.
        rc: the script that starts and stops services.
        host_key: the SSH server's key, in Dropbear's format.
        client_key: the public key that may log in.
    """
    tools = data_path("deploy", "virtual", "toybox.txt").read_text(encoding="ascii").split()
    return archive(
        [
            *(folder(name) for name in _FOLDERS),
            *(link(name, destination) for name, destination in _LINKS.items()),
            *(link(f"usr/bin/{name}", "toybox") for name in tools),
            file("init", init.encode(), permissions=0o755),
            file("etc/rcS", rc.encode(), permissions=0o755),
            link("etc/init.d", "/data/etc/init.d"),
            file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
            file("etc/group", b"root:x:0:\n"),
            file("etc/shells", b"/bin/sh\n"),
            folder("etc/dropbear", permissions=0o700),
            file("etc/dropbear/host_key", host_key, permissions=0o600),
            folder("root", permissions=0o700),
            folder("root/.ssh", permissions=0o700),
            file("root/.ssh/authorized_keys", f"{client_key}\n".encode(), permissions=0o600),
        ]
    )


def make_disk(path: Path, size_bytes: int, mke2fs: tuple[str, ...]) -> None:
    """Make an empty ext4 file system in a file that takes room only as it is filled.

    Args:
        mke2fs: the words that start it.
    """
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.truncate(size_bytes)
    options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"
    command = [*mke2fs, "-q", "-F", "-t", "ext4", "-m", "0", "-L", "data", "-E", options]
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
