"""Reads a command line by the options that its verb declares, as llama.cpp spells them too."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from armload.cli.configuration import Word
from armload.cli.mistakes import mistake, unexpected_word, unknown_option
from armload.cli.verb import HELP_ALL, Verb
from armload.core.options import Declared, declared_options

HELP = ("--help", "-h")
_SWITCH: Mapping[str, str] = {
    **dict.fromkeys(("on", "enabled", "true", "1"), "on"),
    **dict.fromkeys(("off", "disabled", "false", "0"), "off"),
    **dict.fromkeys(("auto", "-1"), "auto"),
}
_PREFIXES: Mapping[str, str] = {"speculate": "draft:", "model": "hf:"}
_OF_KEYS = {"-ctk", "--cache-type-k"}
_USUAL_KV_TYPE = "f16"
_GPU_LAYERS = {"-ngl", "--gpu-layers", "--n-gpu-layers"}
_DEFAULTS = {"-no-cnv", "--no-conversation", "--ignore-eos"}
"""What ``bench`` does anyway."""


class CommandLine(NamedTuple):
    """What was typed behind a verb.

    Attributes:
        words: by the names of fields.
        notes: what has no effect, and why.
        asks_help: it asks for the verb's page of help.
        asks_all: for that of all options.
    """

    words: Mapping[str, Word]
    notes: Sequence[str] = ()
    asks_help: bool = False
    asks_all: bool = False


def read_options(verb: Verb, words: Sequence[str]) -> CommandLine:
    """Read the words behind a verb; those behind ``--`` are arguments, whatever they look like.

    Raises:
        UsageError: an option does not exist, lacks its value or is given twice; or a word is one
            too many.
    """
    return _Reader(verb, words).read()


class _Reader:
    def __init__(self, verb: Verb, words: Sequence[str]) -> None:
        at = words.index("--") if "--" in words else len(words)
        self._left, self._behind = deque(words[:at]), words[at + 1 :]
        self._verb = verb
        self._declared = list(declared_options(verb.options))
        self._options: dict[str, Declared] = {}
        for each in self._declared:
            letter = {f"-{each.letter}": each} if each.letter else {}
            self._options |= {f"--{each.name}": each, **letter}
        self._spelled = {spelling: each for each in self._declared for spelling in each.spellings}
        self._words: dict[str, Word] = {}
        self._notes: list[str] = []
        self._cache_types: dict[str, str] = {}

    def read(self) -> CommandLine:
        before = ""
        while self._left:
            word = self._left.popleft()
            if word in HELP or word == HELP_ALL:
                return CommandLine({}, asks_help=True, asks_all=word == HELP_ALL)
            if not word:
                raise mistake("An argument must not be empty.", self._verb.name)
            if word.startswith("-"):
                self._read_option(word)
            else:
                self._fill(word, before)
            before = word
        for word in self._behind:
            self._fill(word, is_behind=True)
        if self._cache_types:
            keys = self._cache_types.get("keys", _USUAL_KV_TYPE).split(",")
            values = self._cache_types.get("values", _USUAL_KV_TYPE).split(",")
            pairs = itertools.product(keys, values)
            kinds = (key if key == value else f"{key}/{value}" for key, value in pairs)
            self._give("--kv-type", self._options["--kv-type"], ",".join(kinds))
        return CommandLine(self._words, self._notes)

    def _read_option(self, word: str) -> None:
        typed, equals, value = word.partition("=")
        option = self._options.get(typed) or self._spelled.get(typed)
        is_of_gpu = typed in _GPU_LAYERS and "--threads" in self._options
        if equals and (option or is_of_gpu):
            self._left.appendleft(value)
        if option and option.is_switch:
            if equals:
                raise mistake(f"{typed} takes no value.", self._verb.name)
            self._words[option.field] = True
        elif typed in self._options and option:
            self._give(typed, option, self._value_of(option, is_there=bool(equals)))
        elif option:
            self._read_spelled(typed, option, is_there=bool(equals))
        elif is_of_gpu:
            layers = self._value(typed, is_there=bool(equals))
            if layers != "0":
                self._notes.append(
                    f"{typed} {layers} has no effect: the programs that armload builds compute on "
                    "the CPU."
                )
        elif word in _DEFAULTS and "--stop-at-end" in self._options:
            pass
        elif (letter := self._options.get(word[:2])) and word[1] != "-":
            self._left.appendleft(f"-{word[2:]}" if letter.is_switch else word[2:])
            self._read_option(word[:2])
        else:
            raise unknown_option(typed, self._verb.name, self._options)

    def _read_spelled(self, typed: str, option: Declared, *, is_there: bool) -> None:
        """Read an option in a spelling of llama.cpp's, whose values differ from ours."""
        if option.name == "flash-attention":
            # Until August 2025 it was a switch.
            states = self._left[0].split(",") if self._left else []
            if states and (states[0] in _SWITCH or not states[0].startswith("-")):
                self._left.popleft()
            else:
                states = ["on"]
            if unknown := [each for each in states if each not in _SWITCH]:
                said = f"{typed} {unknown[0]}: must be on, off or auto."
                raise mistake(said, self._verb.name)
            self._give(typed, option, ",".join(_SWITCH[each] for each in states))
            return
        value = self._value_of(option, is_there=is_there)
        if option.name == "kv-type":
            from armload.engines.plan import KV_TYPES, no_kv_type

            # What is made of it below would be refused under a name that nobody typed.
            if wrong := next((each for each in value.split(",") if each not in KV_TYPES), None):
                raise mistake(f"{typed}: {no_kv_type(wrong)}.", self._verb.name)
            self._cache_types["keys" if typed in _OF_KEYS else "values"] = value
        else:
            self._give(typed, option, _PREFIXES.get(option.name, "") + value)

    def _value_of(self, option: Declared, *, is_there: bool) -> str:
        return self._value(f"--{option.name}", is_there=is_there, is_text=not option.takes)

    def _value(self, shown: str, *, is_there: bool, is_text: bool = False) -> str:
        """Take the value of an option, which no option of its own can be.

        Args:
            shown: the option's name.
            is_there: it was given with the option, behind an equals sign.
            is_text: it is free, and may begin as options of the engine do.
        """
        word = self._left[0] if self._left else None
        if word is None or (not is_there and self._is_option(word, is_text=is_text)):
            raise mistake(f"{shown} needs a value.", self._verb.name)
        if not word:
            raise mistake(f"{shown} must not be empty.", self._verb.name)
        return self._left.popleft()

    def _is_option(self, word: str, *, is_text: bool) -> bool:
        if word in self._options or word in HELP:
            return True
        return not is_text and (word in self._spelled or word.startswith("--"))

    def _give(self, typed: str, option: Declared, value: str) -> None:
        if option.field in self._words and not option.is_repeated:
            full = f"--{option.name}"
            also = "" if typed == full else f" ({full})"
            hint = ""
            if option.is_list:
                both = f"{self._words[option.field]},{value}"
                hint = f"To give it several values, separate them with commas: {full} {both}. "
            raise mistake(f"{typed}{also} is given twice.", self._verb.name, hint)
        self._set(option, value)

    def _set(self, option: Declared, value: str) -> None:
        former = self._words.get(option.field)
        if option.is_repeated:
            self._words[option.field] = [*(former if isinstance(former, list) else ()), value]
        else:
            self._words[option.field] = value

    def _fill(self, word: str, before: str = "", *, is_behind: bool = False) -> None:
        """Give a word to the next positional argument.

        Args:
            before: the word before it.
            is_behind: it follows ``--``.
        """
        for each in self._declared:
            is_open = each.field not in self._words or each.is_repeated
            fits = each.option.is_argument and (is_behind or not each.option.is_behind)
            if fits and is_open:
                self._set(each, word)
                return
        given = {f"--{each.name}" for each in self._declared if each.field in self._words}
        # In -mg 0, g is the value of -m, and 0 that of an option of llama.cpp.
        is_attached = before in self._options or before in self._spelled or "=" in before
        is_foreign = before.startswith("-") and before[2:].isalpha() and not is_attached
        raise unexpected_word(
            word, self._verb.name, self._options, given=given, is_of_engine=is_foreign
        )
