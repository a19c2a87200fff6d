"""How many tokens a text has, counted on this machine as llama.cpp reads it.

Nearly all models have one of two kinds of vocabularies: SentencePiece's ``llama``, whose pieces are
merged by their scores, and ``gpt2``, whose bytes are merged within each word. What a word is,
llama.cpp knows by ``tokenizer.ggml.pre``: see ``llm_tokenizer_bpe`` and ``unicode_regex_split``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path

from armload.models.byte_pairs import byte_letters
from armload.models.gguf_values import Array
from armload.models.header import Header, read_header
from armload.models.tokens import added_tokens
from armload.models.vocabulary import SPACE, TokenKind

_TOKENS, _KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_SCORES, _MERGES = "tokenizer.ggml.scores", "tokenizer.ggml.merges"

_SPECIAL = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED)
"""They are found in a text before it is cut."""

# Letters and other characters beyond ASCII stand for all of their class.
_PROXIES = {"L": "\u0101", "M": "\u0300", "N": "\u00b2", "Z": "\u00a0"}
_OTHER = "\u2014"
_CLASSES = {r"\L": r"A-Za-z\u0101", r"\M": r"\u0300", r"\N": r"0-9\u00b2", r"\s": r" \t-\r\u00a0"}

_ENDINGS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?[\L]+| ?[\N]+| ?[^\s\L\N]+|[\s]+(?![^\s])"
_SPACES = r"[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+"
_REST = rf" ?[^\s\L\N]+[\r\n]*|{_SPACES}"
_LLAMA_3 = rf"{_ENDINGS}|[^\r\n\L\N]?[\L]+|[\N]{{1,3}}|{_REST}"
_QWEN_2 = rf"{_ENDINGS}|[^\r\n\L\N]?[\L]+|[\N]|{_REST}"
_QWEN_3_5 = rf"{_ENDINGS}|[^\r\n\L\N]?[\L\M]+|[\N]| ?[^\s\L\M\N]+[\r\n]*|{_SPACES}"

_WORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "exaone4", "mpt", "olmo", "modern-bert"), (_GPT_2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "exaone"), (r"[\N]", _GPT_2)),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2"), (_LLAMA_3,)
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "glm5", "chatglm-bpe"), (_LLAMA_3,)),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "stablelm2", "grok-2"), (_QWEN_2,)
    ),
    "qwen35": (_QWEN_3_5,),
}
"""By ``tokenizer.ggml.pre``, expressions of which each cuts what those before it left."""

_TAKE_WHOLE_WORDS = frozenset(
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2", "chatglm-bpe")
)
"""With them, a word that is a token is not merged."""

_MOST_LETTERS = 1 << 19
"""Of a text that is counted: some seconds, and beyond most contexts."""

Rank = Callable[[str, str], float | None]


@lru_cache(maxsize=64)
def count_tokens(path: Path, text: str) -> int | None:
    """Return how many tokens llama.cpp reads in a text, those that it adds counted.

    None where it is not known: the vocabulary is of another kind, or the text holds special tokens
    or is too long to be counted here.

    Raises:
        OSError: the file cannot be read.
    """
    if len(text) > _MOST_LETTERS:
        return None
    header = read_header(path, strings_of=_TOKENS, numbers_of=_KINDS)
    tokens = header.metadata.get(_TOKENS)
    if not isinstance(tokens, Array) or _has_special(header, tokens.strings, text):
        return None
    kind = header.metadata.get("tokenizer.ggml.model")
    counted = {"llama": _count_pieces, "gpt2": _count_bytes}.get(str(kind))
    found = counted(path, header, tokens.strings, text) if counted else None
    return None if found is None else found + added_tokens(header)


def _has_special(header: Header, tokens: tuple[str, ...], text: str) -> bool:
    kinds = header.metadata.get(_KINDS)
    types = kinds.items if isinstance(kinds, Array) else ()
    return any(
        kind in _SPECIAL and token and token in text
        for token, kind in zip(tokens, types, strict=False)
    )


def _count_pieces(path: Path, header: Header, tokens: tuple[str, ...], text: str) -> int | None:
    scores = read_header(path, numbers_of=_SCORES).metadata.get(_SCORES)
    if not isinstance(scores, Array) or len(scores.items) != len(tokens):
        return None
    known = dict(zip(tokens, scores.items, strict=True))

    def rank(left: str, right: str) -> float | None:
        score = known.get(left + right)
        return None if score is None else -score

    prefixed = header.metadata.get("tokenizer.ggml.add_space_prefix") is not False
    whole = (" " * (prefixed and bool(text)) + text).replace(" ", SPACE)
    return sum(
        1 if symbol in known else len(symbol.encode()) for symbol in _merged(whole, rank) if symbol
    )


def _count_bytes(path: Path, header: Header, tokens: tuple[str, ...], text: str) -> int | None:
    stated = str(header.metadata.get("tokenizer.ggml.pre"))
    merges = read_header(path, strings_of=_MERGES).metadata.get(_MERGES)
    if stated not in _WORDS or not isinstance(merges, Array):
        return None
    known, letters = frozenset(tokens), byte_letters()
    pairs = (pair.partition(" ") for pair in merges.strings)
    ranks = {(left, right): float(number) for number, (left, _, right) in enumerate(pairs)}

    @lru_cache(maxsize=1 << 14)
    def count(word: str) -> int:
        symbols = "".join(letters[byte] for byte in word.encode())
        if stated in _TAKE_WHOLE_WORDS and symbols in known:
            return 1
        found = _merged(symbols, lambda left, right: ranks.get((left, right)))
        return sum(1 if each in known else sum(map(known.__contains__, each)) for each in found)

    return sum(map(count, _words(text, _WORDS[stated])))


def _words(text: str, expressions: Iterable[str]) -> Iterator[str]:
    """Yield what the expressions cut a text into; what none of them finds is a word, too."""
    proxy = "".join(letter if letter.isascii() else _proxy(letter) for letter in text)
    cuts = {0, len(text)}
    for expression in expressions:
        pattern = re.compile(re.sub(r"\\[LMNs]", lambda found: _CLASSES[found[0]], expression))
        bounds = sorted(cuts)
        for begin, end in pairwise(bounds):
            # The expressions look at what they cut alone.
            for found in pattern.finditer(proxy[begin:end]):
                cuts |= {begin + found.start(), begin + found.end()}
    bounds = sorted(cuts)
    return (text[begin:end] for begin, end in pairwise(bounds))


def _proxy(letter: str) -> str:
    if letter == "\u0085":  # its category is that of a control character
        return _PROXIES["Z"]
    return _PROXIES.get(unicodedata.category(letter)[0], _OTHER)


@dataclass(slots=True)
class _Symbol:
    text: str
    before: int
    after: int


def _merged(text: str, rank: Rank) -> list[str]:
    """Merge neighbours, those of the lowest rank and of these the first ones first."""
    symbols = [_Symbol(each, number - 1, number + 1) for number, each in enumerate(text)]
    if not symbols:
        return []
    symbols[-1].after = -1
    queue = []
    for number in range(len(symbols) - 1):
        found = rank(symbols[number].text, symbols[number + 1].text)
        if found is not None:
            queue.append((found, number, symbols[number].text, symbols[number + 1].text))
    heapify(queue)
    while queue:
        _, at, left, right = heappop(queue)
        symbol = symbols[at]
        if symbol.text != left or symbol.after < 0 or symbols[symbol.after].text != right:
            continue
        gone = symbols[symbol.after]
        symbol.text, symbol.after, gone.text = left + right, gone.after, ""
        if symbol.after >= 0:
            symbols[symbol.after].before = at
        for one, other in ((symbol.before, at), (at, symbol.after)):
            if one >= 0 and other >= 0:
                found = rank(symbols[one].text, symbols[other].text)
                if found is not None:
                    heappush(queue, (found, one, symbols[one].text, symbols[other].text))
    return [symbol.text for symbol in symbols if symbol.text]
