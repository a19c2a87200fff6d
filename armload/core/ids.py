"""Ids of results, which sort by time, and fingerprints, which are equal where a command is."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime


def new_id(now: datetime, *names: str) -> str:
    """Return an id of its own for a result that begins at a time in UTC."""
    return f"{time_of_id(now)}-{'-'.join(names)}-{secrets.token_hex(2)}"


def time_of_id(now: datetime) -> str:
    """Return the beginning of an id, by which ids sort."""
    return f"{now:%Y%m%dT%H%M%SZ}"


def fingerprint_of(parts: Iterable[str]) -> str:
    """Return what is equal for equal parts alone."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
