"""What Invoke's parser does not understand, in armload's words and with its exit status."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext

from armload.cli.completion.names import names
from armload.cli.completion.table import CompletedOption, load_table
from armload.cli.error_output import failed
from armload.cli.llama_cpp_spellings import note_on
from armload.cli.streams import promise_document
from armload.core.errors import UsageError
from armload.core.files import is_there
from armload.core.near_names import did_you_mean

_JSON = {"--json", "-j"}
_PROGRAM_OPTIONS = ("--help", "--version")
"""Those that need no verb; Invoke's own are not offered."""


def shown(error: ParseError, words: Sequence[str], verbs: Collection[str]) -> Exit:
    """Show a mistake in a command line, and return what ends the program.

    Args:
        words: the command line.
        verbs: every one that there is.
    """
    verb = error.context.name if error.context and error.context.name else ""
    promise_document(wanted=bool(_JSON.intersection(words)))
    said = _in_our_words(str(error), verb)
    quoted = re.search(r"'(.+?)'", str(error))
    wrong = quoted[1] if quoted else ""
    if joined := _joined(wrong, verb, words, verbs):
        verb, hint = joined, f"Did you mean {joined!r}? "
    elif group := [name for name in verbs if not verb and name.startswith(f"{wrong}.")]:
        said, hint = f"{wrong!r} is a group of verbs.", f"Choose one: {', '.join(group)}. "
    elif wrong.startswith("-"):
        hint = _option_meant(wrong, error.context) if verb else _option_without_verb(wrong)
    elif wrong and error.context and verb:
        hint = _word_meant(wrong, error.context, words, verbs)
    elif wrong:
        hint = _verb_meant(wrong, verbs)
    else:
        hint = ""
    return failed(UsageError(said, f"{hint}See: armload {f'{verb} ' if verb else ''}--help"))


def second_verb(first: str, second: str) -> Exit:
    """Show that a command line names two verbs, and return what ends the program."""
    promise_document(wanted=bool(_JSON.intersection(sys.argv)))
    said = f"{first!r} and {second!r} are both verbs, and armload runs one at a time."
    return failed(UsageError(said, f"Run them in two commands. See: armload {first} --help"))


def _in_our_words(complaint: str, verb: str) -> str:
    lacking = re.match(r"Flag <Argument: ([\w-]+).*> needed value and was not given one", complaint)
    if lacking:
        return f"--{lacking[1].replace('_', '-')} needs a value."
    unknown = re.match(r"No idea what '(-.*)' is!", complaint)
    if unknown:
        return f"There is no option {unknown[1]!r}."
    word = re.match(r"No idea what (.*) is!", complaint)
    if word:
        return f"Unexpected argument {word[1]}." if verb else f"There is no verb {word[1]}."
    return complaint


def _joined(wrong: str, verb: str, words: Sequence[str], verbs: Collection[str]) -> str:
    """Return the verb that two words are, such as ``board down``; empty where they are none."""
    behind = words[words.index(wrong) + 1 :] if wrong in words else ()
    pairs = [(verb, wrong)] if verb else [(wrong, each) for each in behind[:1]]
    return next((name for name in map(".".join, pairs) if name in verbs), "")


def _option_meant(wrong: str, context: ParserContext | None) -> str:
    if wrong == "--prompts" and context and context.name == "eval":
        return (
            "To choose among a task's prompts, use --prompt NAMES; for --task logits, give a file "
            "of prompts with --data FILE. "
        )
    if context and (note := note_on(wrong, context.flags)):
        return note
    meant = did_you_mean(wrong, context.flags if context else ())
    return meant or _engine_option_meant(context)


def _option_without_verb(wrong: str) -> str:
    verbs = load_table()["verbs"].values()
    of_verbs = {each["name"] for verb in verbs for each in verb["options"]}
    if meant := did_you_mean(wrong, _PROGRAM_OPTIONS):
        return meant
    return f"{did_you_mean(wrong, of_verbs)}An option follows its verb. "


