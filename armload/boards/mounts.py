"""What a folder on a board lies on, and how much of it a file system keeps for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from armload.core.values import Value

# Linux, fs/ext4/super.c, ext4_calculate_resv_clusters: 2% and at most 4096 clusters, mostly of
# 4 KiB, that nobody's files get, root's neither.
_EXT4_SHARE = 50
_EXT4_MOST_KIB = 16_384


class Mount(Value):
    """A line of ``/proc/mounts``.

    Attributes:
        point: where it is mounted.
        filesystem: such as ``ext4``.
        options: such as ``ro`` and ``noexec``.
    """

    point: PurePosixPath
    filesystem: str
    options: frozenset[str]

    @property
    def words(self) -> str:
        """Where and what it is, for messages."""
        return f"{self.point} ({self.filesystem})"


def mount_of(folder: PurePosixPath, lines: Iterable[str]) -> Mount | None:
    """Return the innermost mount that holds a folder; of two there, the later."""
    found, depth = None, -1
    for line in lines:
        match = re.fullmatch(r"\S+ (/\S*) (\S+) (\S+) \d+ \d+", line)
        if match is None:
            continue
        # The kernel writes spaces and the like in a mount point as \040.
        unescaped = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), match[1])
        point = PurePosixPath(unescaped)
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            options = frozenset(match[3].split(","))
            found = Mount(point=point, filesystem=match[2], options=options)
            depth = len(point.parts)
    return found


def free_bytes(df: Iterable[str], filesystem: str | None) -> int | None:
    """Read from ``df -k``'s lines what files can still take; none when they say nothing.

    Args:
        df: the lines, the heading first.
        filesystem: what they are about, where known. Some tools, such as toybox for root, count
            what ext4 keeps for itself as available.
    """
    # The percentage is the one column that can be recognized wherever a name contains spaces.
    match = re.search(r"\b(\d{1,15})\s+(\d{1,15})\s+(-?\d{1,15})\s+\d+%", " ".join([*df][1:]))
    if match is None:
        return None
    total, used, available = (int(number) for number in match.groups())
    if filesystem == "ext4":
        kept = min(total // _EXT4_SHARE, _EXT4_MOST_KIB)
        available = min(available, total - used - kept)
    return max(available, 0) * 1024
