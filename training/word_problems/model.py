"""A Llama: the forward pass and the loss, in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from armload.models.shape import SentencePieces, Shape
from training.word_problems.examples import Batch

Parameters = dict[str, jax.Array]
"""Tensors by their name in GGUF; matrices are (rows, columns), as GGUF stores them."""

ROPE_BASE = 10_000.0


def shape_for(vocabulary: int) -> Shape:
    """Return the sizes of the model: every row is a multiple of 256."""
    return Shape(
        description="word problems",
        layers=4,
        width=256,
        feed_forward=512,
        heads=4,
        kv_heads=2,
        vocabulary=vocabulary,
        context_length=512,
        tied=True,
        rope_base=ROPE_BASE,
        tokenizer=SentencePieces(add_end=False),
    )


def initial(shape: Shape, seed: int) -> Parameters:
    """Return random weights; what writes to the residual stream starts at zero."""
    from armload.models.tensors import constants, matrices

    random = np.random.default_rng(seed)
    found = {each.name: np.array(each.values, np.float32) for each in constants(shape)}
    for each in matrices(shape, range(shape.vocabulary)):
        deviation = 0.02 if each.layer is None else each.columns**-0.5
        if each.role in ("attn_output", "ffn_down"):
            deviation = 0.0
        drawn = random.normal(0, 1, (each.rows, each.columns)) * deviation
        found[each.name] = drawn.astype(np.float32)
    return {name: jnp.asarray(values) for name, values in found.items()}


def logits(parameters: Parameters, shape: Shape, batch: Batch) -> jax.Array:
    """Return the logits of the token after each; (rows, tokens, vocabulary)."""
    tokens, owners = jnp.asarray(batch.tokens), jnp.asarray(batch.owners)
    length = tokens.shape[1]
    causal = jnp.tril(jnp.ones((length, length), bool))
    visible = causal & (owners[:, :, None] == owners[:, None, :])
    stream = parameters["token_embd.weight"][tokens]
    for layer in range(shape.layers):
        weights = {
            name.split(".")[2]: value
            for name, value in parameters.items()
            if name.startswith(f"blk.{layer}.")
        }
        normed = _norm(stream, weights["attn_norm"], shape)
        stream += _attention(normed, weights, shape, visible)
        normed = _norm(stream, weights["ffn_norm"], shape)
        gate = jax.nn.silu(normed @ weights["ffn_gate"].T)
        stream += (gate * (normed @ weights["ffn_up"].T)) @ weights["ffn_down"].T
    normed = _norm(stream, parameters["output_norm.weight"], shape)
    return normed @ parameters["token_embd.weight"].T


def loss(parameters: Parameters, shape: Shape, batch: Batch) -> jax.Array:
    """Return the mean cross-entropy of the graded tokens, in nats."""
    found = logits(parameters, shape, batch)[:, :-1]
    chosen = jnp.take_along_axis(found, batch.tokens[:, 1:, None], axis=-1)[..., 0]
    surprise = jax.nn.logsumexp(found, axis=-1) - chosen
    graded = batch.graded[:, :-1]
    return jnp.sum(surprise * graded) / jnp.sum(graded)


def mistakes(parameters: Parameters, shape: Shape, batch: Batch) -> jax.Array:
    """Return 1 where the likeliest token is not the graded one; (rows, tokens - 1)."""
    found = logits(parameters, shape, batch)[:, :-1]
    return (jnp.argmax(found, axis=-1) != batch.tokens[:, 1:]) * batch.graded[:, :-1]


def _norm(stream: jax.Array, weight: jax.Array, shape: Shape) -> jax.Array:
    mean = jnp.mean(stream**2, axis=-1, keepdims=True)
    return stream * jax.lax.rsqrt(mean + shape.norm_epsilon) * weight


def _attention(
    normed: jax.Array, weights: Parameters, shape: Shape, visible: jax.Array
) -> jax.Array:
    rows, length, _ = normed.shape
    shared = shape.heads // shape.kv_heads
    q, k, v = (
        (normed @ weights[name].T).reshape(rows, length, -1, shape.head)
        for name in ("attn_q", "attn_k", "attn_v")
    )
    queries = _rotated(q).transpose(0, 2, 1, 3)
    keys = jnp.repeat(_rotated(k).transpose(0, 2, 3, 1), shared, axis=1)
    values = jnp.repeat(v.transpose(0, 2, 1, 3), shared, axis=1)
    scores = jnp.where(visible[:, None], queries @ keys * shape.head**-0.5, -1e9)
    mixed = (jax.nn.softmax(scores, axis=-1) @ values).transpose(0, 2, 1, 3)
    return mixed.reshape(rows, length, -1) @ weights["attn_output"].T


def _rotated(heads: jax.Array) -> jax.Array:
    """Rotate neighbouring pairs, as llama.cpp does for the architecture ``llama``."""
    length, width = heads.shape[1], heads.shape[3]
    frequencies = ROPE_BASE ** (-jnp.arange(0, width, 2) / width)
    angles = (jnp.arange(length)[:, None] * frequencies)[None, :, None]
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned = (
        even * jnp.cos(angles) - odd * jnp.sin(angles),
        even * jnp.sin(angles) + odd * jnp.cos(angles),
    )
    return jnp.stack(turned, axis=-1).reshape(heads.shape)
