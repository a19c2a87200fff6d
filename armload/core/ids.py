"""Ids: of results, which sort by time; of equal commands; of where a process runs."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypedDict

from armload import __version__

_TIME = "%Y%m%dT%H%M%SZ"


class Beginning(TypedDict):
    """How each result says when it began; fields of its header.

    Attributes:
        armload: the version that began it.
    """

    id: str
    started_utc: str
    armload: str


def begins_now(*names: str) -> Beginning:
    """Return the beginning of a result, with an id of its own in which the names stand."""
    now = datetime.now(UTC)
    return Beginning(
        id=f"{time_of_id(now)}-{'-'.join(names)}-{secrets.token_hex(2)}",
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
    )


def time_of_id(now: datetime) -> str:
    """Return the beginning of an id, by which ids sort."""
    return now.strftime(_TIME)


def begun(result_id: str) -> datetime | None:
    """Return when a result began, by its id; none if a person has renamed its folder."""
    try:
        return datetime.strptime(result_id.partition("-")[0], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def fingerprint_of(parts: Iterable[str]) -> str:
    """Return what is equal for equal parts alone."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def boot_id() -> str:
    """Return what tells this machine's boot from all others; empty where the system does not."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Return in which numbers of processes have this one's meaning; empty without namespaces."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - the link's target is no path
    except OSError:
        return ""
