"""What ``armload __complete SHELL LINE`` prints to a shell's script for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from armload.cli.completion.names import CompletionWord, names, open_ended
from armload.cli.completion.table import CompletedOption, CompletionTable, VerbEntry, load_table
from armload.cli.verb import ALL_VERBS

_SEPARATORS = frozenset("\t\n")
_SPECIAL = frozenset(" \"'\\$`&;|<>()*?[]{}!#")

_PIECE = re.compile(
    r"""(?P<end>[;|&(\n])
    | (?P<space>\s+)
    | '(?P<single>[^']*)(?P<single_closed>')?
    | "(?P<double>(?:\\.|[^"\\])*\\?)(?P<double_closed>")?
    | \\(?P<escaped>.?)
    | (?P<plain>.)""",
    re.DOTALL | re.VERBOSE,
)
_OPEN = {"single": "'", "double": '"'}


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


class Typed(NamedTuple):
    """What is typed up to the cursor.

    Attributes:
        words: before the one at the cursor, without quotes; the program is the first.
        current: the word at the cursor, without quotes.
        quote: that is still open in it.
        kept: how many characters of ``current`` a shell leaves alone that replaces only what
            follows the last break.
    """

    words: tuple[str, ...]
    current: str
    quote: str
    kept: int


def split(line: str, breaks: str = "") -> Typed:
    """Split a line as a shell does.

    Args:
        breaks: characters at which the shell begins to replace.
    """
    words: list[str] = []
    current, quote, kept, is_begun = "", "", 0, False
    for piece in _PIECE.finditer(line):
        kind = piece.lastgroup or ""
        if kind in {"end", "space"}:
            if kind == "end":
                words.clear()
            elif is_begun:
                words.append(current)
            current, kept, is_begun = "", 0, False
            continue
        quote = _OPEN.get(kind, "")
        before, current = current, current + _unquoted(piece)
        is_begun = True
        if quote:
            kept = len(before)
        elif kind == "plain" and piece["plain"] in breaks:
            kept = len(current)
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        del words[0]
    return Typed(tuple(words), current, quote, kept)


def _unquoted(piece: re.Match[str]) -> str:
    if piece["double"] is not None:
        return re.sub(r'\\(["\\$`])', r"\1", piece["double"])
    return piece["single"] or piece["escaped"] or piece["plain"] or ""


def candidates(typed: Typed, table: CompletionTable) -> list[CompletionWord]:
    """Return the words that can stand where the cursor is."""
    _, *words = typed.words
    found = dict.fromkeys(_following(words, typed.current, table))
    return [each for each in found if each.word.startswith(typed.current)]


def _following(words: list[str], current: str, table: CompletionTable) -> list[CompletionWord]:
    verbs = [CompletionWord(name, entry["about"]) for name, entry in table["verbs"].items()]
    if not words:
        return [*verbs, _HELP_VERB, *(_PROGRAM if current.startswith("-") else ())]
    if words == [_HELP_VERB.word]:
        return [*verbs, _EVERY_VERB]
    verb = table["verbs"].get(words[0])
    if verb is None:
        return []
    state = _read(verb, words[1:])
    options = [] if state.is_after_dashes else _options(verb, state.given, current)
    if state.waiting is not None:
        return list(_values(state.waiting, current, table))
    if options and current.startswith("-"):
        name, equals, value = current.partition("=")
        option = _option(verb, name)
        if not equals or option is None:
            return options
        return [each._replace(word=f"{name}={each.word}") for each in _values(option, value, table)]
    found = list(_values(state.argument, current, table)) if state.argument else []
    return found if found or current else options


_HELP = CompletionWord("--help", "show this page")
_HELP_VERB = CompletionWord("help", "show the help page of a verb")
_EVERY_VERB = CompletionWord(ALL_VERBS, "all verbs by group, and the exit statuses")
_PROGRAM = (_HELP, CompletionWord("--version", "show the version"))


class _State(NamedTuple):
    """What the words after a verb leave to be typed.

    Attributes:
        given: names of options.
        waiting: the option whose value is to follow.
        argument: the positional argument that is to follow.
    """

    given: set[str]
    waiting: CompletedOption | None
    argument: CompletedOption | None
    is_after_dashes: bool


def _read(verb: VerbEntry, words: list[str]) -> _State:
    given: set[str] = set()
    waiting: CompletedOption | None = None
    arguments = list(verb["arguments"])
    is_after_dashes = False
    for word in words:
        if waiting is not None:
            waiting = None
        elif word == "--" and not is_after_dashes:
            is_after_dashes = True
        elif word.startswith("-") and not is_after_dashes:
            name, equals, _ = word.partition("=")
            option = _option(verb, name)
            if option is not None:
                given.add(option["name"])
                waiting = None if equals or option["takes"] == "switch" else option
        elif arguments and not arguments[0]["several"]:
            del arguments[0]
    if not is_after_dashes:
        arguments = [each for each in arguments if not each.get("is_behind")]
    return _State(given, waiting, arguments[0] if arguments else None, is_after_dashes)


def _option(verb: VerbEntry, name: str) -> CompletedOption | None:
    return next(
        (
            each
            for each in verb["options"]
            if name in {each["name"], each["letter"], *each["spellings"]}
        ),
        None,
    )


def _options(verb: VerbEntry, given: set[str], current: str) -> list[CompletionWord]:
    left = [
        each for each in verb["options"] if each["name"] not in given or each["several"] == "repeat"
    ]
    words = [*(CompletionWord(each["name"], each["about"]) for each in left), _HELP]
    if any(word.word.startswith(current) for word in words):
        return words
    return [
        CompletionWord(each, option["about"]) for option in left for each in option["spellings"]
    ]


def _values(
    parameter: CompletedOption, current: str, table: CompletionTable
) -> Iterator[CompletionWord]:
    """Yield what a value can be; of a list with commas, what its last one can be."""
    before, comma, last = "", "", current
    if parameter["several"] in {"commas", "files"}:
        before, comma, last = current.rpartition(",")
    listed = before.split(",")
    for each in (
        *map(open_ended, parameter["choices"]),
        *names(parameter["takes"], last, table),
    ):
        if each.word not in listed:
            yield each._replace(word=f"{before}{comma}{each.word}")
