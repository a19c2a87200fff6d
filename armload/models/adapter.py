"""LoRA adapters: low-rank products that are added to a model's matrices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from armload.core.ids import fingerprint_of
from armload.core.values import Value

NO_ADAPTER = "none"
MOST_ADAPTERS = 16
MOST_SCALE = 100.0


class Adapter(Value):
    """An adapter that was read and fits its model.

    Attributes:
        path: on this machine.
        sha256: of the file.
        scale: by which its products are multiplied, beside its own alpha over its rank.
        rank: the largest of its products.
        alpha: as its file says; 0 for products that are not scaled.
        parameters: weights, all of which each token is computed with.
        weights_bytes: of their tensors, which the engine copies into its own memory.
        base: the model that it was trained for, as its file says; empty where it does not.
    """

    path: Path
    sha256: str
    size_bytes: int
    scale: float
    rank: int
    alpha: float
    parameters: int
    weights_bytes: int
    base: str = ""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def called(self) -> str:
        """The name with the scale, where that is not 1."""
        return self.name if self.scale == 1 else f"{self.name}:{self.scale:g}"


class AdapterChoice(Value):
    """An adapter as a person gives it: ``FILE`` or ``FILE:SCALE``."""

    file: str
    scale: float = 1.0


def choices_in(lora: str) -> tuple[AdapterChoice, ...]:
    """Return the adapters of ``FILE[:SCALE],…``.

    Raises:
        ValueError: an entry is empty, or a scale is none.
    """
    found = []
    for entry in lora.split(","):
        file, colon, scale = entry.rpartition(":")
        if not colon or "/" in scale or scale.lower().endswith(".gguf"):  # names may have colons
            file, scale = entry, "1"
        elif not _is_number(scale):
            raise ValueError(
                f"the scale {scale!a} is not a number: use FILE or FILE:SCALE, such as {file}:0.5"
            )
        if not file:
            raise ValueError("an adapter is missing: use FILE or FILE:SCALE, separated by commas")
        if not 0 <= float(scale) <= MOST_SCALE:  # not a number compares as false, too
            raise ValueError(f"the scale {scale} is not a number from 0 to {MOST_SCALE:g}")
        found.append(AdapterChoice(file=file, scale=float(scale)))
    if len(found) > MOST_ADAPTERS:
        raise ValueError(f"these are {len(found)} adapters; use {MOST_ADAPTERS} or fewer")
    return tuple(found)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Scaled(Protocol):
    """What tells an adapter from others."""

    @property
    def sha256(self) -> str:
        """Of its file."""

    @property
    def scale(self) -> float:
        """By which its products are multiplied."""


def identity_of(model_sha256: str, adapters: Sequence[Scaled]) -> str:
    """Return a checksum of a model with adapters; its own without them."""
    if not adapters:
        return model_sha256
    return fingerprint_of([model_sha256, *(f"{each.sha256} {each.scale!r}" for each in adapters)])
