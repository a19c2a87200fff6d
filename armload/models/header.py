"""The header of a GGUF file, read in bounded memory and never trusted.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
Nothing is allocated from a count that the file states before the count was compared with
what is left of the file, and the weights themselves are not touched.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from armload.core.errors import DataError
from armload.core.values import format_bytes

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)

KEPT_ARRAY_ITEMS = 1 << 16
KEPT_STRING_BYTES = 1 << 20
LONGEST_NAME_BYTES = 1 << 16
MOST_DIMENSIONS = 4
DEFAULT_ALIGNMENT_BYTES = 32

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_SMALLEST_TENSOR_ENTRY_BYTES = 8 + 4 + 8 + 4 + 8
_SMALLEST_KEY_ENTRY_BYTES = 8 + 4 + 1

Scalar = int | float | bool | str


@dataclass(frozen=True, kw_only=True)
class Array:
    """An array among the metadata.

    Attributes:
        length: number of items.
        items: the items; empty for strings and for long arrays, which are only counted.
    """

    length: int
    items: tuple[int | float | bool, ...] = ()


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
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Header:
    """Metadata and tensor entries of a GGUF file that is long enough to hold its tensors."""

    version: int
    metadata: Mapping[str, Scalar | Array]
    tensors: tuple[Tensor, ...]


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file and check that all tensor data is inside the file.

    Raises:
        DataError: no GGUF, an unsupported version or byte order, an impossible count, size
            or type, or a file that ends too early.
        OSError: the file cannot be opened or read.
    """
    with path.open("rb", buffering=1 << 16) as file:
        size_bytes = path.stat().st_size
        return _Parser(path, file, size_bytes).header()


