"""Names that are like a mistyped one, and where all names are listed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

MOST_LISTED = 12
"""Names in an error; of more, the command that lists them is named."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``Did you mean 'dayu200'? `` with the name most like a mistyped one; empty without."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""


def nearest_first(name: str, names: Collection[str]) -> str:
    """List names, those like a mistyped one first: ``dayu200, virtual``; of many, not all."""
    near = difflib.get_close_matches(name, names, n=3)
    ordered = list(dict.fromkeys([*near, *names]))
    if len(ordered) <= MOST_LISTED:
        return ", ".join(ordered)
    listed = ", ".join(ordered[:MOST_LISTED])
    return f"{listed}, and {len(ordered) - MOST_LISTED} others"


def available(name: str, names: Collection[str], listing: str, more: str = "") -> str:
    """Say which names there are instead of a mistyped one; of many, the likeliest.

    Args:
        listing: the command that lists them all.
        more: a sentence on what else can be done.
    """
    hint = did_you_mean(name, names)
    if len(names) <= MOST_LISTED:
        return f"{hint}Available: {nearest_first(name, names)}. {more}".rstrip()
    return f"{hint}{f'{more} ' if more else ''}To list all {len(names)}: {listing}"
