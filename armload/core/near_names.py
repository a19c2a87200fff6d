"""Names that are like a mistyped one, and where all names are listed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from itertools import takewhile

MOST_LISTED = 12
"""Names in an error; of more, the command that lists them is named."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``Did you mean 'dayu200'? `` with the name most like a mistyped one; empty without."""
    typed = name.lstrip("-")  # two dashes would make any two short options alike
    by_word = {each.lstrip("-"): each for each in names}
    begun = [each for each in by_word if typed and each.startswith(typed)]
    near = begun or difflib.get_close_matches(typed, by_word, n=3)

    def likeness(each: str) -> tuple[bool, bool, float, int]:
        ratio = difflib.SequenceMatcher(None, each, typed).ratio()
        same = takewhile(lambda pair: pair[0] == pair[1], zip(each, typed, strict=False))
        # rk3568 and rk3576 are equally like rk3569
        return each == typed, each.startswith(f"{typed}-"), ratio, len(list(same))

    return f"Did you mean {by_word[max(near, key=likeness)]!r}? " if near else ""


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
