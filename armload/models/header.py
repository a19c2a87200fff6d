"""The header of a GGUF file: metadata and tensors. The weights themselves are not touched.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from armload.core.errors import DataError
from armload.core.files import beginning
from armload.core.shell import join
from armload.core.values import format_bytes
from armload.models.gguf_values import Array, Scalar, ValueReader
from armload.models.tensor_types import KNOWN_TYPES, TYPE_NUMBERS, foreign_type

MAGIC = b"GGUF"

SUPPORTED_VERSIONS = (2, 3)

MOST_DIMENSIONS = 4
DEFAULT_ALIGNMENT_BYTES = 32

_SMALLEST_TENSOR_ENTRY_BYTES = 8 + 4 + 8 + 4 + 8
_SMALLEST_KEY_ENTRY_BYTES = 8 + 4 + 1


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor's entry.

    Attributes:
        name: such as ``blk.0.attn_q.weight``.
        shape: number of elements in each dimension, the contiguous one first.
        type_name: ggml's name of its type, such as ``Q4_0``.
        size_bytes: of its data.
        offset_bytes: of its data from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    size_bytes: int
    offset_bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Header:
    """Metadata and tensor entries of a GGUF file.

    Attributes:
        version: of the format.
        metadata: values by key.
        tensors: in the order of the file.
        file_bytes: that the file has.
        metadata_bytes: at the beginning of the file, before the first tensor's entry.
        alignment_bytes: of each tensor's data.
        end_bytes: where a file with all these tensors, padded, ends.
        weights_at: where the weights begin in the file; 0 where it was not read from one.
    """

    version: int
    metadata: Mapping[str, Scalar | Array]
    tensors: tuple[Tensor, ...]
    file_bytes: int
    metadata_bytes: int
    alignment_bytes: int
    end_bytes: int
    weights_at: int = 0

    @property
    def whole_bytes(self) -> int:
        """Bytes that a file with all these tensors has at least."""
        ends = (tensor.offset_bytes + tensor.size_bytes for tensor in self.tensors)
        return max(ends, default=0)


def block_of(type_name: str) -> tuple[int, int]:
    """Return the weights in a block of a tensor type, and the bytes that it takes."""
    found = KNOWN_TYPES[TYPE_NUMBERS[type_name]]
    return found.block_elements, found.block_bytes


def tensor_bytes(type_name: str, shape: Sequence[int]) -> int:
    elements, size_bytes = block_of(type_name)
    return math.prod(shape) // elements * size_bytes


def read_header(path: Path, *, strings_of: str = "", numbers_of: str = "") -> Header:
    """Read the header of a GGUF file, which may end before its last tensor does.

    Args:
        strings_of: the key whose array of strings is kept; of all others they are only counted.
        numbers_of: the key whose array of numbers is kept, however long it is.

    Raises:
        DataError: no GGUF, an unsupported version or byte order, an impossible count, size
            or type, or a file that ends inside the header.
        OSError: the file cannot be opened or read.
    """
    with path.open("rb", buffering=1 << 16) as file:
        size_bytes = path.stat().st_size
        values = ValueReader(path, file, size_bytes, strings_of=strings_of, numbers_of=numbers_of)
        return _Parser(path, values, size_bytes).header()


def check_whole(path: Path, file_bytes: int, whole_bytes: int) -> None:
    """Check that a file is as long as its tensors want it to be."""
    missing = whole_bytes - file_bytes
    if missing > 0:
        raise DataError(
            f"{path}: the file is truncated: it has {file_bytes} bytes, and "
            f"{missing} ({format_bytes(missing)}) of its {whole_bytes} are missing.",
            "Download or copy it again.",
        )


class _Parser:
    def __init__(self, path: Path, values: ValueReader, size_bytes: int) -> None:
        self._path = path
        self._values = values
        self._size_bytes = size_bytes

    def header(self) -> Header:
        version = self._opening()
        read = self._values
        tensor_count, key_count = read.number("<Q"), read.number("<Q")
        read.check_count("tensors", tensor_count, _SMALLEST_TENSOR_ENTRY_BYTES)
        read.check_count("metadata keys", key_count, _SMALLEST_KEY_ENTRY_BYTES)
        metadata: dict[str, Scalar | Array] = {}
        for _ in range(key_count):
            key = read.name("metadata key")
            if key in metadata:
                raise read.bad(f"the metadata key {key!r} occurs twice")
            metadata[key] = read.metadata_value(key)
        metadata_bytes = read.at
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._values.bad(f"general.alignment is {alignment!r} instead of a power of two")
        tensors = self._tensors(tensor_count, alignment)
        ends = (tensor.offset_bytes + tensor.size_bytes for tensor in tensors)
        return Header(
            version=version,
            metadata=metadata,
            metadata_bytes=metadata_bytes,
            alignment_bytes=alignment,
            tensors=tensors,
            file_bytes=self._size_bytes,
            end_bytes=-(-max(ends, default=read.at) // alignment) * alignment,
            weights_at=-(-read.at // alignment) * alignment,
        )

    def _opening(self) -> int:
        magic = self._values.bytes_up_to(4)
        if magic != MAGIC:
            raise DataError(
                f"{self._path}: this is not a GGUF file: it {beginning(magic, MAGIC, self._path)}.",
                "Give a model in llama.cpp's GGUF format. This may be a saved download page or "
                "Git LFS pointer instead.",
            )
        version = self._values.number("<I")
        if version in SUPPORTED_VERSIONS:
            return version
        if struct.unpack("<I", struct.pack(">I", version))[0] in SUPPORTED_VERSIONS:
            module = "gguf.scripts.gguf_convert_endian"
            convert = join([sys.executable, "-m", module, self._path, "little"])
            raise DataError(
                f"{self._path}: this GGUF file is big-endian, and the boards are little-endian.",
                f"Download the little-endian file, or convert this one in place: {convert}",
            )
        raise DataError(
            f"{self._path}: GGUF version {version} is not supported, only "
            f"{' and '.join(map(str, SUPPORTED_VERSIONS))}.",
            "Convert the model again with a current llama.cpp.",
        )

    def _tensors(self, count: int, alignment: int) -> tuple[Tensor, ...]:
        relative: dict[str, tuple[tuple[int, ...], str, int, int]] = {}
        for _ in range(count):
            name = self._values.name("tensor name")
            if name in relative:
                raise self._values.bad(f"the tensor {name!r} occurs twice")
            shape = self._shape(name)
            type_name, size_bytes = self._type(name, shape)
            offset_bytes = self._values.number("<Q")
            if offset_bytes % alignment:
                raise self._values.bad(
                    f"the data of tensor {name!r} begins at {offset_bytes}, which is not a "
                    f"multiple of {alignment}"
                )
            relative[name] = (shape, type_name, size_bytes, offset_bytes)
        data_start = -(-self._values.at // alignment) * alignment
        return tuple(
            Tensor(
                name=name,
                shape=shape,
                type_name=type_name,
                size_bytes=size_bytes,
                offset_bytes=data_start + offset_bytes,
            )
            for name, (shape, type_name, size_bytes, offset_bytes) in relative.items()
        )

    def _shape(self, name: str) -> tuple[int, ...]:
        dimensions = self._values.number("<I")
        if dimensions > MOST_DIMENSIONS:
            raise self._values.bad(
                f"tensor {name!r} has {dimensions} dimensions instead of at most {MOST_DIMENSIONS}"
            )
        shape = tuple(self._values.number("<Q") for _ in range(dimensions))
        if math.prod(shape) >= 1 << 63:
            raise self._values.bad(f"tensor {name!r} has an impossible shape {shape}")
        return shape

    def _type(self, name: str, shape: tuple[int, ...]) -> tuple[str, int]:
        number = self._values.number("<I")
        found = KNOWN_TYPES.get(number)
        if found is None:
            whose, remedy = foreign_type(number)
            raise DataError(f"{self._path}: tensor {name!a} has type {number}, {whose}.", remedy)
        row = shape[0] if shape else 1
        if row % found.block_elements:
            raise self._values.bad(
                f"tensor {name!r} has rows of {row} elements, which is not a multiple of "
                f"{found.name}'s {found.block_elements}"
            )
        return found.name, math.prod(shape) // found.block_elements * found.block_bytes
