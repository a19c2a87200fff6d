"""What a folder on a board lies on, what keeps armload from using it, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Literal

from armload.core.shell import join
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


_IN_MEMORY = ("tmpfs", "ramfs", "rootfs")
_TMPFS_SHARE = 2  # of memory: the usual size of a tmpfs
_TMPFS_WITHIN = 0.01


def storage_of(
    mount: Mount, lines: Sequence[str], df: Iterable[str], memory_bytes: int
) -> Literal["memory", "storage"]:
    """Tell whether what is written to a mounted file system takes memory.

    An overlay writes to its upper folder. Where that lies on a file system which is out of sight,
    as with Raspberry Pi OS' overlay, the overlay's size is that of a tmpfs: half of the memory.

    Args:
        lines: those of ``/proc/mounts``, maybe among others.
        df: the lines of ``df -k`` for it.
        memory_bytes: of the board.
    """
    if mount.filesystem in _IN_MEMORY:
        return "memory"
    if mount.filesystem != "overlay":
        return "storage"
    upper = next((each[9:] for each in mount.options if each.startswith("upperdir=/")), None)
    under = mount_of(PurePosixPath(upper), lines) if upper else None
    if under is not None and under.filesystem != "overlay":
        return "memory" if under.filesystem in _IN_MEMORY else "storage"
    sizes = _sizes(df)
    if sizes is None:
        return "storage"
    off = sizes[0] * 1024 * _TMPFS_SHARE / memory_bytes - 1
    return "memory" if abs(off) <= _TMPFS_WITHIN else "storage"


def free_bytes(df: Iterable[str], filesystem: str | None) -> int | None:
    """Read from ``df -k``'s lines what files can still take; none when they say nothing.

    Args:
        df: the lines, the heading first.
        filesystem: what they are about, where known. Some tools, such as toybox for root, count
            what ext4 keeps for itself as available.
    """
    sizes = _sizes(df)
    if sizes is None:
        return None
    total, used, available = sizes
    if filesystem == "ext4":
        kept = min(total // _EXT4_SHARE, _EXT4_MOST_KIB)
        available = min(available, total - used - kept)
    return max(available, 0) * 1024


def _sizes(df: Iterable[str]) -> tuple[int, int, int] | None:
    # The percentage is the one column that can be recognized wherever a name contains spaces.
    match = re.search(r"\b(\d{1,15})\s+(\d{1,15})\s+(-?\d{1,15})\s+\d+%", " ".join([*df][1:]))
    if match is None or int(match[1]) == 0:  # a file system that does not count its space
        return None
    return int(match[1]), int(match[2]), int(match[3])


TRIAL_BYTES = 1 << 20
"""Storage on which so much cannot be written is full."""

_FULL = ("No space left on device", "Disk quota exceeded")


class WriteError(Value):
    """What is in the way.

    Attributes:
        kind: read-only, full or noexec storage, or what the shell says.
        where: what the folder lies on, such as ``/data (ext4)``; the folder where nobody says.
        point: where that is mounted; the folder where the shell refuses.
        said: the shell's own words, where they are all that there is.
    """

    kind: Literal["read-only", "full", "noexec", "refused"]
    where: str
    point: PurePosixPath
    said: str = ""

    @property
    def words(self) -> str:
        """What is the matter, as the end of a sentence."""
        if self.kind == "full":
            return f"{self.where} is full"
        if self.kind == "refused":
            return self.said
        return f"{self.where} is mounted {self.kind}"

    def remedy(self, board_name: str) -> str:
        other = f"another folder as 'workdir' in boards/{board_name}.yaml"
        if self.kind == "full":
            return f"Free space there, or choose {other}."
        if self.kind == "read-only":
            remount = join(["mount", "-o", "remount,rw", self.point])
            return (
                "Linux does that after a storage error: check dmesg on the board. If "
                f"the storage is sound: {remount}. Or choose {other}."
            )
        if self.kind == "noexec":
            remount = join(["mount", "-o", "remount,exec", self.point])
            return f"Allow it on the board: {remount}. Or choose {other}."
        return f"Choose {other}{example_beside(self.point)}."


_EXAMPLES = (PurePosixPath("/data/local/tmp/armload"), PurePosixPath("/tmp/armload"))  # noqa: S108


def example_beside(failed: PurePosixPath) -> str:
    """Name a folder that often works, other than one that did not, as ``, such as /folder``."""
    parents = {failed, *failed.parents}
    return f", such as {next(each for each in _EXAMPLES if each.parent not in parents)}"


def read_obstacle(lines: Sequence[str], mounts: Sequence[str]) -> WriteError | None:
    """Read what is in the way of writing; none when a file can be written after all.

    Args:
        lines: the lines of the script's function ``obstacle``.
        mounts: those of ``/proc/mounts``, maybe among others.
    """
    if len(lines) < 2:
        return None
    place = PurePosixPath(lines[0])
    word, _, reason = " ".join(lines[1:]).partition(" ")
    mount = mount_of(place, mounts)
    where, point = (str(place), place) if mount is None else (mount.words, mount.point)
    if mount is not None and "ro" in mount.options:
        return WriteError(kind="read-only", where=where, point=point)
    if word == "full" or obstacle_in(place, reason):
        return WriteError(kind="full", where=where, point=point)
    if word == "refused":
        return WriteError(
            kind="refused",
            where=where,
            point=place,
            said=reason.rpartition(": ")[2] or "no reason given",
        )
    return None


def obstacle_in(folder: PurePosixPath, output: str) -> WriteError | None:
    """Return the obstacle that a tool's message names; none if it names none."""
    if not any(words in output for words in _FULL):
        return None
    return WriteError(kind="full", where=str(folder), point=folder)
