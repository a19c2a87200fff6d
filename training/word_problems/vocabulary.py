"""A SentencePiece vocabulary for the word problems: words whole, digits one by one.

The pieces are learned as byte pairs are (Sennrich et al., 2016), and the score of a piece is its
rank, so llama.cpp's merging by score gives the same tokens as ``Encoder``.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from armload.models.vocabulary import BEGIN_ID, END_ID, SPACE, UNKNOWN_ID, TokenKind, Vocabulary

# No piece reaches beyond one of these.
_UNITS = re.compile(rf"[\\{SPACE}]?[A-Za-z]+\{{?|.", re.DOTALL)
_CONTROL = {UNKNOWN_ID: "<unk>", BEGIN_ID: "<s>", END_ID: "</s>"}


def learn(texts: Iterable[str]) -> Vocabulary:
    """Return a vocabulary in which every word of the texts is one piece."""
    units = Counter(unit for text in texts for unit in _units(text))
    words = {unit: tuple(unit) for unit in sorted(units) if len(unit) > 1}
    merged: dict[str, None] = {}
    while pairs := _pairs(words, units):
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        merged[left + right] = None
        words = {unit: _merge(parts, left, right) for unit, parts in words.items()}
    letters = [SPACE, *string.ascii_letters, *string.digits, *string.punctuation]
    control = [_CONTROL[number] for number in sorted(_CONTROL)]
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [
        *(TokenKind.UNKNOWN if each == "<unk>" else TokenKind.CONTROL for each in control),
        *(TokenKind.BYTE for _ in octets),
        *(TokenKind.NORMAL for _ in (*merged, *letters)),
    ]
    first = len(control) + len(octets)
    return Vocabulary(
        tokens=(*control, *octets, *merged, *letters),
        kinds=tuple(kinds),
        scores=tuple(
            float(first - number) if kind is TokenKind.NORMAL else 0.0
            for number, kind in enumerate(kinds)
        ),
        words=range(first, len(kinds)),
    )


class Encoder:
    """Text to tokens, as llama.cpp does it with this vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = {token: number for number, token in enumerate(vocabulary.tokens)}
        self._scores = dict(zip(vocabulary.tokens, vocabulary.scores, strict=True))
        self._unit = cache(self._encode_unit)

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text, without a begin or end token."""
        return [token for unit in _units(text) for token in self._unit(unit)]

    def _encode_unit(self, unit: str) -> tuple[int, ...]:
        parts = tuple(unit)
        while True:
            known = [pair for pair in _neighbours(parts) if "".join(pair) in self._scores]
            if not known:
                return tuple(token for part in parts for token in self._piece(part))
            parts = _merge(parts, *max(known, key=lambda pair: self._scores["".join(pair)]))

    def _piece(self, piece: str) -> list[int]:
        if piece in self._ids:
            return [self._ids[piece]]
        return [self._ids[f"<0x{byte:02X}>"] for byte in piece.encode()]


def _units(text: str) -> list[str]:
    return _UNITS.findall(text.replace(" ", SPACE))


def _neighbours(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(pairwise(parts))


def _pairs(words: dict[str, tuple[str, ...]], units: Counter[str]) -> Counter[tuple[str, str]]:
    pairs: Counter[tuple[str, str]] = Counter()
    for unit, parts in words.items():
        for pair in _neighbours(parts):
            pairs[pair] += units[unit]
    return pairs


def _merge(parts: tuple[str, ...], left: str, right: str) -> tuple[str, ...]:
    merged: list[str] = []
    for part in parts:
        if merged and merged[-1] == left and part == right:
            merged[-1] = left + right
        else:
            merged.append(part)
    return tuple(merged)
