"""A vocabulary of byte pairs: reads any text, and has special tokens where a real one has them.

The first 256 tokens are the bytes, in the order and with the letters of GPT-2; a text that
consists of nothing else can be read. Words are merged letter by letter from the space before
them. Further tokens, as many as requested, are two or more words in one, and are never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, islice, product

from armload.models.shape import BytePairs
from armload.models.vocabulary import TokenKind, Vocabulary, beginnings, english_words

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def byte_letters() -> dict[int, str]:
    """Return the letter that stands for each byte, in the order of the tokens."""
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    letters = {byte: chr(byte) for byte in _PRINTABLE}
    return letters | {byte: chr(256 + number) for number, byte in enumerate(others)}


SPACE = byte_letters()[0x20]
"""The letter of the space before a word."""


def smallest_text() -> int:
    """Return the number of tokens for text that ``byte_pairs_vocabulary`` needs at least."""
    return len(_pieces()) + len(english_words())


def byte_pairs_vocabulary(tokenizer: BytePairs, size: int) -> Vocabulary:
    """Return a vocabulary of exactly ``size`` tokens.

    The caller has checked that text, special tokens and size go together.
    """
    words = [SPACE + word for word in english_words()]
    pieces = _pieces()
    known = dict.fromkeys([*pieces, *words])
    compounds = islice(
        (each for each in _compounds() if each not in known), tokenizer.text_tokens - len(known)
    )
    text = (*known, *compounds)
    rest = size - len(text) - len(tokenizer.special)
    first = tokenizer.filler.first
    fillers = [tokenizer.filler.name.format(number) for number in range(first, first + rest)]
    filler_kind = TokenKind.CONTROL if tokenizer.filler.kind == "control" else TokenKind.UNUSED
    special = (
        TokenKind.USER_DEFINED if name in tokenizer.plain else TokenKind.CONTROL
        for name in tokenizer.special
    )
    return Vocabulary(
        tokens=(*text, *tokenizer.special, *fillers),
        kinds=(*(TokenKind.NORMAL for _ in text), *special, *(filler_kind for _ in fillers)),
        merges=tuple((each[:-1], each[-1]) for each in known if len(each) > 1),
        words=range(len(pieces), len(text)),
    )


def _pieces() -> list[str]:
    words = [SPACE + word for word in english_words()]
    spoken = set(words)
    pieces = dict.fromkeys([*byte_letters().values(), *beginnings(words)])
    return [piece for piece in pieces if piece not in spoken]


def _compounds() -> Iterator[str]:
    """Yield words of two words, then of three, each once, without end."""
    seen: set[str] = set()
    longer = (product(english_words(), repeat=number) for number in count(2))
    for words in chain.from_iterable(longer):
        compound = SPACE + "".join(words)
        if compound not in seen:
            seen.add(compound)
            yield compound
