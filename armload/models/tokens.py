"""Prompts of a length in tokens, and whether two models mean the same by each token."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

from armload.core.errors import UsageError
from armload.models.gguf_values import Array
from armload.models.header import Header, read_header
from armload.models.model import Model
from armload.models.vocabulary import SPACE, english_words

_TOKENS = "tokenizer.ggml.tokens"
_BYTE_PAIR_SPACE = "\u0120"
_SPACED = frozenset(("llama", "bert", "t5"))
"""Kinds of vocabularies whose words begin with SentencePiece's mark."""
_FEWEST_WORDS = 4
_SEED = 20260101

# Byte-pair models before whose text llama.cpp sets a token of its own unless their file says
# otherwise (llama_vocab::impl::load).
_BEGIN_WITH_A_TOKEN = frozenset(
    ("chameleon", "falcon-h1", "falcon3", "llama-bpe", "llama-v3", "llama3", "pixtral", "tekken")
)


def prompt_of(path: Path, tokens: int) -> str:
    """Return a text that a model reads as so many tokens, those that it adds itself counted.

    The words have no sense together, and are always the same for the same vocabulary. What an
    engine makes of them shows in its trace.

    Args:
        tokens: at least 2.

    Raises:
        OSError: the file cannot be read.
    """
    header = read_header(path, strings_of=_TOKENS)
    kind = header.metadata.get("tokenizer.ggml.model")
    pieces = header.metadata.get(_TOKENS)
    known = frozenset(pieces.strings) if isinstance(pieces, Array) else frozenset()
    space = {"gpt2": _BYTE_PAIR_SPACE, **dict.fromkeys(_SPACED, SPACE)}.get(str(kind))
    whole = [word for word in english_words() if space is not None and space + word in known]
    if len(whole) < _FEWEST_WORDS:
        raise UsageError(
            f"{path}: cannot make a prompt of a given length for this model: its vocabulary "
            f"({kind}) has no common English words.",
            "Give the text of a prompt with --prompt.",
        )
    of_pieces, stated = kind == "llama", header.metadata.get
    added = added_tokens(header)
    if tokens <= added:
        raise UsageError(
            f"{path}: a text of {tokens} tokens would be empty: this model adds "
            f"{added} of its own.",
            f"Use --prompt-tokens {added + 1} or more.",
        )
    chosen = random.Random(_SEED).choices(whole, k=tokens - added)  # noqa: S311 - no secret
    puts_space_first = of_pieces and stated("tokenizer.ggml.add_space_prefix") is not False
    return " ".join(chosen) if puts_space_first else f" {' '.join(chosen)}"


def added_tokens(header: Header) -> int:
    """Return how many tokens llama.cpp adds to a text of a model."""
    stated = header.metadata.get
    kind = stated("tokenizer.ggml.model")
    begins, ends = stated("tokenizer.ggml.add_bos_token"), stated("tokenizer.ggml.add_eos_token")
    if not isinstance(begins, bool):
        begins = kind in _SPACED or stated("tokenizer.ggml.pre") in _BEGIN_WITH_A_TOKEN
    return 2 if kind == "bert" else begins + (ends if isinstance(ends, bool) else kind == "t5")


_SAME = {
    "tokenizer.ggml.model": "kind of tokenizer",
    "tokenizer.ggml.bos_token_id": "beginning-of-text token",
    "tokenizer.ggml.eos_token_id": "end-of-text token",
}
_MOST_ADDED = 128
_FIRST_COMPARED = 5
"""As llama.cpp compares them (``common_speculative_are_compatible``)."""


def check_draft(draft: Model, model: Model) -> None:
    """Refuse a draft model whose vocabulary is not that of the model."""
    difference = _difference(draft.path, model.path)
    if difference:
        raise UsageError(
            f"--speculate: {draft.name} cannot draft for {model.name}: {difference}.",
            "Use a smaller model of the same family, or --speculate ngram, which needs no model.",
        )


def _difference(draft: Path, model: Path) -> str:
    if draft == model:
        return ""
    one, other = (read_header(path, strings_of=_TOKENS).metadata for path in (draft, model))
    for key, meaning in _SAME.items():
        if one.get(key) != other.get(key):
            return f"their {meaning} differs ({one.get(key)} and {other.get(key)})"
    its, theirs = one.get(_TOKENS), other.get(_TOKENS)
    if not (isinstance(its, Array) and isinstance(theirs, Array)):
        return "a vocabulary is missing"
    if abs(its.length - theirs.length) > _MOST_ADDED:
        return f"their vocabularies have {its.length:,} and {theirs.length:,} tokens"
    pairs = enumerate(zip(its.strings, theirs.strings, strict=False))
    for number, (token, its_other) in islice(pairs, _FIRST_COMPARED, None):
        if token != its_other:
            return f"token {number} of their vocabularies is {token!r} and {its_other!r}"
    return ""
