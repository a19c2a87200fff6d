"""A small vocabulary that reads any text and, with random weights, writes English words.

It is of the SentencePiece kind that llama.cpp calls ``llama``: pieces are merged from left
to right, so each word brings all its beginnings along, and whatever has no piece is read
as bytes.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import resources

SPACE = "\u2581"
"""SentencePiece's mark for the space before a word."""

UNKNOWN_ID, BEGIN_ID, END_ID = 0, 1, 2


class TokenKind(IntEnum):
    """llama.cpp's token types (``llama_token_type``)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens in the order of their ids.

    Attributes:
        tokens: the pieces.
        kinds: their types.
        scores: what SentencePiece merges by; higher first. None of byte pairs.
        merges: pairs of pieces that byte pairs are merged to, the first first.
        words: ids of the whole words, the only ones a model should say.
    """

    tokens: tuple[str, ...]
    kinds: tuple[TokenKind, ...]
    scores: tuple[float, ...] = ()
    merges: tuple[tuple[str, str], ...] = ()
    words: range


@cache
def english_words() -> tuple[str, ...]:
    """Return some hundred common English words."""
    text = resources.files("armload.models").joinpath("words.txt").read_text(encoding="utf-8")
    return tuple(dict.fromkeys(text.split()))


def smallest_vocabulary() -> int:
    """Return the number of tokens that ``vocabulary`` needs at least."""
    return len(_with_words(1)[0])


def vocabulary(size: int) -> Vocabulary:
    """Return a vocabulary of exactly ``size`` tokens: as many words as fit, the rest unused.

    Raises:
        ValueError: ``size`` is below ``smallest_vocabulary()``.
    """
    count = len(english_words())
    needed, words = _with_words(count)
    while len(needed) > size:
        count -= 1
        if not count:
            raise ValueError(f"a vocabulary needs at least {len(needed)} tokens, not {size}")
        needed, words = _with_words(count)
    unused = [(f"<unused{number}>", TokenKind.UNUSED) for number in range(size - len(needed))]
    tokens, kinds = zip(*needed, *unused, strict=True)
    return Vocabulary(
        tokens=tokens,
        kinds=kinds,
        scores=tuple(
            0.0 if kind is not TokenKind.NORMAL else -float(i) for i, kind in enumerate(kinds)
        ),
        words=words,
    )


@cache
def _with_words(count: int) -> tuple[tuple[tuple[str, TokenKind], ...], range]:
    control = (
        ("<unk>", TokenKind.UNKNOWN),
        ("<s>", TokenKind.CONTROL),
        ("</s>", TokenKind.CONTROL),
    )
    single_bytes = ((f"<0x{byte:02X}>", TokenKind.BYTE) for byte in range(256))
    words = [SPACE + word for word in english_words()[:count]]
    letters = dict.fromkeys(string.ascii_letters + string.digits + string.punctuation)
    pieces = dict.fromkeys([*letters, *beginnings(words)])
    spoken = set(words)
    others = [piece for piece in pieces if piece not in spoken]
    before = [*control, *single_bytes, *((piece, TokenKind.NORMAL) for piece in others)]
    needed = (*before, *((word, TokenKind.NORMAL) for word in words))
    return needed, range(len(before), len(needed))


def beginnings(words: Iterable[str]) -> dict[str, None]:
    """Return all that words begin with, shorter ones of a word first, each once."""
    return {word[:length]: None for word in words for length in range(1, len(word))}
