"""Archives in the format that the Linux kernel unpacks as its first file system.

Format: "newc" of the kernel's documentation, *initramfs buffer format*.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file, folder or symbolic link, owned by root.

    Attributes:
        path: relative to the root.
        mode: type and permissions, as ``stat`` has them.
        content: the file's bytes, or the link's destination.
    """

    path: PurePosixPath
    mode: int
    content: bytes = b""


def file(path: str | PurePosixPath, content: bytes, *, permissions: int = 0o644) -> Entry:
    """Return a regular file."""
    return Entry(path=PurePosixPath(path), mode=stat.S_IFREG | permissions, content=content)


def folder(path: str | PurePosixPath, *, permissions: int = 0o755) -> Entry:
    """Return a folder."""
    return Entry(path=PurePosixPath(path), mode=stat.S_IFDIR | permissions)


def link(path: str | PurePosixPath, destination: str) -> Entry:
    """Return a symbolic link."""
    return Entry(path=PurePosixPath(path), mode=stat.S_IFLNK | 0o777, content=destination.encode())


def archive(entries: Iterable[Entry]) -> bytes:
    """Pack entries in the order given; the same entries always give the same bytes.

    The kernel unpacks archives that follow one another, so results may be concatenated.
    """
    parts = [_record(number, entry) for number, entry in enumerate(entries, start=1)]
    trailer = _header(0, 0, 1, 0, _TRAILER)
    packed = b"".join([*parts, trailer])
    return packed + bytes(-len(packed) % 512)


def _record(number: int, entry: Entry) -> bytes:
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    header = _header(number, entry.mode, links, len(entry.content), str(entry.path))
    return header + entry.content + bytes(-len(entry.content) % 4)


def _header(number: int, mode: int, links: int, size_bytes: int, name: str) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, links, 0, size_bytes, 0, 0, 0, 0, len(encoded), 0)
    header = (_MAGIC + "".join(f"{field:08x}" for field in fields)).encode() + encoded
    return header + bytes(-len(header) % 4)
