"""Boards as a person names them: by name, by label, or by a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from armload.boards.board import is_group, load_board
from armload.boards.group import load_group
from armload.core.errors import UsageError
from armload.core.near_names import did_you_mean, nearest_first
from armload.core.trust import describing
from armload.core.workspace import data_names

LABEL = "@"
"""What a label begins with where a board is named."""

_WILD = frozenset("*?[")


def is_name(word: str) -> bool:
    """Return whether a word is the name of one board, and not a label or a pattern."""
    return not word.startswith(LABEL) and _WILD.isdisjoint(word)


def boards_called(words: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the boards that words mean, in their order.

    Args:
        words: names, ``@LABEL`` for all boards with that label, and patterns such as ``rk*``, in
            any case. A board that several labels or patterns match counts once; they match no
            group.
    """
    given = [word.strip() for word in words if word.strip()]
    if not given:
        raise UsageError("--board: no board is named.", "See: armload board.list")
    for word in given:
        if given.count(word) > 1:
            raise UsageError(f"--board: {word} is listed twice.", "List it once.")
    return tuple(dict.fromkeys(name for word in given for name in _meant(word)))


def board_called(word: str) -> str:
    """Return the name of the one board that a word means."""
    names = _meant(word)
    if len(names) > 1:
        raise UsageError(
            f"{word} matches {len(names)} boards: {', '.join(names)}. This command takes only one.",
            "Name one of them.",
        )
    return names[0]


def _meant(word: str) -> list[str]:
    if word.startswith(LABEL):
        label = word.removeprefix(LABEL)
        with describing():  # whichever is chosen is read again
            labels = {name: load_board(name).labels for name in _single_boards()}
        folded = label.casefold()
        found = [name for name, its in labels.items() if folded in map(str.casefold, its)]
        if not found:
            known = sorted({each for its in labels.values() for each in its})
            has = f"Labels: {nearest_first(label, known)}." if known else "No board has labels yet."
            raise UsageError(
                f"{LABEL}{label}: no board has this label.",
                f"{did_you_mean(label, known)}{has} Add it under 'labels' in a board's file.",
            )
        return found
    if is_name(word):
        return [load_group(word).name if is_group(word) else load_board(word).name]
    names = _single_boards()
    found = [name for name in names if fnmatchcase(name.casefold(), word.casefold())]
    if not found:
        raise UsageError(f"{word}: no board matches.", f"Boards: {nearest_first(word, names)}.")
    return found


def _single_boards() -> list[str]:
    return [name for name in data_names("boards") if not is_group(name)]