def _engine_option_meant(context: ParserContext | None) -> str:
    takes_more = context is not None and "--engine-args" in context.flags
    return 'Options of llama.cpp itself go into --engine-args "...". ' if takes_more else ""


def _verb_meant(wrong: str, verbs: Collection[str]) -> str:
    if ends := [name for name in verbs if name.endswith(f".{wrong}")]:
        return f"Did you mean {' or '.join(map(repr, ends))}? "
    return did_you_mean(wrong, verbs)


def _word_meant(
    wrong: str, context: ParserContext, words: Sequence[str], verbs: Collection[str]
) -> str:
    """Say what to do with a word that no option of a verb takes."""
    before = words[words.index(wrong) - 1] if wrong in words[1:] else ""
    for word in sys.argv:
        switch, equals, value = word.partition("=")
        if switch.startswith("--") and equals and value == wrong:
            return f"{switch} takes no value. "
    if before.startswith("-") and not _is_ours(before, context.flags):
        return _engine_option_meant(context)
    near: dict[str, str] = {}
    for option in _naming_options(context):
        known = [each.word for each in names(option["takes"], wrong, load_table())]
        if value := _value_meant(wrong, option, known):
            return _given_to(option, wrong, value, words)
        if option["takes"] != "file":
            near |= {each: f"{option['name']} {each}" for each in known if each not in near}
    # A verb that only begins so is not meant: "b" may be a second board or run.
    if alike := difflib.get_close_matches(wrong, verbs, n=1):
        return f"Did you mean {alike[0]!r}? "
    found = difflib.get_close_matches(wrong, near, n=1)
    return f"Did you mean {near[found[0]]}? " if found else ""


def _is_ours(word: str, flags: Collection[str]) -> bool:
    """Say whether a word is an option of the verb, perhaps with its value: not ``-ngl``."""
    has_letter = word[:2] in flags and not word[2:].isalpha()
    return word in flags or "=" in word or has_letter


_KINDS: Mapping[str, str] = {
    "board": "a board",
    "model": "a model",
    "target": "a target",
    "hardware": "hardware in the catalogue",
    "file": "a file",
}
"""What a word may be that lacks its option; by what options take, the likeliest first."""
_FILES = {"--plan": (".yaml", ".yml"), "--data": (".json", ".jsonl")}


def _naming_options(context: ParserContext) -> Iterator[CompletedOption]:
    """Yield those options of a verb for which a word without an option may be meant."""
    entry = load_table()["verbs"].get(context.name or "")
    options: list[CompletedOption] = [
        {**each, "takes": each["takes"].removeprefix("virtual ")}  # of any, its error says more
        for each in (entry["options"] if entry else ())
        if each["name"] in context.flags
    ]
    for takes in _KINDS:
        of_kind = [each for each in options if each["takes"] == takes]
        yield from of_kind if takes == "file" else of_kind[:1]


def _value_meant(word: str, option: CompletedOption, known: Sequence[str]) -> str:
    if option["takes"] == "file":
        is_meant = word.endswith(_FILES.get(option["name"], ()))
        return word if is_meant and is_there(Path(word)) and Path(word).is_file() else ""
    is_model = option["takes"] == "model"
    if word in known or (is_model and word.startswith(("hf:", "ms:", "like:"))):
        return word
    if is_model and word.endswith(".gguf"):
        return word
    return next((each for each in known if each.startswith(f"{word}:")), "")


def _given_to(option: CompletedOption, word: str, value: str, words: Sequence[str]) -> str:
    given = {each.partition("=")[0] for each in words}
    is_given = not {option["name"], option["letter"]}.isdisjoint(given)
    if is_given and not option["several"]:
        return f"{option['name']} takes only one value. "
    if is_given and option["several"] != "repeat":
        return f"To give {option['name']} several values, separate them with commas: A,{word}. "
    return f"{word} is {_KINDS[option['takes']]}: use {option['name']} {value}. "
