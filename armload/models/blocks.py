"""Random weights in ggml's storage formats.

A quantised format stores weights in blocks: some bytes that say the scale, some that hold
the weights' numbers. Random numbers under a constant scale are random weights, with no
need to quantise anything. Layouts: ``ggml/src/ggml-common.h`` of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class BlockLayout:
    """How one block of weights is stored.

    A weight is ``scale * number - minimum`` with a number that is uniform over a range.

    Attributes:
        elements: weights in a block.
        size_bytes: of a block.
        scale_at: offset of the 16-bit float that is the scale.
        minimum_at: offset of the 16-bit float that is the minimum; none when numbers are signed.
        minimum_is_added: the minimum is stored with the other sign.
        fixed: offset and bytes of what else is constant: the sub-blocks' scales, all of them 1.
        levels: how many numbers there are.
    """

    elements: int
    size_bytes: int
    scale_at: int
    minimum_at: int | None = None
    minimum_is_added: bool = False
    fixed: tuple[int, bytes] = (0, b"")
    levels: int

    @property
    def number_deviation(self) -> float:
        """Standard deviation of the uniform numbers."""
        return _uniform_deviation(self.levels)


def _uniform_deviation(levels: int) -> float:
    return float(((levels**2 - 1) / 12) ** 0.5)


_ALL_ONES_6_BIT = b"\x01" * 8 + b"\x11" * 4
_ALL_33_6_BIT = b"\x11" * 8 + b"\xaa" * 4  # Q3_K subtracts 32 of its sub-blocks' scales

LAYOUTS: Mapping[str, BlockLayout] = {
    "Q4_0": BlockLayout(elements=32, size_bytes=18, scale_at=0, levels=16),
    "Q5_0": BlockLayout(elements=32, size_bytes=22, scale_at=0, levels=32),
    "Q5_1": BlockLayout(
        elements=32, size_bytes=24, scale_at=0, minimum_at=2, minimum_is_added=True, levels=32
    ),
    "Q8_0": BlockLayout(elements=32, size_bytes=34, scale_at=0, levels=256),
    "Q2_K": BlockLayout(
        elements=256, size_bytes=84, scale_at=80, minimum_at=82, fixed=(0, b"\x11" * 16), levels=4
    ),
    "Q3_K": BlockLayout(
        elements=256, size_bytes=110, scale_at=108, fixed=(96, _ALL_33_6_BIT), levels=8
    ),
    "Q4_K": BlockLayout(
        elements=256,
        size_bytes=144,
        scale_at=0,
        minimum_at=2,
        fixed=(4, _ALL_ONES_6_BIT),
        levels=16,
    ),
    "Q5_K": BlockLayout(
        elements=256,
        size_bytes=176,
        scale_at=0,
        minimum_at=2,
        fixed=(4, _ALL_ONES_6_BIT),
        levels=32,
    ),
    "Q6_K": BlockLayout(
        elements=256, size_bytes=210, scale_at=208, fixed=(192, b"\x01" * 16), levels=64
    ),
}

FLOATS = ("F32", "F16")

TYPES = (*FLOATS, *LAYOUTS)
"""Tensor types that ``random_rows`` can make."""


def elements_per_block(type_name: str) -> int:
    """Return what a row's length must be a multiple of."""
    return 1 if type_name in FLOATS else LAYOUTS[type_name].elements


def bytes_per_row(type_name: str, columns: int) -> int:
    if type_name in FLOATS:
        return columns * (4 if type_name == "F32" else 2)
    layout = LAYOUTS[type_name]
    return columns // layout.elements * layout.size_bytes


def random_rows(
    type_name: str, columns: int, deviations: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.uint8]:
    """Return rows of stored weights with mean zero and each row's standard deviation.

    Only the generator's raw bytes are used, which NumPy keeps stable over its versions. A row
    without deviation is zero bytes, which are zero weights in every format.

    Returns:
        Bytes of shape ``(rows, bytes_per_row(type_name, columns))``.
    """
    import numpy as np

    rows = len(deviations)
    if type_name in FLOATS:
        numbers = np.frombuffer(random.bytes(rows * columns), np.int8).reshape(rows, columns)
        scales = (deviations / _uniform_deviation(256)).astype(np.float32)
        weights = numbers * scales[:, np.newaxis]
        stored = weights.astype("<f4" if type_name == "F32" else "<f2").view(np.uint8)
    else:
        stored = _random_blocks(LAYOUTS[type_name], columns, deviations, random)
    stored[deviations == 0] = 0
    return stored


def _random_blocks(
    layout: BlockLayout, columns: int, deviations: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.uint8]:
    import numpy as np

    rows = len(deviations)
    count = rows * columns // layout.elements
    blocks = np.frombuffer(bytearray(random.bytes(count * layout.size_bytes)), np.uint8).reshape(
        count, layout.size_bytes
    )
    # Numbers such as -8…7 have a mean of -1/2; a random sign per block makes it zero.
    sign = np.where(blocks[:, layout.scale_at] & 1, 1.0, -1.0)
    scale = np.repeat(deviations / layout.number_deviation, columns // layout.elements)
    _put_float(blocks, layout.scale_at, sign * scale)
    if layout.minimum_at is not None:
        minimum = sign * scale * (layout.levels - 1) / 2
        _put_float(blocks, layout.minimum_at, -minimum if layout.minimum_is_added else minimum)
    at, content = layout.fixed
    blocks[:, at : at + len(content)] = np.frombuffer(content, np.uint8)
    return blocks.reshape(rows, -1)


def _put_float(blocks: NDArray[np.uint8], at: int, values: NDArray[np.float64]) -> None:
    import numpy as np

    blocks[:, at : at + 2] = values.astype("<f2").view(np.uint8).reshape(-1, 2)
