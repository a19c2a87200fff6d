"""The sizes of a model: what its architecture leaves open."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armload.core.deciding import Words
from armload.core.errors import UsageError
from armload.core.values import Value

SHAPES = "shapes"
"""The folder of shape files."""

Count = Annotated[int, Field(ge=1)]
TokenId = Annotated[int, Field(ge=0)]


class SentencePieces(Value):
    """A tokenizer that llama.cpp calls ``llama``: scored pieces, and bytes for the rest.

    Attributes:
        add_end: whether the file says that a text ends with the end token; none leaves it out.
    """

    kind: Literal["sentence-pieces"] = "sentence-pieces"
    add_end: bool | None = None


class Filler(Value):
    """Tokens that fill the vocabulary up after the last that has a name.

    Attributes:
        name: of each, with ``{}`` where its number goes.
        first: number of the first.
        kind: ``control`` when they are special tokens, else ``unused``.
    """

    name: Words
    first: TokenId
    kind: Literal["control", "unused"]


class BytePairs(Value):
    """A tokenizer that llama.cpp calls ``gpt2``: pairs of bytes, merged.

    Attributes:
        pre: llama.cpp's name of the rule that splits a text into words.
        text_tokens: tokens that stand for text; the special ones follow them.
        special: names of the special tokens, in order.
        plain: those of ``special`` that a text shows, as ``<tool_call>``.
        filler: the rest of the vocabulary.
        begin, end, padding: names of tokens with a role.
        add_begin: whether the file says that a text begins with the begin token; none leaves
            it out.
    """

    kind: Literal["byte-pairs"]
    pre: Words
    text_tokens: Count
    special: tuple[Words, ...]
    plain: tuple[Words, ...] = ()
    filler: Filler
    begin: Words
    end: Words
    padding: Words | None = None
    add_begin: bool | None = None


class RopeScaling(Value):
    """How Llama 3 stretches its positions: frequencies below a limit are divided.

    Attributes:
        factor: of the division.
        low_frequency_factor, high_frequency_factor: where it begins, and where it is complete.
        trained_context: tokens that it was trained for before.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    trained_context: Count


class Shape(Value):
    """The sizes of a model.

    Attributes:
        name: of the shape's file.
        description: for people; whose sizes these are.
        is_listed: ``armload fit`` without a model includes it.
        architecture: ``qwen2`` has biases on queries, keys and values, ``qwen3`` norms on
            queries and keys, ``qwen3moe`` these and experts.
        layers: transformer blocks.
        width: of the residual stream.
        feed_forward: inner width of the gated feed-forward layers.
        heads, kv_heads: for queries, and for keys and values; ``kv_heads`` divides ``heads``.
        head_width: of one head, where the model's file states it; else ``width / heads``.
        vocabulary: number of tokens.
        context_length: the longest context, in tokens.
        tied: the token embedding is the output matrix too.
        norm_epsilon: of the norms.
        rope_base: of the rotary positions' frequencies, where the model's file states it.
        rope_scaling: of Llama 3.
        experts, experts_used: of a mixture of experts, in each layer and for one token; else 0.
        expert_feed_forward: inner width of an expert, where the model's file states it apart; else
            ``feed_forward``.
        planted_router: words of a generated text favour few experts, and others as it goes on; of
            random weights, all experts are used alike.
        tokenizer: what kind of vocabulary.
    """

    name: Words = ""
    description: Words = ""
    is_listed: bool = True
    architecture: Literal["llama", "qwen2", "qwen3", "qwen3moe"] = "llama"
    layers: Count
    width: Count
    feed_forward: Count
    heads: Count
    kv_heads: Count
    head_width: Count | None = None
    vocabulary: Count
    context_length: Count
    tied: bool = False
    norm_epsilon: float = 1e-5
    rope_base: float | None = None
    rope_scaling: RopeScaling | None = None
    experts: Annotated[int, Field(ge=0)] = 0
    experts_used: Annotated[int, Field(ge=0)] = 0
    expert_feed_forward: Count | None = None
    planted_router: bool = False
    tokenizer: Annotated[SentencePieces | BytePairs, Field(discriminator="kind")] = SentencePieces()

    @property
    def head(self) -> int:
        return self.head_width or self.width // self.heads


def load_shape(name: str) -> Shape:
    """Read the shape file ``shapes/NAME.yaml``, the person's own first."""
    from armload.core.yamlfile import load_named

    return load_named(SHAPES, name, Shape)


def check_shape(shape: Shape, smallest_vocabulary: int) -> None:
    """Check that a model of these sizes can be.

    Args:
        smallest_vocabulary: tokens for text that a vocabulary of its kind needs.
    """
    is_of_pieces = isinstance(shape.tokenizer, SentencePieces)
    for wrong, what in (
        (
            shape.head_width is None and shape.width % shape.heads,
            "width must be a multiple of heads",
        ),
        (shape.heads % shape.kv_heads, "heads must be a multiple of kv_heads"),
        (shape.head % 2, "the width of a head must be even"),
        (
            not bool(shape.experts) <= shape.experts_used <= shape.experts,
            "experts_used must be from 1 to experts",
        ),
        (
            shape.experts and shape.architecture not in ("llama", "qwen3moe"),
            "only the architectures llama and qwen3moe can be mixtures of experts",
        ),
        (
            (shape.expert_feed_forward is None) != (shape.architecture != "qwen3moe"),
            "expert_feed_forward is given for the architecture qwen3moe, and for no other",
        ),
        (
            shape.architecture == "qwen3moe" and not shape.experts,
            "the architecture qwen3moe needs experts",
        ),
        (
            shape.planted_router and (not shape.experts or shape.tied),
            "planted_router needs experts, and an output matrix of its own",
        ),
        (
            is_of_pieces and shape.vocabulary < smallest_vocabulary,
            f"vocabulary must be {smallest_vocabulary} or more",
        ),
        *_byte_pairs_checks(shape, shape.tokenizer, smallest_vocabulary),
    ):
        if wrong:
            of = f" of {shape.name}" if shape.name else ""
            raise UsageError(f"Cannot generate a model{of}: {what}.", "Change the shape.")


def _byte_pairs_checks(
    shape: Shape, tokenizer: SentencePieces | BytePairs, smallest: int
) -> list[tuple[bool, str]]:
    if isinstance(tokenizer, SentencePieces):
        return []
    roles = {tokenizer.begin, tokenizer.end, *tokenizer.plain}
    roles |= {tokenizer.padding} if tokenizer.padding else set()
    unknown = sorted(roles - set(tokenizer.special))
    return [
        (tokenizer.text_tokens < smallest, f"text_tokens must be {smallest} or more"),
        (
            tokenizer.text_tokens + len(tokenizer.special) > shape.vocabulary,
            "vocabulary must be text_tokens and the number of special tokens, or more",
        ),
        (bool(unknown), f"{', '.join(unknown)} must be among the special tokens"),
    ]
