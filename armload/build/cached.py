"""The builds that lie in the cache, and what else of building does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from armload.build.binary import Binary
from armload.build.record import RECORD_NAME, read_record
from armload.core.cache import (
    CacheItem,
    CacheKind,
    disk_usage,
    entries,
    is_left_over,
    items_of,
    left_over,
)
from armload.core.locks import is_locked
from armload.core.values import Value

_NAME = re.compile(r"(?P<id>[0-9a-f]{12})(?P<partial>\.partial)?", re.ASCII)
_State = Literal["finished", "under way", "unfinished", "unreadable"]


class CachedBuild(Value):
    """A build that lies in the cache.

    Attributes:
        build_id: of its inputs.
        path: its folder.
        state: ``under way`` while an armload works on it; else ``finished`` when it has programs;
            ``unfinished`` when it has none so far, and the same build resumes from there;
            ``unreadable`` when it will be made anew.
        reason: why it is unreadable; else empty.
        when_utc: when its last program was finished or, where that is not known, when it was last
            worked on, in ISO 8601.
        size_bytes: that its folder takes on the disk.
        programs: that were built, all of them readable.
    """

    build_id: str
    path: Path
    state: _State
    reason: str
    when_utc: str
    size_bytes: int
    programs: tuple[Binary, ...]


def cached_builds() -> list[CachedBuild]:
    """Return the builds in the cache, the latest first."""
    found = [
        _cached(path, match)
        for path in entries("builds")
        if (match := _NAME.fullmatch(path.name)) and path.is_dir()
    ]
    return sorted(found, key=lambda build: build.when_utc, reverse=True)


def build_kinds() -> tuple[CacheKind, ...]:
    """Return what builds leave in the cache: themselves, sources, the compiler's libraries."""
    return (
        CacheKind(
            name="builds",
            what="programs and unfinished builds",
            again="minutes of compiling per build, unless it is prebuilt",
            read=lambda: (*_builds(), *left_over("builds")),
        ),
        CacheKind(
            name="sources",
            what="llama.cpp's source",
            again="a download",
            read=lambda: (
                *items_of("sources", locks=_any_build, but="git"),
                *items_of("sources/git", locks=_any_build_or_fetch),
            ),
        ),
        CacheKind(
            name="zig",
            what="compiled C and C++ libraries",
            again="a minute at the next build",
            read=lambda: _as_one("zig"),
        ),
        CacheKind(
            name="ccache",
            what="compiled files that further builds share",
            again="minutes of compiling at the next build",
            read=lambda: _as_one("ccache"),
        ),
        CacheKind(
            name="compilers",
            what="wrapper scripts of zig",
            again="nothing",
            read=lambda: items_of("compilers", locks=_any_build),
        ),
        CacheKind(
            name="helpers",
            what="armload's own small programs for boards",
            again="a minute of compiling",
        ),
    )


def _cached(path: Path, match: re.Match[str]) -> CachedBuild:
    state: _State = "finished"
    reason = ""
    programs: tuple[Binary, ...] = ()
    when_utc = _changed_utc(path, path / "build.log")
    try:
        record = read_record(path)
        programs = tuple(record.binary(each, path) for each in record.programs)
        when_utc = max((each.built_utc for each in record.programs), default=when_utc)
    except FileNotFoundError:
        state = "unfinished"
    except OSError as error:
        state, reason = "unreadable", f"{RECORD_NAME}: {error.strerror}"
    except ValidationError:
        state = "unreadable"
        reason = f"{RECORD_NAME} is malformed or was written by another version of armload"
    if match["partial"]:
        state, reason = "unreadable", "another version of armload left it unfinished"
    lost = [each.program for each in programs if not _is_there(each)]
    if lost:
        state, reason = "unreadable", f"{', '.join(lost)} is missing or damaged"
    if is_locked(_lock(path.parent, match["id"])):
        state, reason = "under way", ""
    return CachedBuild(
        build_id=match["id"],
        path=path,
        state=state,
        reason=reason,
        when_utc=when_utc,
        size_bytes=disk_usage([path]),
        programs=() if lost else programs,
    )


def _is_there(program: Binary) -> bool:
    try:
        return program.path.stat().st_size == program.size_bytes
    except OSError:
        return False


def _changed_utc(*paths: Path) -> str:
    times = [0.0]
    for path in paths:
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return datetime.fromtimestamp(max(times), UTC).isoformat(timespec="seconds")


def _as_one(kind: str) -> tuple[CacheItem, ...]:
    """Return what a compiler keeps, whose files belong together."""
    paths = tuple(path for path in entries(kind) if not is_left_over(path))
    whole = CacheItem(label="all", paths=paths, size_bytes=disk_usage(paths), locks=_any_build)
    return (*([whole] if paths else []), *left_over(kind))


def _builds() -> Iterator[CacheItem]:
    by_id: dict[str, list[CachedBuild]] = {}
    for build in cached_builds():
        by_id.setdefault(build.build_id, []).append(build)
    for build_id, builds in by_id.items():
        targets = {program.target for build in builds for program in build.programs}
        lock = _lock(builds[0].path.parent, build_id)
        yield CacheItem(
            label=f"{build_id} ({', '.join(targets) or builds[0].state})",
            paths=(*(build.path for build in builds), lock),
            size_bytes=sum(build.size_bytes for build in builds),
            locks=partial(dict, {lock: "another armload process is building it"}),
        )


def _any_build() -> Mapping[Path, str]:
    locks = [path for path in entries("builds") if path.suffix == ".lock"]
    return dict.fromkeys(locks, "another armload process is building with it")


def _any_build_or_fetch() -> Mapping[Path, str]:
    folders = entries("sources/git")
    locks = [path for path in folders if path.suffix == ".lock"]
    locks += [path / "lock" for path in folders if (path / "lock").exists()]
    return {**_any_build(), **dict.fromkeys(locks, "another armload process is fetching from git")}


def _lock(folder: Path, build_id: str) -> Path:
    return folder / f"{build_id}.lock"
