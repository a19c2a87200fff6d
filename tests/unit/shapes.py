"""Shapes of published models with fewer words, which are made and read a hundred times sooner."""

from __future__ import annotations

from armload.models.byte_pairs import smallest_text
from armload.models.shape import BytePairs, Shape, load_shape

FILLERS = 100


def with_few_words(name: str, *, compounds: int = 100) -> Shape:
    """Return a published shape whose vocabulary has few tokens, of each kind.

    Args:
        name: of the shape.
        compounds: words of several, besides the single ones.
    """
    shape = load_shape(name)
    assert isinstance(shape.tokenizer, BytePairs)
    text_tokens = smallest_text() + compounds
    vocabulary = text_tokens + len(shape.tokenizer.special) + FILLERS
    tokenizer = shape.tokenizer.model_copy(update={"text_tokens": text_tokens})
    return shape.model_copy(update={"tokenizer": tokenizer, "vocabulary": vocabulary})
