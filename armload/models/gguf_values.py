"""The values of a GGUF header, read in bounded memory and never trusted.

Nothing is allocated from a count that the file states before the count was compared with
what is left of the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from armload.core.errors import DataError
from armload.core.values import format_bytes

KEPT_ARRAY_ITEMS = 1 << 16
KEPT_STRING_BYTES = 1 << 20
LONGEST_NAME_BYTES = 1 << 16

_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_CHUNK_BYTES = 1 << 16
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

Scalar = int | float | bool | str


@dataclass(frozen=True, kw_only=True)
class Array:
    """An array among the metadata.

    Attributes:
        length: number of items.
        items: the items; empty for strings and for long arrays, which are only counted.
        strings: the strings, if they were requested.
    """

    length: int
    items: tuple[int | float | bool, ...] = ()
    strings: tuple[str, ...] = ()


class ValueReader:
    """Reads a file from its start, a value at a time.

    Every method raises DataError where the file ends early or says what cannot be.

    Args:
        file: opened at its start.
        size_bytes: that it has.
        strings_of: the key whose array of strings is kept.
        numbers_of: the key whose array of numbers is kept, however long.

    Attributes:
        at: the bytes that were read so far.
    """

    def __init__(
        self,
        path: Path,
        file: BinaryIO,
        size_bytes: int,
        *,
        strings_of: str = "",
        numbers_of: str = "",
    ) -> None:
        self._path = path
        self._file = file
        self._size_bytes = size_bytes
        self._strings_of = strings_of
        self._numbers_of = numbers_of
        self.at = 0

    def bytes_up_to(self, count: int) -> bytes:
        """Read ``count`` bytes, or fewer where the file has no more."""
        return self._take(min(count, self._size_bytes - self.at))

    def number(self, code: str) -> int:
        """Read a number that ``struct`` knows by this code."""
        return int(self._scalar(code))

    def name(self, kind: str) -> str:
        """Read the name of something."""
        length = self.number("<Q")
        if length >= LONGEST_NAME_BYTES:
            raise self.bad(f"a {kind} claims a length of {length} bytes")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.bad(f"a {kind} is not UTF-8") from None

    def metadata_value(self, key: str) -> Scalar | Array:
        """Read the type and the value of a metadata key."""
        value_type = self.number("<I")
        if value_type == _STRING:
            return self._string(key)
        if value_type == _ARRAY:
            return self._array(key)
        return self._scalar(self._code(value_type, key))

    def check_count(self, what: str, count: int, smallest_bytes: int) -> None:
        """Check that the rest of the file is large enough for that many entries."""
        left = self._size_bytes - self.at
        if count * smallest_bytes > left:
            raise self.bad(f"it claims {count} {what}, but only {format_bytes(left)} are left")

    def bad(self, what: str) -> DataError:
        """Return the error for what cannot be, found just before ``at``."""
        return DataError(
            f"{self._path}, byte {self.at}: this GGUF file is damaged: {what}.",
            "Download, copy or convert it again.",
        )

    def _array(self, key: str) -> Array:
        item_type, length = self.number("<I"), self.number("<Q")
        if item_type == _STRING:
            self.check_count(f"strings in {key!r}", length, 8)
            if key == self._strings_of:
                return Array(length=length, strings=tuple(self._string(key) for _ in range(length)))
            self._skip_strings(length, key)
            return Array(length=length)
        code = self._code(item_type, key)
        self.check_count(f"numbers in {key!r}", length, struct.calcsize(code))
        if length > KEPT_ARRAY_ITEMS and key != self._numbers_of:
            self._skip(length * struct.calcsize(code), key)
            return Array(length=length)
        packed = self._take(length * struct.calcsize(code))
        return Array(length=length, items=struct.unpack(f"<{length}{code[1]}", packed))

    def _code(self, value_type: int, key: str) -> str:
        if value_type not in _SCALARS:
            raise self.bad(f"the metadata key {key!r} has a value of unknown type {value_type}")
        return _SCALARS[value_type]

    def _string(self, key: str) -> str:
        length = self.number("<Q")
        if length > KEPT_STRING_BYTES:
            self._skip(length, key)
            return ""
        return self._take(length).decode("utf-8", "replace")

    def _scalar(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        return value

    def _take(self, count: int) -> bytes:
        content = self._file.read(count) if count <= self._size_bytes - self.at else b""
        if len(content) < count:
            raise DataError(
                f"{self._path}: the file is truncated: its {self._size_bytes} bytes end inside "
                "the header, before any weights.",
                "Download or copy it again.",
            )
        self.at += count
        return content

    def _skip_strings(self, count: int, key: str) -> None:
        """Skip strings from one length to the next; vocabularies have hundreds of thousands."""
        while count:
            chunk = self._file.read(min(_CHUNK_BYTES, self._size_bytes - self.at))
            position = 0
            while count and position + 8 <= len(chunk):
                position += 8 + _LENGTH.unpack_from(chunk, position)[0]
                count -= 1
            self._file.seek(-len(chunk), 1)
            self._skip(position, key) if position else self._take(_LENGTH.size)

    def _skip(self, count: int, key: str) -> None:
        if count > self._size_bytes - self.at:
            raise self.bad(
                f"a value of {key!r} claims {count} bytes, but the file ends before that"
            )
        self._file.seek(count, 1)
        self.at += count
