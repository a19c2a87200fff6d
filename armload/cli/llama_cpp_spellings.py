"""Options as llama.cpp's programs spell them, read as those of armload that mean the same."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from invoke.parser.context import ParserContext

from armload.core.options import LLAMA_CPP_SPELLINGS

_OURS: Mapping[str, str] = {
    spelling: f"--{name}"
    for name, spellings in LLAMA_CPP_SPELLINGS.items()
    for spelling in spellings
}
_SWITCH: Mapping[str, str] = {
    **dict.fromkeys(("on", "enabled", "true", "1"), "on"),
    **dict.fromkeys(("off", "disabled", "false", "0"), "off"),
    **dict.fromkeys(("auto", "-1"), "auto"),
}
_PREFIXES: Mapping[str, str] = {"--speculate": "draft:", "--model": "hf:"}
_OF_KEYS = {"-ctk", "--cache-type-k"}
_USUAL_KV_TYPE = "f16"
_GPU_LAYERS = {"-ngl", "--gpu-layers", "--n-gpu-layers"}
_DEFAULTS = {"-no-cnv", "--no-conversation", "--ignore-eos"}
"""What ``bench`` does anyway."""


_OF_ALL_SLOTS = (
    "llama-server divides its --ctx-size among its slots; --context is the size of each slot. "
)


def spellings_of(option: str, options: Collection[str]) -> tuple[str, ...]:
    """Return llama.cpp's spellings of an option, such as ``--batch``, of a verb with these options.

    A service's context has none: llama-server's is that of all its slots.
    """
    if _is_of_a_slot(option, options):
        return ()
    return LLAMA_CPP_SPELLINGS.get(option.removeprefix("--"), ())


def note_on(word: str, options: Collection[str]) -> str:
    """Say why a verb with these options does not take llama.cpp's spelling; empty where it does."""
    return _OF_ALL_SLOTS if _is_of_a_slot(_OURS.get(word, ""), options) else ""


def _is_of_a_slot(option: str, options: Collection[str]) -> bool:
    return option == "--context" and "--slots" in options


def option_spelled(word: str, options: Collection[str]) -> str:
    """Return the option that llama.cpp spells so, of those of a verb; empty where there is none."""
    ours = _OURS.get(word, "")
    return ours if ours in options and word in spellings_of(ours, options) else ""


def translated(
    words: Sequence[str], verbs: Mapping[str, ParserContext]
) -> tuple[list[str], list[str]]:
    """Return a command line in armload's own options, and notes about what has no effect."""
    verb = next((word for word in words if word in verbs), None)
    if verb is None:
        return list(words), []
    flags = verbs[verb].flags
    at = words.index(verb) + 1
    ours, left = list(words[:at]), deque(words[at:])
    notes: list[str] = []
    cache_types: dict[str, str] = {}
    while left:
        word = left.popleft()
        spelled, equals, value = word.partition("=")
        option = option_spelled(spelled, flags)
        is_of_gpu = spelled in _GPU_LAYERS and "--threads" in flags
        if equals and (option or is_of_gpu):
            left.appendleft(value)
        if word in flags:
            ours.append(word)
            ours += [left.popleft()] if flags[word].takes_value and left else []
        elif is_of_gpu and (layers := left.popleft() if left else "0") != "0":
            notes.append(
                f"{spelled} {layers} has no effect: the programs that armload builds compute on "
                "the CPU."
            )
        elif option == "--kv-type" and left:
            cache_types["keys" if spelled in _OF_KEYS else "values"] = left.popleft()
        elif option:
            ours += [option, *_value(option, left)]
        elif not (is_of_gpu or (word in _DEFAULTS and "--stop-at-end" in flags)):
            ours.append(word)
    if cache_types:
        ours += ["--kv-type", ",".join(_kv_types(cache_types))]
    return ours, notes


def _value(option: str, left: deque[str]) -> list[str]:
    """Take an option's value from what is left of a line, and return it as armload has it."""
    if option == "--flash-attention":
        # Until August 2025 it was a switch.
        has_value = bool(left) and all(each in _SWITCH for each in left[0].split(","))
        states = left.popleft().split(",") if has_value else ["on"]
        return [",".join(_SWITCH[each] for each in states)]
    return [f"{_PREFIXES.get(option, '')}{left.popleft()}"] if left else []


def _kv_types(cache_types: Mapping[str, str]) -> Iterator[str]:
    """Yield every combination of types of keys and of values."""
    keys, values = (cache_types.get(each, _USUAL_KV_TYPE).split(",") for each in ("keys", "values"))
    for key, value in itertools.product(keys, values):
        yield key if key == value else f"{key}/{value}"
