"""Muon for the layers' matrices (Jordan, 2024), Adam for the rest (Kingma and Ba, 2015)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from training.word_problems.model import Parameters

Moments = dict[str, Parameters]
"""Moving averages: of the gradients (``mean``), of their squares (``square``), and ``count``."""

MOMENTUM = 0.95
ADAM_MEAN, ADAM_SQUARE = 0.9, 0.98
ADAM_RATE = 0.15
"""Adam's learning rate as a part of Muon's."""

DECAY = 0.05
"""Weight decay of the matrices, times the learning rate."""

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def no_moments(parameters: Parameters) -> Moments:
    """Return the averages before the first step."""
    zeros = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    others = {name: value for name, value in zeros.items() if not _is_layers_matrix(name, value)}
    return {"mean": zeros, "square": others, "count": {"steps": jnp.zeros(())}}


def stepped(
    parameters: Parameters, gradients: Parameters, moments: Moments, rate: jax.Array
) -> tuple[Parameters, Moments]:
    """Return weights and averages after one step."""
    count = moments["count"]["steps"] + 1
    means, squares, found = {}, {}, {}
    for name, value in parameters.items():
        gradient, mean = gradients[name], moments["mean"][name]
        if _is_layers_matrix(name, value):
            means[name] = MOMENTUM * mean + gradient
            direction = _orthogonal(gradient + MOMENTUM * means[name])
            size = max(1.0, value.shape[0] / value.shape[1]) ** 0.5
            found[name] = value * (1 - rate * DECAY) - rate * size * direction
            continue
        means[name] = ADAM_MEAN * mean + (1 - ADAM_MEAN) * gradient
        squares[name] = ADAM_SQUARE * moments["square"][name] + (1 - ADAM_SQUARE) * gradient**2
        mean = means[name] / (1 - ADAM_MEAN**count)
        square = squares[name] / (1 - ADAM_SQUARE**count)
        found[name] = value - rate * ADAM_RATE * mean / (jnp.sqrt(square) + 1e-9)
    return found, {"mean": means, "square": squares, "count": {"steps": count}}


def _is_layers_matrix(name: str, value: jax.Array) -> bool:
    return value.ndim == 2 and name.startswith("blk.")


def _orthogonal(matrix: jax.Array) -> jax.Array:
    """Return about the nearest matrix whose singular values are 1."""
    a, b, c = _NEWTON_SCHULZ
    wide: jax.Array = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide /= jnp.linalg.norm(wide) + 1e-9
    for _ in range(5):
        square = wide @ wide.T
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T
