"""The tensors of a model: names, sizes, and how large their random weights are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from armload.models.shape import RopeScaling, Shape

ROUTER = "ffn_gate_inp"
"""Role of the matrix that chooses the experts; llama-quantize leaves it in 32 bits."""

LOGIT_DEVIATION = 3.0
"""Spread of the logits: wide enough for one word to stand out."""

SHARPNESS = 2.0
"""Factor on queries and keys: attention that picks places keeps the text varied."""

QUIET = 0.25
"""Factor on the logits of tokens that are no whole words, where they cannot be zero."""

DEFAULT_ROPE_BASE = 10_000.0

HARMONICS = 8
"""Of planted places: rows whose places differ by more than 1 in so many have little in common."""

TOKEN_PLACE, ROUTER_PLACE, OUTPUT_PLACE = 0.5, 4.0, 24.0
"""Size of the planted part of a row: of a token, beside a random part of 1; of routers and of the
output, so that it adds up to half of that to a number whose random part deviates by 1 and 3."""

PLANTED_DEVIATION = 0.2
"""Of what layers add to the residual stream, so that the token's planted part outweighs it."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A matrix of random weights, or one for each expert in a single tensor.

    Attributes:
        layer: number of its layer; none of what is no layer's.
        role: such as ``attn_q``.
        experts: that have one each; 0 of a plain matrix.
        rows, columns: its size; a row is contiguous.
        deviation: standard deviation of the weights.
        gains: factors on the weights of some rows.
        places: of the rows on a ring of length 1, where neighbours have a part in common; empty
            where all is random.
        place_size: of that part, of a row of length 1.
    """

    layer: int | None = None
    role: str
    experts: int = 0
    rows: int
    columns: int
    deviation: float
    gains: tuple[tuple[range, float], ...] = ()
    places: tuple[float, ...] = ()
    place_size: float = 0.0

    @property
    def name(self) -> str:
        return _name(self.layer, self.role, "weight")

    @property
    def all_rows(self) -> int:
        return self.rows * max(self.experts, 1)


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A vector of 32-bit floats: a norm, a bias, factors of frequencies.

    Attributes:
        name: of the tensor.
        values: its elements.
    """

    name: str
    values: tuple[float, ...]


def _name(layer: int | None, role: str, suffix: str) -> str:
    return f"{role}.{suffix}" if layer is None else f"blk.{layer}.{role}.{suffix}"


def constants(shape: Shape) -> list[Constant]:
    ones = (1.0,) * shape.width
    found = [Constant(name="output_norm.weight", values=ones)]
    if shape.rope_scaling is not None:
        factors = _frequency_factors(shape, shape.rope_scaling)
        found.append(Constant(name="rope_freqs.weight", values=factors))
    for layer in range(shape.layers):
        vectors = [("attn_norm", "weight", ones), ("ffn_norm", "weight", ones)]
        if shape.architecture in ("qwen3", "qwen3moe"):
            sharp = (SHARPNESS,) * shape.head
            vectors += [("attn_q_norm", "weight", sharp), ("attn_k_norm", "weight", sharp)]
        if shape.architecture == "qwen2":
            kv_zeros = (0.0,) * (shape.head * shape.kv_heads)
            q_zeros = (0.0,) * (shape.head * shape.heads)
            vectors += [
                ("attn_q", "bias", q_zeros),
                ("attn_k", "bias", kv_zeros),
                ("attn_v", "bias", kv_zeros),
            ]
        for role, suffix, values in vectors:
            found.append(Constant(name=_name(layer, role, suffix), values=values))
    return found


def _frequency_factors(shape: Shape, scaling: RopeScaling) -> tuple[float, ...]:
    """Return what each pair's frequency is divided by.

    Source: ``LlamaModel.generate_extra_tensors`` of llama.cpp's converter.
    """
    longest = scaling.trained_context / scaling.low_frequency_factor
    shortest = scaling.trained_context / scaling.high_frequency_factor
    base = shape.rope_base or DEFAULT_ROPE_BASE
    factors = []
    for pair in range(0, shape.head, 2):
        wavelength = 2 * math.pi * base ** (pair / shape.head)
        if wavelength < shortest:
            factors.append(1.0)
        elif wavelength > longest:
            factors.append(scaling.factor)
        else:
            spread = scaling.high_frequency_factor - scaling.low_frequency_factor
            smooth = scaling.trained_context / wavelength - scaling.low_frequency_factor
            part = smooth / spread
            factors.append(1 / ((1 - part) / scaling.factor + part))
    return tuple(factors)


def matrices(shape: Shape, words: range) -> list[Matrix]:
    """Return the matrices in the order in which a decode step reads them.

    Args:
        words: ids of the tokens that the model is to say.
    """
    width = shape.width
    # Where the table of tokens is the output too, a token that is read must not be zero.
    gains = ((range(words.start), QUIET), (range(words.stop, shape.vocabulary), 0.0))
    found = [
        Matrix(
            role="token_embd",
            rows=shape.vocabulary,
            columns=width,
            deviation=LOGIT_DEVIATION * width**-0.5 if shape.tied else 1.0,
            gains=gains if shape.tied else (),
            places=ring_places(shape.vocabulary) if shape.planted_router else (),
            place_size=TOKEN_PLACE * width**0.5,
        )
    ]
    for layer in range(shape.layers):
        found += _layer(shape, layer)
    if shape.tied:
        return found
    output = Matrix(
        role="output",
        rows=shape.vocabulary,
        columns=width,
        deviation=LOGIT_DEVIATION * width**-0.5,
        gains=tuple((rows, 0.0) for rows, _ in gains),
        places=ring_places(shape.vocabulary) if shape.planted_router else (),
        place_size=OUTPUT_PLACE * width**-0.5,
    )
    return [*found, output]


def ring_places(rows: int) -> tuple[float, ...]:
    """Return places that are spread evenly, however many of the first rows are taken."""
    golden = (5**0.5 - 1) / 2
    return tuple(row * golden % 1.0 for row in range(rows))


def _layer(shape: Shape, layer: int) -> list[Matrix]:
    width, inner = shape.width, shape.feed_forward
    q_width, kv_width = shape.head * shape.heads, shape.head * shape.kv_heads
    of_experts = "_exps" if shape.experts else ""
    inner = shape.expert_feed_forward or inner
    added = PLANTED_DEVIATION if shape.planted_router else 1.0
    sizes: Sequence[tuple[str, int, int, float]] = (
        ("attn_q", q_width, width, SHARPNESS),
        ("attn_k", kv_width, width, SHARPNESS),
        ("attn_v", kv_width, width, 1.0),
        ("attn_output", width, q_width, added),
        *([(ROUTER, shape.experts, width, 1.0)] if shape.experts else []),
        (f"ffn_gate{of_experts}", inner, width, 1.0),
        (f"ffn_up{of_experts}", inner, width, 1.0),
        (f"ffn_down{of_experts}", width, inner, added),
    )
    return [
        Matrix(
            layer=layer,
            role=role,
            experts=shape.experts if role.endswith("_exps") else 0,
            rows=rows,
            columns=columns,
            deviation=factor * columns**-0.5,
            places=ring_places(rows) if role == ROUTER and shape.planted_router else (),
            place_size=ROUTER_PLACE * columns**-0.5,
        )
        for role, rows, columns, factor in sizes
    ]
