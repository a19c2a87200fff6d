"""Whether a model can guess tokens for another: both must mean the same by each number."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from armload.core.errors import UsageError
from armload.models.header import read_header
from armload.models.header_values import Array
from armload.models.model import Model

_TOKENS = "tokenizer.ggml.tokens"
_SAME = {
    "tokenizer.ggml.model": "kind of tokenizer",
    "tokenizer.ggml.bos_token_id": "beginning-of-text token",
    "tokenizer.ggml.eos_token_id": "end-of-text token",
}
_MOST_ADDED = 128
_FIRST_COMPARED = 5
"""As llama.cpp compares them (``common_speculative_are_compatible``)."""


def check_draft(draft: Model, model: Model) -> None:
    """Refuse a draft model whose vocabulary is not that of the model.

    Raises:
        UsageError: says what differs.
        DataError: a header is damaged.
    """
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