class _Parser:
    def __init__(self, path: Path, file: BinaryIO, size_bytes: int) -> None:
        self._path = path
        self._file = file
        self._size_bytes = size_bytes
        self._at = 0

    def header(self) -> Header:
        version = self._opening()
        tensor_count, key_count = self._number("<Q"), self._number("<Q")
        self._check_count("tensors", tensor_count, _SMALLEST_TENSOR_ENTRY_BYTES)
        self._check_count("metadata keys", key_count, _SMALLEST_KEY_ENTRY_BYTES)
        metadata: dict[str, Scalar | Array] = {}
        for _ in range(key_count):
            key = self._name("metadata key")
            if key in metadata:
                raise self._bad(f"the metadata key {key!r} is there twice")
            metadata[key] = self._value(self._number("<I"), key)
        tensors = self._tensors(tensor_count, self._alignment(metadata))
        return Header(version=version, metadata=metadata, tensors=tensors)

    def _opening(self) -> int:
        magic = self._take(min(4, self._size_bytes))
        if magic != MAGIC:
            seen = f"begins with {magic!r}" if magic else "is empty"
            raise DataError(
                f"{self._path}: this is no GGUF file: it {seen} instead of {MAGIC!r}.",
                "Give a model in llama.cpp's GGUF format. A download page or a Git LFS pointer "
                "saved under the model's name looks like this too.",
            )
        version = self._number("<I")
        if version in SUPPORTED_VERSIONS:
            return version
        if struct.unpack("<I", struct.pack(">I", version))[0] in SUPPORTED_VERSIONS:
            raise DataError(
                f"{self._path}: this GGUF file is big-endian, and the boards are little-endian.",
                "Convert it with `gguf-convert-endian FILE little`, or take the usual download.",
            )
        raise DataError(
            f"{self._path}: GGUF version {version} is not supported, only "
            f"{' and '.join(map(str, SUPPORTED_VERSIONS))}.",
            "Convert the model again with a current llama.cpp.",
        )

    def _alignment(self, metadata: Mapping[str, Scalar | Array]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
        if not isinstance(value, int) or value <= 0 or value & (value - 1):
            raise self._bad(f"general.alignment is {value!r}, and must be a power of two")
        return value

    def _tensors(self, count: int, alignment: int) -> tuple[Tensor, ...]:
        relative: dict[str, tuple[tuple[int, ...], str, int, int]] = {}
        for _ in range(count):
            name = self._name("tensor name")
            if name in relative:
                raise self._bad(f"the tensor {name!r} is there twice")
            shape = self._shape(name)
            type_name, size_bytes = self._type(name, shape)
            offset_bytes = self._number("<Q")
            if offset_bytes % alignment:
                raise self._bad(
                    f"the data of tensor {name!r} begins at {offset_bytes}, "
                    f"which is no multiple of {alignment}"
                )
            relative[name] = (shape, type_name, size_bytes, offset_bytes)
        data_start = -(-self._at // alignment) * alignment
        tensors = tuple(
            Tensor(
                name=name,
                shape=shape,
                type_name=type_name,
                size_bytes=size_bytes,
                offset_bytes=data_start + offset_bytes,
            )
            for name, (shape, type_name, size_bytes, offset_bytes) in relative.items()
        )
        self._check_complete(tensors)
        return tensors

    def _shape(self, name: str) -> tuple[int, ...]:
        dimensions = self._number("<I")
        if dimensions > MOST_DIMENSIONS:
            raise self._bad(
                f"tensor {name!r} has {dimensions} dimensions; at most {MOST_DIMENSIONS} exist"
            )
        shape = tuple(self._number("<Q") for _ in range(dimensions))
        if math.prod(shape) >= 1 << 63:
            raise self._bad(f"tensor {name!r} has an impossible shape {shape}")
        return shape

    def _type(self, name: str, shape: tuple[int, ...]) -> tuple[str, int]:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        number = self._number("<I")
        try:
            tensor_type = GGMLQuantizationType(number)
        except ValueError:
            raise DataError(
                f"{self._path}: tensor {name!r} has type {number}, which this version of "
                "armload does not know.",
                "The file is damaged, or newer: try `pip install --upgrade gguf`.",
            ) from None
        block_elements, block_bytes = GGML_QUANT_SIZES[tensor_type]
        row = shape[0] if shape else 1
        if row % block_elements:
            raise self._bad(
                f"tensor {name!r} has rows of {row} elements, which is no multiple of "
                f"{tensor_type.name}'s {block_elements}"
            )
        return tensor_type.name, math.prod(shape) // block_elements * block_bytes

    def _check_complete(self, tensors: tuple[Tensor, ...]) -> None:
        end = max((tensor.offset_bytes + tensor.size_bytes for tensor in tensors), default=0)
        if end > self._size_bytes:
            missing = end - self._size_bytes
            raise DataError(
                f"{self._path}: the file is cut short: it has {self._size_bytes} bytes, and "
                f"{missing} ({format_bytes(missing)}) of its {end} are missing.",
                "Download or copy it again.",
            )

    def _value(self, value_type: int, key: str) -> Scalar | Array:
        if value_type == _STRING:
            return self._string(key)
        if value_type == _ARRAY:
            return self._array(key)
        return self._scalar(self._code(value_type, key))

    def _array(self, key: str) -> Array:
        item_type, length = self._number("<I"), self._number("<Q")
        if item_type == _STRING:
            self._check_count(f"strings in {key!r}", length, 8)
            for _ in range(length):
                self._skip(self._number("<Q"), key)
            return Array(length=length)
        code = self._code(item_type, key)
        self._check_count(f"numbers in {key!r}", length, struct.calcsize(code))
        if length > KEPT_ARRAY_ITEMS:
            self._skip(length * struct.calcsize(code), key)
            return Array(length=length)
        packed = self._take(length * struct.calcsize(code))
        return Array(length=length, items=struct.unpack(f"<{length}{code[1]}", packed))

    def _code(self, value_type: int, key: str) -> str:
        if value_type not in _SCALARS:
            raise self._bad(f"the metadata key {key!r} has a value of unknown type {value_type}")
        return _SCALARS[value_type]

    def _string(self, key: str) -> str:
        length = self._number("<Q")
        if length > KEPT_STRING_BYTES:
            self._skip(length, key)
            return ""
        return self._take(length).decode("utf-8", "replace")

    def _name(self, kind: str) -> str:
        length = self._number("<Q")
        if length >= LONGEST_NAME_BYTES:
            raise self._bad(f"a {kind} is said to have {length} bytes")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self._bad(f"a {kind} is no text") from None

    def _scalar(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        return value

    def _number(self, code: str) -> int:
        return int(self._scalar(code))

    def _take(self, count: int) -> bytes:
        content = self._file.read(count) if count <= self._size_bytes - self._at else b""
        if len(content) < count:
            raise self._ends_early()
        self._at += count
        return content

    def _skip(self, count: int, key: str) -> None:
        if count > self._size_bytes - self._at:
            raise self._bad(
                f"a value of {key!r} is said to have {count} bytes, and the file ends before"
            )
        self._file.seek(count, 1)
        self._at += count

    def _check_count(self, what: str, count: int, smallest_bytes: int) -> None:
        left = self._size_bytes - self._at
        if count * smallest_bytes > left:
            raise self._bad(
                f"it is said to hold {count} {what}, and only {format_bytes(left)} are left"
            )

    def _ends_early(self) -> DataError:
        return DataError(
            f"{self._path}: the file is cut short: its {self._size_bytes} bytes end inside the "
            "header, before any weights.",
            "Download or copy it again.",
        )

    def _bad(self, what: str) -> DataError:
        return DataError(
            f"{self._path}, byte {self._at}: this GGUF file is damaged: {what}.",
            "Download, copy or convert it again.",
        )
