"""Names that are like a mistyped one, and where all names are listed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from itertools import takewhile

MOST_LISTED = 12
"""Names in an error; of more, the command that lists them is named."""

_ALIKE, _SHORT_ALIKE = 0.6, 0.75
_SHORT_LETTERS = 4
_BEGUN_SHARE = 0.4
"""Of a name's letters, below which its beginning is more likely another word."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``Did you mean 'dayu200'? `` with the name most like a mistyped one; empty without."""
    typed = name.lstrip("-")  # two dashes would make any two short options alike
    by_word = {each.lstrip("-"): each for each in names}
    begun = [each for each in by_word if typed and each.startswith(typed)]
    if len(typed) < _SHORT_LETTERS:
        begun = [
            each
            for each in begun
            if each.startswith(f"{typed}-") or len(typed) >= _BEGUN_SHARE * len(each)
        ]
    near = begun or close_matches(typed, by_word)

    def likeness(each: str) -> tuple[bool, bool, float, int]:
        ratio = difflib.SequenceMatcher(None, each, typed).ratio()
        same = takewhile(lambda pair: pair[0] == pair[1], zip(each, typed, strict=False))
        # rk3568 and rk3576 are equally like rk3569
        return each == typed, each.startswith(f"{typed}-"), ratio, len(list(same))

    return f"Did you mean {by_word[max(near, key=likeness)]!r}? " if near else ""


def close_matches(typed: str, names: Collection[str], count: int = 3) -> list[str]:
    """Return the names most like a word; to a short one, fewer letters may differ."""
    is_short = len(typed) <= _SHORT_LETTERS
    near = difflib.get_close_matches(
        typed, names, n=count, cutoff=_SHORT_ALIKE if is_short else _ALIKE
    )
    return near or [each for each in names if sorted(each) == sorted(typed)][:count]


def nearest_first(name: str, names: Collection[str]) -> str:
    """List names, those like a mistyped one first: ``dayu200, virtual``; of many, not all."""
    near = close_matches(name, names)
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
