"""What ``armload __complete SHELL LINE`` prints to a shell's script for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from armload.cli.completion.command_line import Typed, candidates, split
from armload.cli.completion.names import CompletionWord
from armload.cli.completion.table import load_table

_SEPARATORS = frozenset("\t\n")
_SPECIAL = frozenset(" \"'\\$`&;|<>()*?[]{}!#")


def answer(words: Sequence[str]) -> None:
    """Print what can follow on a line, one candidate a line; nothing where anything fails.

    Args:
        words: the shell, the line up to the cursor and, for bash, the characters at which it
            divides words beside spaces.
    """
    try:
        shell, line, *breaks = words
        typed = split(line, "".join(breaks))
        lines = [
            _LINES[shell](each, typed)
            for each in candidates(typed, load_table())
            if not _SEPARATORS & set(each.word)
        ]
        sys.stdout.buffer.write(os.fsencode("".join(lines)))
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - an error in the middle of a line that is being typed helps nobody
        return


def _for_bash(candidate: CompletionWord, typed: Typed) -> str:
    rest = _quoted(candidate.word[typed.kept :], typed)
    # An open quote is closed by readline.
    return rest + (" " if candidate.is_whole and not typed.quote else "") + "\n"


def _for_zsh(candidate: CompletionWord, typed: Typed) -> str:
    end = "whole" if candidate.is_whole else "open"
    return f"{end}\t{_quoted(candidate.word, typed)}\t{candidate.word}\t{candidate.about}\n"


def _for_fish(candidate: CompletionWord, _: Typed) -> str:
    return f"{candidate.word}\t{candidate.about}\n"


def _quoted(word: str, typed: Typed) -> str:
    if typed.quote:
        return word
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in word)


_LINES = {"bash": _for_bash, "zsh": _for_zsh, "fish": _for_fish}
