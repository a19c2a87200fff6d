"""Lists of names in messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest_first(name: str, names: Collection[str]) -> str:
    """List names, those like a mistyped one first: ``dayu200, virtual``."""
    near = difflib.get_close_matches(name, names, n=3)
    return ", ".join(dict.fromkeys([*near, *names]))
