"""What the words of a llama.cpp command set: the context and the KV cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from armload.engines.llama_cpp import REPACK_OPTIONS

_KEY_TYPE = ("-ctk", "--cache-type-k")
_VALUE_TYPE = ("-ctv", "--cache-type-v")
_CONTEXT = ("-c", "--ctx-size")
_DEFAULT_KV_TYPE = "f16"


def context_tokens(words: Sequence[str]) -> int | None:
    """Return the context that a command asks for; none where it leaves that to the engine."""
    value = _value(words, _CONTEXT)
    return int(value) if value is not None and value.isdecimal() else None


def kv_type(words: Sequence[str]) -> str:
    """Return the types of keys and values in the KV cache, such as ``q8_0/f16``."""
    return "/".join(_value(words, each) or _DEFAULT_KV_TYPE for each in (_KEY_TYPE, _VALUE_TYPE))


def other_words(words: Sequence[str]) -> list[str]:
    """Return what sets neither context nor KV cache, nor whether weights are repacked."""
    left, parts = [], iter(_split(words))
    for part in parts:
        if part in (*_KEY_TYPE, *_VALUE_TYPE, *_CONTEXT):
            next(parts, None)
        elif part not in REPACK_OPTIONS:
            left.append(part)
    return left


def _value(words: Sequence[str], options: Collection[str]) -> str | None:
    found = None
    for word, value in pairwise(_split(words)):
        if word in options:
            found = value
    return found


def _split(words: Sequence[str]) -> list[str]:
    return [part for word in words for part in (word.split("=", 1) if word[:1] == "-" else [word])]
