"""What lies in the cache folder, how much room it takes, and how it is freed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Literal

from armload.core.locks import is_locked, locked_now
from armload.core.places import cache_folder
from armload.core.progress import Progress

_ASIDE = ".freed-"
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own is


Fate = Literal["goes", "freed", "in use", "failed"]


def _no_locks() -> Mapping[Path, str]:
    return {}


def _not_busy() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class CacheItem:
    """Something in the cache that goes as a whole or stays.

    Attributes:
        label: for people.
        paths: files and folders, one at least, beside each other.
        size_bytes: that they take on the disk.
        locks: each lock file that is held while it is used, with what its holder does then.
        busy: says why it must stay for other reasons; nothing when it may go.
    """

    label: str
    paths: tuple[Path, ...]
    size_bytes: int
    locks: Callable[[], Mapping[Path, str]] = field(default=_no_locks)
    busy: Callable[[], str] = field(default=_not_busy)

    def stays(self) -> str:
        """Say why it is not to be freed now; nothing when it may go."""
        for lock, use in self.locks().items():
            if is_locked(lock):
                return use
        return self.busy()


@dataclass(frozen=True, kw_only=True)
class CacheKind:
    """Things of one sort, which lie in one folder of the cache.

    Attributes:
        name: of the folder.
        what: they are.
        again: what it takes to have them again.
        read: returns what there is, which takes a while; none for each entry of the folder.
    """

    name: str
    what: str
    again: str
    read: Callable[[], Iterable[CacheItem]] | None = None

    @cached_property
    def items(self) -> tuple[CacheItem, ...]:
        return tuple(self.read() if self.read else items_of(self.name))

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What becomes of an item.

    Attributes:
        kind: its name.
        item: that was looked at.
        fate: ``goes`` before and ``freed`` after it was deleted; ``in use`` or ``failed``.
        reason: why it stays; else empty.
    """

    kind: str
    item: CacheItem
    fate: Fate
    reason: str = ""


def entries(kind: str) -> list[Path]:
    """Return what lies in the cache's folder of a kind, sorted; nothing if there is none."""
    try:
        return sorted((cache_folder() / kind).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_left_over(path: Path) -> bool:
    """Return whether it was being freed when armload was stopped."""
    return path.name.startswith(_ASIDE)


def left_over(kind: str) -> Iterator[CacheItem]:
    """Yield what was being freed when armload was stopped."""
    for path in entries(kind):
        if is_left_over(path):
            label = "left over from an interrupted clean"
            yield CacheItem(label=label, paths=(path,), size_bytes=disk_usage([path]))


def items_of(
    kind: str,
    *,
    locks: Callable[[], Mapping[Path, str]] = _no_locks,
    busy: Callable[[], str] = _not_busy,
    but: str = "",
) -> tuple[CacheItem, ...]:
    """Return an item for each entry of a kind's folder, save locks and names that fit ``but``."""
    own = [
        path
        for path in entries(kind)
        if not is_left_over(path) and path.suffix != ".lock" and not fnmatchcase(path.name, but)
    ]
    return (
        *(
            CacheItem(
                label=path.name,
                paths=(path,),
                size_bytes=disk_usage([path]),
                locks=locks,
                busy=busy,
            )
            for path in own
        ),
        *left_over(kind),
    )


def unknown(kinds: Sequence[CacheKind]) -> CacheKind:
    """Return what lies in the cache folder and is of none of the kinds."""
    known = {path for kind in kinds for item in kind.items for path in item.paths}
    names = {kind.name for kind in kinds}
    paths = [path for path in entries("") if path.name not in names and path not in known]
    return CacheKind(
        name="other",
        what="not armload's",
        again="nothing: it is never removed",
        read=lambda: [
            CacheItem(label=path.name, paths=(path,), size_bytes=disk_usage([path]))
            for path in paths
        ],
    )


def disk_usage(paths: Iterable[Path]) -> int:
    """Return how many bytes files and folders take on the disk; links are not followed.

    What cannot be read counts nothing, and a sparse file only what is filled.
    """
    total = 0
    folders: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.lstat()
            total += status.st_blocks * _BLOCK_BYTES
            if stat.S_ISDIR(status.st_mode):
                folders.append(str(path))
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries_within:
            for entry in entries_within:
                total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return total


def decide(kinds: Iterable[CacheKind]) -> list[Decision]:
    decisions = []
    for kind in kinds:
        for item in kind.items:
            reason = item.stays()
            decisions.append(
                Decision(
                    kind=kind.name, item=item, fate="in use" if reason else "goes", reason=reason
                )
            )
    return decisions


def free_all(plan: Sequence[Decision], progress: Progress) -> list[Decision]:
    """Delete what may go and is still not in use; say what became of each."""
    total = sum(decision.item.size_bytes for decision in plan if decision.fate == "goes")
    done = []
    freed_bytes = 0
    with progress.step("Freeing", total=total, unit="B") as step:
        for decision in plan:
            if decision.fate != "goes":
                done.append(decision)
                continue
            step.update(freed_bytes, note=decision.item.label)
            done.append(_freed(decision))
            freed_bytes += decision.item.size_bytes
    return done


def _freed(decision: Decision) -> Decision:
    try:
        reason = free(decision.item)
    except OSError as error:
        reason = f"{error.filename or decision.item.paths[0]}: {error.strerror or error}"
        return replace(decision, fate="failed", reason=reason)
    return replace(decision, fate="in use" if reason else "freed", reason=reason)


def free(item: CacheItem) -> str:
    """Delete an item, unless it is in use; return why it stays, or nothing.

    An item that is being deleted is out of its place at once, so that nobody takes a part for
    the whole.

    Raises:
        OSError: it cannot be deleted.
    """
    with ExitStack() as held:
        for lock, use in item.locks().items():
            if not held.enter_context(locked_now(lock)):
                return use
        reason = item.busy()
        if reason:
            return reason
        aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=item.paths[0].parent))
        for path in item.paths:
            with contextlib.suppress(FileNotFoundError):
                path.rename(aside / path.name)
    shutil.rmtree(aside)
    return ""
