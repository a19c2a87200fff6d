"""Positional arguments: ``armload inspect FILE``, and the same for ``invoke inspect FILE``.

Invoke's parser gives the word after a verb to a positional argument that has no value, also when
that word is ``--help``, and it knows neither optional ones nor lists. So verbs give every
argument a default, which leaves Invoke nothing to fill, and words that are no options and would
otherwise be answered with "No idea what … is" fill the positional ones here.

Invoke joins what follows ``--`` to one string, in which a word with a space looks like two.
Here each such word fills a positional argument too, whatever it looks like: a NUL, which no word
of a command line can hold, goes before it while Invoke parses.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import cast

from invoke.exceptions import ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext, to_flag
from invoke.parser.parser import ParseMachine, Parser, ParseResult, is_flag

from armload.cli.llama_cpp_spellings import translated
from armload.cli.parse_errors import shown

_handled_by_invoke = ParseMachine.handle
_parsed_by_invoke = Parser.parse_argv

_BEHIND_DASHES = "\0"


def _parse_argv(parser: Parser, argv: list[str]) -> ParseResult:
    if "--complete" in sys.argv:  # shells' completion has its own use for the dashes
        return _parsed_by_invoke(parser, argv)
    before, behind = _split(argv)
    before, notes = translated(before, parser.contexts)
    if "--" in sys.argv and not any(word.startswith(_BEHIND_DASHES) for word in argv):
        # Invoke's own program has parsed once, and lost the words, before it loads the verbs.
        _, behind = _split(sys.argv)
    words = [*before, *(_BEHIND_DASHES + word for word in behind)]
    verbs = parser.contexts
    parser.contexts = _named_by(words, verbs)  # type: ignore[assignment]
    try:
        parsed = _parsed_by_invoke(parser, words)
    except ParseError as error:
        raise shown(error, argv, verbs) from error
    finally:
        parser.contexts = verbs
    if notes:
        from armload.cli.terminal import say

        for note in notes:
            say(note)
    return parsed


def _named_by(words: Sequence[str], verbs: Mapping[str, ParserContext]) -> dict[str, ParserContext]:
    """Return the verbs that a command line can name: Invoke copies all options of those it has."""
    parts = {part for word in words for part in (word, word.partition("=")[2], word[2:])}
    return {part: verbs[part] for part in parts if part in verbs}


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _handle(machine: ParseMachine, token: str) -> None:
    argument = _unfilled(machine)
    if machine.waiting_for_flag_value and not token:
        flag = cast("Argument", machine.flag)
        machine.error(f"{to_flag(str(flag.name))} must not be empty.")
    if token.startswith(_BEHIND_DASHES) and machine.current_state != "unknown":
        word = token.removeprefix(_BEHIND_DASHES)
        if argument is None:
            machine.error(f"No idea what {word!r} is!")
        else:
            argument.value = word
    elif argument is None or _is_read_by_invoke(machine, token):
        _refuse_a_second_value(machine, token)
        _handled_by_invoke(machine, token)
    else:
        argument.value = token


def _refuse_a_second_value(machine: ParseMachine, token: str) -> None:
    if machine.waiting_for_flag_value or machine.current_state == "unknown":
        return
    name = token.partition("=")[0]
    flags = machine.context.flags if machine.context else {}
    known = flags[name] if name in flags else None  # noqa: SIM401 - its get knows no letters
    if known is not None and known.takes_value and known.kind is not list and known.got_value:
        full = to_flag(str(known.name))
        machine.error(f"{name}{'' if name == full else f' ({full})'} is given twice.")


def _unfilled(machine: ParseMachine) -> Argument | None:
    for argument in machine.context.positional_args if machine.context else ():
        if argument.kind is list or not argument.got_value:
            return argument
    return None


def _is_read_by_invoke(machine: ParseMachine, token: str) -> bool:
    return is_flag(token) or machine.waiting_for_flag_value or machine.current_state == "unknown"


def read_positional_arguments() -> None:
    """Teach Invoke's parser, which lets nobody put another in its place, about these arguments."""
    ParseMachine.handle = _handle  # type: ignore[method-assign, assignment]
    Parser.parse_argv = _parse_argv  # type: ignore[method-assign, assignment]
