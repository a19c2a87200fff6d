"""The header of a model as one file, without its weights: all that a simulation of it needs."""

from __future__ import annotations

import struct
from pathlib import Path

from armload.core.values import Value
from armload.models.gguf_values import Array, Scalar
from armload.models.header import MAGIC, Header
from armload.models.model import read_headers
from armload.models.tensor_types import TYPE_NUMBERS

_COUNTS = struct.Struct("<IQQ")
_SPLIT_COUNT = struct.pack("<Q", len("split.count")) + b"split.count"
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 10: 8, 11: 8}
"""Bytes of the whole numbers, by GGUF's number of the type."""

_ARRAY = 9


class WholeHeader(Value):
    """The beginning of a GGUF file.

    Attributes:
        content: its bytes up to where the weights would begin.
        file_bytes: of the file with its weights.
    """

    content: bytes
    file_bytes: int


def whole_header(path: Path, planned: Header | None = None) -> WholeHeader:
    """Return the header of a model as it is; of one in several parts, that of the whole.

    Args:
        planned: the same model's, with tensors of other types.

    Raises:
        OSError: a file cannot be read.
    """
    header, parts = read_headers(path, need_weights=False)
    with path.open("rb") as file:
        if not parts and planned is None:
            content = file.read(header.weights_at).ljust(header.weights_at, b"\0")
            return WholeHeader(
                content=content, file_bytes=max(header.file_bytes, header.whole_bytes)
            )
        beginning = file.read(header.metadata_bytes)
    _, _, key_count = _COUNTS.unpack_from(beginning, len(MAGIC))
    keys = beginning[len(MAGIC) + _COUNTS.size :]
    if parts:
        at = keys.index(_SPLIT_COUNT) + len(_SPLIT_COUNT)
        (number_type,) = struct.unpack_from("<I", keys, at)
        width = _WIDTHS[number_type]
        keys = keys[: at + 4] + (1).to_bytes(width, "little") + keys[at + 4 + width :]
    counts = _COUNTS.pack(header.version, len(header.tensors), key_count)
    entries, weights_bytes = _entries(planned or header)
    content = MAGIC + counts + keys + entries
    content += bytes(-len(content) % header.alignment_bytes)
    return WholeHeader(content=content, file_bytes=len(content) + weights_bytes)


def encoded(header: Header) -> WholeHeader:
    keys = b"".join(_key(name, value) for name, value in header.metadata.items())
    counts = _COUNTS.pack(header.version, len(header.tensors), len(header.metadata))
    entries, weights_bytes = _entries(header)
    content = MAGIC + counts + keys + entries
    content += bytes(-len(content) % header.alignment_bytes)
    return WholeHeader(content=content, file_bytes=len(content) + weights_bytes)


def _key(name: str, value: Scalar | Array) -> bytes:
    if not isinstance(value, Array):
        return _string(name) + struct.pack("<I", _type(value)) + _packed(value)
    items = b"".join(map(_packed, value.items))
    kinds = struct.pack("<IIQ", _ARRAY, _type(value.items[0]), value.length)
    return _string(name) + kinds + items


def _type(value: Scalar) -> int:
    by_type: dict[type, int] = {bool: 7, int: 4, float: 6, str: 8}
    return by_type[type(value)]


def _packed(value: Scalar) -> bytes:
    if isinstance(value, str):
        return _string(value)
    return struct.pack({bool: "<?", int: "<I", float: "<f"}[type(value)], value)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _entries(header: Header) -> tuple[bytes, int]:
    """Return the tensors' entries, each right behind the one before, and the end of the last."""
    end = 0
    entries = []
    for tensor in header.tensors:
        name = tensor.name.encode()
        entries += [
            struct.pack("<Q", len(name)),
            name,
            struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape),
            struct.pack("<IQ", TYPE_NUMBERS[tensor.type_name], end),
        ]
        end += tensor.size_bytes + -tensor.size_bytes % header.alignment_bytes
    return b"".join(entries), end
