"""Lists of names in messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``Did you mean 'dayu200'? `` with the name most like a mistyped one; empty without."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""


def nearest_first(name: str, names: Collection[str]) -> str:
    """List names, those like a mistyped one first: ``dayu200, virtual``."""
    near = difflib.get_close_matches(name, names, n=3)
    return ", ".join(dict.fromkeys([*near, *names]))
