"""Ids of results, which sort by time, and fingerprints, which are equal where a command is."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

_TIME = "%Y%m%dT%H%M%SZ"


def new_id(now: datetime, *names: str) -> str:
    """Return an id of its own for a result that begins at a time in UTC."""
    return f"{time_of_id(now)}-{'-'.join(names)}-{secrets.token_hex(2)}"


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
