"""Boards as a person names them: by name, by label, or by a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from armload.boards.board import load_board
from armload.core.errors import UsageError
from armload.core.validation_messages import did_you_mean
from armload.core.workspace import data_names

LABEL = "@"
"""What a label begins with where a board is named."""

_WILD = frozenset("*?[")


def boards_called(words: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the boards that words mean, in their order.

    Args:
        words: names, ``@LABEL`` for all boards with that label, and patterns such as ``rk*``. A
            board that several labels or patterns mean counts once.

    Raises:
        UsageError: there is no such board, or no word, or a word stands there twice.
        DataError: a board's file is malformed.
    """
    given = [word.strip() for word in words if word.strip()]
    if not given:
        raise UsageError("--board: this names no board.", "See armload board.list.")
    for word in given:
        if given.count(word) > 1:
            raise UsageError(f"--board: {word} is listed twice.", "List it once.")
    return tuple(dict.fromkeys(name for word in given for name in _meant(word)))


def board_called(word: str) -> str:
    """Return the name of the one board that a word means.

    Raises:
        UsageError: there is none, or it means several.
        DataError: a board's file is malformed.
    """
    names = _meant(word)
    if len(names) > 1:
        raise UsageError(
            f"--board {word} means {len(names)} boards: {', '.join(names)}; this command takes "
            "only one.",
            "Name one of them.",
        )
    return names[0]


def _meant(word: str) -> list[str]:
    if word.startswith(LABEL):
        return _labelled(word.removeprefix(LABEL))
    if _WILD.isdisjoint(word):
        return [load_board(word).name]
    names = data_names("boards")
    found = [name for name in names if fnmatchcase(name, word)]
    if not found:
        raise UsageError(
            f"--board {word}: no board has a name like this.", f"Boards: {', '.join(names)}."
        )
    return found


def _labelled(label: str) -> list[str]:
    labels = {name: load_board(name).labels for name in data_names("boards")}
    found = [name for name, its in labels.items() if label in its]
    if not found:
        known = sorted({each for its in labels.values() for each in its})
        has = f"Labels: {', '.join(known)}." if known else "No board has labels yet."
        raise UsageError(
            f"--board {LABEL}{label}: no board has this label.",
            f"{did_you_mean(label, known)}{has} Add it under 'labels' in a board's file.",
        )
    return found
