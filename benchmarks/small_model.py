"""The model that the engine is measured with: random weights, 10 ms or more for a token."""

from __future__ import annotations

from armload.models.shape import Shape

SHAPE = Shape(
    layers=16,
    width=1024,
    feed_forward=4096,
    heads=16,
    kv_heads=8,
    vocabulary=4096,
    context_length=1024,
)
